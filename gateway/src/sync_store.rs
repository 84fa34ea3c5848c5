//! Keeps the working trees that people send: each bundle in parts in ConfigMaps of the project, and what came last in the project's status.
//!
//! # Guarantees
//! - The status names a bundle only once all of its parts are stored. Parts are never changed.
//! - A state of a machine counts only if the sender knew the one before: of two that were captured at once, the one that comes second is refused.
//!
//! # Caveats
//! The gateway deletes nothing: the operator deletes the bundles that the status names and no tree needs. Parts that were stored while the status could not
//! be written stay until the project goes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use yoi_crds::YoiProject;
use yoi_crds::name::{field_manager, label};
use yoi_crds::sync::{
    MAX_BUNDLES, MAX_MACHINES, PART_BYTES, PART_KEY, StoredBundle, StoredPart, SyncStatus, SyncedMachine, SyncedTree, part_prefix,
};
use yoi_wire::sync::SyncQuery;

/// How often a write is tried while others write the status.
const TRIES: usize = 6;
/// Bundles that are held in memory at once. More requests wait with their body unread.
const UPLOADS: usize = 2;

/// A bundle that was checked, as far as that is done without git.
pub struct Upload<'a> {
    pub namespace: &'a str,
    pub project: &'a str,
    pub person: &'a str,
    pub query: &'a SyncQuery,
    pub bundle: &'a [u8],
}

/// Why a working tree was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("it does not exist; see kubectl get yoiprojects")]
    NotFound,
    #[error("it takes no working trees; an administrator lets it: set spec.source.git.sync to {{}}")]
    TakesNone,
    #[error("a newer state of machine {machine} is there, commit {commit}: say it again, and what is on the disk by then counts")]
    Newer { machine: String, commit: String },
    #[error("nothing is known any more of what machine {0} sent before: say it again")]
    Forgotten(String),
    #[error("{MAX_BUNDLES} states that came before are still kept: wait until the operator has deleted those that no tree is made from")]
    Full,
    #[error("failed to write its status: others wrote it {TRIES} times meanwhile")]
    Contended,
    #[error("failed to {operation}")]
    Api { operation: &'static str, source: kube::Error },
    #[error("failed to {operation} within {}", crate::seconds(*.within))]
    TimedOut { operation: &'static str, within: Duration },
}

/// Keeps what people send.
pub struct SyncStore {
    client: Client,
    deadline: Duration,
    uploads: Semaphore,
}

impl SyncStore {
    pub fn new(client: Client, deadline: Duration) -> Self {
        SyncStore { client, deadline, uploads: Semaphore::new(UPLOADS) }
    }

    /// Waits until another body may be read. What this returns is held while the body is.
    pub async fn begin(&self) -> Option<SemaphorePermit<'_>> {
        self.uploads.acquire().await.ok()
    }

    /// Stores it, and lets it count. Returns when it came, RFC 3339. What counts already is not stored again.
    ///
    /// # Errors
    /// See [`SyncError`]; it does not count then.
    pub async fn take(&self, upload: &Upload<'_>) -> Result<String, SyncError> {
        let api = Api::<YoiProject>::namespaced(self.client.clone(), upload.namespace);
        let mut stored: Option<StoredBundle> = None;
        for _ in 0..TRIES {
            let project = self.ask("read the project", api.get_opt(upload.project)).await?.ok_or(SyncError::NotFound)?;
            if let Some(received_at) = check(&project, upload.query)? {
                return Ok(received_at);
            }
            let bundle = match &stored {
                Some(bundle) => bundle.clone(),
                None => stored.insert(self.store(&project, upload).await?).clone(),
            };
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let sync = desired(&project, upload, bundle, &now);
            let params = PatchParams::apply(field_manager::GATEWAY).force();
            match self
                .ask("write the project's status", api.patch_status(upload.project, &params, &Patch::Apply(&patch(&project, &sync))))
                .await
            {
                Ok(_) => return Ok(now),
                Err(SyncError::Api { source: kube::Error::Api(status), .. }) if status.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        Err(SyncError::Contended)
    }

    async fn store(&self, project: &YoiProject, upload: &Upload<'_>) -> Result<StoredBundle, SyncError> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), upload.namespace);
        // A name of its own for each try: what an earlier one has left is not trusted.
        let id = uuid::Uuid::now_v7().simple();
        let mut parts = Vec::new();
        for (number, bytes) in upload.bundle.chunks(PART_BYTES).enumerate() {
            let name = format!("{}{id}-{number}", part_prefix(upload.project));
            let map = part(project, upload.project, &name, bytes);
            let made = self.ask("store a part of the bundle", api.create(&PostParams::default(), &map)).await?;
            parts.push(StoredPart { name, uid: made.metadata.uid.unwrap_or_default() });
        }
        let SyncQuery { commit, sha256, .. } = upload.query;
        let bytes = i64::try_from(upload.bundle.len()).unwrap_or(i64::MAX);
        Ok(StoredBundle { commit: commit.clone(), sha256: sha256.clone(), bytes, parts })
    }

    async fn ask<T>(&self, operation: &'static str, request: impl Future<Output = kube::Result<T>>) -> Result<T, SyncError> {
        let answer = timeout(self.deadline, request).await.map_err(|_| SyncError::TimedOut { operation, within: self.deadline })?;
        answer.map_err(|source| SyncError::Api { operation, source })
    }
}

/// Whether the project takes this state. `Some`: it came already, at this time.
fn check(project: &YoiProject, query: &SyncQuery) -> Result<Option<String>, SyncError> {
    if project.spec.source.git.as_ref().is_none_or(|git| git.sync.is_none()) {
        return Err(SyncError::TakesNone);
    }
    let Some(sync) = project.status.as_ref().and_then(|status| status.sync.as_deref()) else {
        return match &query.previous {
            None => Ok(None),
            // Somebody has deleted the project meanwhile, and made another one.
            Some(_) => Err(SyncError::Forgotten(query.machine.clone())),
        };
    };
    if let Some(last) = sync.last.as_ref().filter(|last| last.machine == query.machine && last.commit == query.commit) {
        return Ok(Some(last.received_at.clone()));
    }
    let known = sync.machines.iter().find(|known| known.machine == query.machine).map(|known| &known.commit);
    if known != query.previous.as_ref() {
        let machine = query.machine.clone();
        return Err(match known {
            Some(commit) => SyncError::Newer { machine, commit: commit.clone() },
            None => SyncError::Forgotten(machine),
        });
    }
    let kept = sync.bundles.iter().filter(|bundle| !sync.deleted.contains(&bundle.commit)).count();
    if kept >= MAX_BUNDLES { Err(SyncError::Full) } else { Ok(None) }
}

/// The gateway's fields with this state as the last one.
fn desired(project: &YoiProject, upload: &Upload<'_>, bundle: StoredBundle, now: &str) -> SyncStatus {
    let SyncQuery { machine, commit, captured_at, .. } = upload.query;
    let before = project.status.as_ref().and_then(|status| status.sync.as_deref().cloned()).unwrap_or_default();
    let mut machines: Vec<SyncedMachine> = before.machines.into_iter().filter(|known| known.machine != *machine).collect();
    machines.push(SyncedMachine { machine: machine.clone(), commit: commit.clone() });
    let forgotten = machines.len().saturating_sub(MAX_MACHINES);
    let mut bundles: Vec<StoredBundle> = before.bundles.into_iter().filter(|kept| !before.deleted.contains(&kept.commit)).collect();
    bundles.retain(|kept| kept.commit != bundle.commit);
    bundles.push(bundle);
    let last = SyncedTree {
        machine: machine.clone(),
        commit: commit.clone(),
        captured_at: captured_at.clone(),
        received_at: now.to_owned(),
        person: upload.person.to_owned(),
    };
    SyncStatus { last: Some(last), machines: machines.split_off(forgotten), bundles, deleted: Vec::new() }
}

fn patch(project: &YoiProject, sync: &SyncStatus) -> serde_json::Value {
    let SyncStatus { last, machines, bundles, deleted: _ } = sync;
    json!({
        "apiVersion": "yoi.dev/v1alpha1",
        "kind": "YoiProject",
        "metadata": {"name": project.metadata.name, "resourceVersion": project.metadata.resource_version},
        "status": {"sync": {"last": last, "machines": machines, "bundles": bundles}},
    })
}

/// A part goes with its project, whatever the operator does.
fn part(project: &YoiProject, project_name: &str, name: &str, bytes: &[u8]) -> ConfigMap {
    let owner = OwnerReference {
        api_version: "yoi.dev/v1alpha1".to_owned(),
        kind: "YoiProject".to_owned(),
        name: project_name.to_owned(),
        uid: project.metadata.uid.clone().unwrap_or_default(),
        ..OwnerReference::default()
    };
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: project.metadata.namespace.clone(),
            labels: Some(BTreeMap::from([(label::PROJECT.to_owned(), project_name.to_owned())])),
            owner_references: Some(vec![owner]),
            ..ObjectMeta::default()
        },
        binary_data: Some(BTreeMap::from([(PART_KEY.to_owned(), ByteString(bytes.to_vec()))])),
        immutable: Some(true),
        ..ConfigMap::default()
    }
}
