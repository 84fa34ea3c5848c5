//! Whether a user may send a request about an agent. RBAC decides, by SubjectAccessReview for each verb.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::timeout;
use yoi_wire::people::{GROUP, VERSION};

use crate::front_proxy::User;
use crate::metrics::{GatewayMetrics, count};
use crate::ttl_cache::TtlCache;

/// Group and version of our objects.
const OBJECTS_GROUP: &str = "yoi.dev";
const OBJECTS_VERSION: &str = "v1alpha1";

/// A verb on an object, or on a subresource of a YoiPod or of a project.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AccessRequest {
    pub verb: &'static str,
    pub resource: AccessResource,
    pub namespace: String,
    /// Empty where an object is created: the API server authorizes that before it reads the name.
    pub name: String,
}

/// What a request is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessResource {
    /// A subresource of the aggregated API, as in `yoipods/log`.
    Subresource(&'static str),
    /// A subresource of a project in the aggregated API, as in `yoiprojects/sync`.
    OfProject(&'static str),
    /// Objects of `yoi.dev`, by their plural.
    Objects(&'static str),
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("failed to ask the API server for the caller's rights")]
    Review(#[source] kube::Error),
    #[error("failed to get the caller's rights within {}", crate::seconds(*.0))]
    TimedOut(Duration),
}

/// Asks the API server for the rights of users.
pub struct AccessReviewer {
    client: Client,
    metrics: Arc<GatewayMetrics>,
    /// Only granted requests are cached, so that a new RoleBinding works at once.
    allowed: TtlCache<(User, AccessRequest), ()>,
    deadline: Duration,
}

impl AccessReviewer {
    pub fn new(client: Client, metrics: Arc<GatewayMetrics>, ttl: Duration, deadline: Duration) -> Self {
        AccessReviewer { client, metrics, allowed: TtlCache::new(ttl), deadline }
    }

    /// Whether RBAC allows the request, from the cache or by a SubjectAccessReview.
    pub async fn is_allowed(&self, user: &User, request: &AccessRequest) -> Result<bool, AccessError> {
        let key = (user.clone(), request.clone());
        if self.allowed.get(&key, Instant::now()).is_some() {
            count(&self.metrics.access_reviews, "cached");
            return Ok(true);
        }
        let answer = self.review(user, request).await;
        let outcome = match &answer {
            Ok(true) => "allowed",
            Ok(false) => "denied",
            Err(_) => "failed",
        };
        count(&self.metrics.access_reviews, outcome);
        let allowed = answer?;
        if allowed {
            self.allowed.insert(key, (), Instant::now());
        }
        Ok(allowed)
    }

    async fn review(&self, user: &User, request: &AccessRequest) -> Result<bool, AccessError> {
        let (group, version, resource, subresource) = match request.resource {
            AccessResource::Subresource(subresource) => (GROUP, VERSION, "yoipods", Some(subresource.to_owned())),
            AccessResource::OfProject(subresource) => (GROUP, VERSION, "yoiprojects", Some(subresource.to_owned())),
            AccessResource::Objects(plural) => (OBJECTS_GROUP, OBJECTS_VERSION, plural, None),
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone().into_iter().collect::<BTreeMap<_, _>>()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(group.to_owned()),
                version: Some(version.to_owned()),
                resource: Some(resource.to_owned()),
                subresource,
                verb: Some(request.verb.to_owned()),
                namespace: Some(request.namespace.clone()),
                name: Some(request.name.clone()).filter(|name| !name.is_empty()),
                ..ResourceAttributes::default()
            }),
            non_resource_attributes: None,
        };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let (params, review) = (PostParams::default(), SubjectAccessReview { spec, ..SubjectAccessReview::default() });
        let answer = timeout(self.deadline, api.create(&params, &review)).await.map_err(|_| AccessError::TimedOut(self.deadline))?;
        let status = answer.map_err(AccessError::Review)?.status.unwrap_or_default();
        Ok(status.allowed && !status.denied.unwrap_or(false))
    }
}
