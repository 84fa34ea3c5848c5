//! Carries the steps of a plan out, in their order, each to its end.

use std::fmt::Debug;

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::NamespaceResourceScope;
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use yoi_crds::name::{annotation, field_manager};
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPod};
use yoi_plan::meta;
use yoi_plan::step::{Kind, Step, Target};
use yoi_plan::workspace::claim::tree_behind;
use yoi_plan::yoipod::MADE_FOR;

use crate::subject::{Subject, tell};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The view that the step was decided on is old; the next one comes by watch.
    #[error("failed to {deed}: the object has changed since it was seen")]
    Outdated { deed: String },
    /// Somebody else's object bears the name.
    #[error("failed to {deed}: an object of that name exists and was not made for this one; delete or rename it")]
    Foreign { deed: String },
    /// The namespace is on its way out: nothing more is made in it.
    #[error("failed to {deed}: the namespace is being deleted")]
    Terminating { deed: String },
    #[error("failed to {deed}: {}", words(source))]
    Refused { deed: String, source: Box<kube::Error> },
}

impl Error {
    /// True: a repetition with a newer view is all it takes, and nobody needs to hear of it.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        match self {
            Error::Outdated { .. } | Error::Terminating { .. } => true,
            Error::Foreign { .. } | Error::Refused { .. } => false,
        }
    }

    pub(crate) fn from(deed: String, source: kube::Error) -> Self {
        match &source {
            kube::Error::Api(s) if s.is_conflict() => Error::Outdated { deed },
            kube::Error::Api(s) if s.is_forbidden() && s.message.contains("because it is being terminated") => Error::Terminating { deed },
            _ => Error::Refused { deed, source: Box::new(source) },
        }
    }
}

/// The API server's sentence, where there is one.
fn words(source: &kube::Error) -> String {
    match source {
        kube::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}

fn gone<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(s)) if s.is_not_found() => Ok(()),
        Err(e) => Err(e),
    }
}

/// Carries out one step. Said twice, it changes nothing the second time.
pub async fn apply(client: &Client, subject: &Subject, step: &Step) -> Result<(), Error> {
    let deed = step.description();
    match step {
        Step::AddFinalizers { of, resource_version, all } => {
            patch(client, of, json!({"metadata": {"resourceVersion": resource_version, "finalizers": all}}), &deed).await?;
        }
        Step::RemoveFinalizer { of, resource_version, finalizer: _, left } => {
            patch(client, of, json!({"metadata": {"resourceVersion": resource_version, "finalizers": left}}), &deed).await?;
        }
        Step::EnsureWorkspace(object) => create::<AgentWorkspace>(Api::namespaced(client.clone(), here(&**object)), object, &deed).await?,
        Step::EnsureClaim(object) => {
            create::<PersistentVolumeClaim>(Api::namespaced(client.clone(), here(&**object)), object, &deed).await?
        }
        Step::EnsureVolume(object) => create::<PersistentVolume>(Api::all(client.clone()), object, &deed).await?,
        Step::EnsureConfigMap(object) => create::<ConfigMap>(Api::namespaced(client.clone(), here(&**object)), object, &deed).await?,
        Step::EnsurePod(object) => create::<Pod>(Api::namespaced(client.clone(), here(&**object)), object, &deed).await?,
        Step::EnsureNetworkPolicy(object) => {
            let api: Api<NetworkPolicy> = Api::namespaced(client.clone(), here(&**object));
            let params = PatchParams::apply(field_manager::OPERATOR).force();
            api.patch(&object.name_any(), &params, &Patch::Apply(&**object)).await.map_err(|e| Error::from(deed.clone(), e))?;
        }
        Step::OwnClaim { claim, owners } => patch(client, claim, json!({"metadata": {"ownerReferences": owners}}), &deed).await?,
        Step::UnselectNode { claim } => {
            patch(client, claim, json!({"metadata": {"annotations": {annotation::SELECTED_NODE: null}}}), &deed).await?;
        }
        Step::NudgeClaim { claim, times } => {
            patch(client, claim, json!({"metadata": {"annotations": {annotation::REMINDED: times.to_string()}}}), &deed).await?;
        }
        Step::RetainVolume { volume } => {
            patch(client, volume, json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}}), &deed).await?;
        }
        Step::ConfirmGone { kind, namespace, name, of } => {
            if is_left(client, *kind, namespace, name, of).await.map_err(|e| Error::from(deed.clone(), e))? {
                return Err(Error::Outdated { deed });
            }
        }
        Step::Delete(target) => delete(client, target, &deed).await?,
    }
    // A look changes nothing.
    match step {
        Step::ConfirmGone { .. } => tell!(debug, subject, deed, "step done"),
        _ => tell!(info, subject, deed, "step done"),
    }
    Ok(())
}

fn here<K: Resource>(object: &K) -> &str {
    object.meta().namespace.as_deref().unwrap_or_default()
}

async fn create<K>(api: Api<K>, wanted: &K, deed: &str) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let params = PostParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PostParams::default() };
    match api.create(&params, wanted).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(s)) if s.is_already_exists() => {
            let existing = api.get_opt(&wanted.name_any()).await.map_err(|e| Error::from(deed.to_owned(), e))?;
            match existing {
                Some(existing) if !same_making(wanted.meta(), existing.meta()) => Err(Error::Foreign { deed: deed.to_owned() }),
                // On its way out: the next round makes another.
                Some(existing) if existing.meta().deletion_timestamp.is_some() => Err(Error::Outdated { deed: deed.to_owned() }),
                // The cache will show it.
                Some(_) => Ok(()),
                None => Err(Error::Outdated { deed: deed.to_owned() }),
            }
        }
        Err(e) => Err(Error::from(deed.to_owned(), e)),
    }
}

type Meta = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Made for the same owner; objects without one say by annotation whose they are.
fn same_making(wanted: &Meta, existing: &Meta) -> bool {
    match meta::controller(wanted) {
        Some(owner) => meta::controlled_by(existing, &owner.uid),
        None => {
            let wanted = wanted.annotations.iter().flatten();
            let mut wanted = wanted.peekable();
            wanted.peek().is_some() && wanted.all(|(k, v)| meta::annotation(existing, k) == Some(v.as_str()))
        }
    }
}

/// Whether an object of that name exists that was made for `of`.
async fn is_left(client: &Client, kind: Kind, namespace: &str, name: &str, of: &str) -> Result<bool, kube::Error> {
    async fn meta<K>(client: &Client, namespace: &str, name: &str) -> Result<Option<Meta>, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        Ok(Api::<K>::namespaced(client.clone(), namespace).get_metadata_opt(name).await?.map(|o| o.metadata))
    }
    let owned = |m: Option<Meta>| m.is_some_and(|m| meta::controlled_by(&m, of) || meta::annotation(&m, MADE_FOR) == Some(of));
    Ok(match kind {
        Kind::YoiPod => owned(meta::<YoiPod>(client, namespace, name).await?),
        Kind::Workspace => owned(meta::<AgentWorkspace>(client, namespace, name).await?),
        Kind::Claim => owned(meta::<PersistentVolumeClaim>(client, namespace, name).await?),
        Kind::ConfigMap => owned(meta::<ConfigMap>(client, namespace, name).await?),
        Kind::Pod => owned(meta::<Pod>(client, namespace, name).await?),
        // No owner: a volume says whose tree it shows.
        Kind::Volume => Api::<PersistentVolume>::all(client.clone()).get_opt(name).await?.is_some_and(|v| tree_behind(&v) == Some(of)),
        Kind::WorkspaceNode => {
            Api::<WorkspaceNode>::all(client.clone()).get_metadata_opt(name).await?.is_some_and(|o| meta::uid(&o.metadata) == of)
        }
    })
}

/// With the UID that was meant: under its name another may stand by now. What is gone needs no patch.
async fn patch(client: &Client, of: &Target, mut body: serde_json::Value, deed: &str) -> Result<(), Error> {
    body["metadata"]["uid"] = json!(of.uid);
    gone(merge(client, of, &body).await).map_err(|e| Error::from(deed.to_owned(), e))
}

async fn merge(client: &Client, of: &Target, patch: &serde_json::Value) -> Result<(), kube::Error> {
    match of.kind {
        Kind::YoiPod => patched::<YoiPod>(namespaced(client, of), of, patch).await,
        Kind::Workspace => patched::<AgentWorkspace>(namespaced(client, of), of, patch).await,
        Kind::Claim => patched::<PersistentVolumeClaim>(namespaced(client, of), of, patch).await,
        Kind::Volume => patched::<PersistentVolume>(Api::all(client.clone()), of, patch).await,
        Kind::ConfigMap => patched::<ConfigMap>(namespaced(client, of), of, patch).await,
        Kind::Pod => patched::<Pod>(namespaced(client, of), of, patch).await,
        Kind::WorkspaceNode => patched::<WorkspaceNode>(Api::all(client.clone()), of, patch).await,
    }
}

async fn patched<K: Clone + Debug + DeserializeOwned>(api: Api<K>, of: &Target, patch: &serde_json::Value) -> Result<(), kube::Error> {
    let params = PatchParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PatchParams::default() };
    api.patch(&of.name, &params, &Patch::Merge(patch)).await.map(|_| ())
}

fn namespaced<K>(client: &Client, of: &Target) -> Api<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>,
{
    Api::namespaced(client.clone(), &of.namespace)
}

async fn delete(client: &Client, target: &Target, deed: &str) -> Result<(), Error> {
    match target.kind {
        Kind::YoiPod => deleted(namespaced::<YoiPod>(client, target), target, deed).await,
        Kind::Workspace => deleted(namespaced::<AgentWorkspace>(client, target), target, deed).await,
        Kind::Claim => deleted(namespaced::<PersistentVolumeClaim>(client, target), target, deed).await,
        Kind::Volume => deleted(Api::<PersistentVolume>::all(client.clone()), target, deed).await,
        Kind::ConfigMap => deleted(namespaced::<ConfigMap>(client, target), target, deed).await,
        Kind::Pod => deleted(namespaced::<Pod>(client, target), target, deed).await,
        Kind::WorkspaceNode => deleted(Api::<WorkspaceNode>::all(client.clone()), target, deed).await,
    }
}

async fn deleted<K: Clone + Debug + DeserializeOwned>(api: Api<K>, target: &Target, deed: &str) -> Result<(), Error> {
    let preconditions = Preconditions { uid: Some(target.uid.clone()), resource_version: None };
    match api.delete(&target.name, &DeleteParams::background().preconditions(preconditions)).await {
        Ok(_) => Ok(()),
        // Gone is done; and a conflict says that the one that we meant is gone and another bears its name.
        Err(kube::Error::Api(s)) if s.is_not_found() || s.is_conflict() => Ok(()),
        Err(e) => Err(Error::from(deed.to_owned(), e)),
    }
}
