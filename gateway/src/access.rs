//! Whether a person may do this to that agent: RBAC decides, verb by verb.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::time::timeout;
use yoi_wire::people::{GROUP, VERSION};

use crate::frontproxy::User;
use crate::memory::Memory;
use crate::metrics::{Metrics, count};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Deed {
    pub verb: &'static str,
    pub subresource: &'static str,
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    #[error("failed to ask the API server for the caller's rights")]
    Review(#[source] kube::Error),
    #[error("failed to get the caller's rights within {}", crate::seconds(*.0))]
    TimedOut(Duration),
}

pub struct Access {
    client: Client,
    metrics: Arc<Metrics>,
    /// Only what was allowed is remembered: a right that was just given works at once.
    allowed: Memory<(User, Deed), ()>,
    deadline: Duration,
}

impl Access {
    pub fn new(client: Client, metrics: Arc<Metrics>, memory: Duration, deadline: Duration) -> Self {
        Access { client, metrics, allowed: Memory::new(memory), deadline }
    }

    pub async fn may(&self, user: &User, deed: &Deed) -> Result<bool, AccessError> {
        let key = (user.clone(), deed.clone());
        if self.allowed.recall(&key, Instant::now()).is_some() {
            count(&self.metrics.access_reviews, "remembered");
            return Ok(true);
        }
        let answer = self.ask(user, deed).await;
        let outcome = match &answer {
            Ok(true) => "allowed",
            Ok(false) => "denied",
            Err(_) => "failed",
        };
        count(&self.metrics.access_reviews, outcome);
        let allowed = answer?;
        if allowed {
            self.allowed.keep(key, (), Instant::now());
        }
        Ok(allowed)
    }

    async fn ask(&self, user: &User, deed: &Deed) -> Result<bool, AccessError> {
        let spec = SubjectAccessReviewSpec {
            user: Some(user.name.clone()),
            uid: user.uid.clone(),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone().into_iter().collect::<BTreeMap<_, _>>()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(GROUP.to_owned()),
                version: Some(VERSION.to_owned()),
                resource: Some("yoipods".to_owned()),
                subresource: Some(deed.subresource.to_owned()),
                verb: Some(deed.verb.to_owned()),
                namespace: Some(deed.namespace.clone()),
                name: Some(deed.name.clone()),
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
