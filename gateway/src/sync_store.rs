//! Keeps the working trees that people send: each bundle in parts in ConfigMaps of the project, and what came last in the project's status.
//!
//! # Guarantees
//! - The status names a state only once all parts of its bundle are stored. Parts are never changed.
//! - Parts of a bundle that was cut stand in the status by the bundle's digest, and only the same bundle of the same machine goes on with them.
//! - A state of a machine counts only if the sender knew the one before: of two that were captured at once, the one that comes second is refused.
//!
//! # Caveats
//! The gateway deletes nothing: the operator deletes the bundles that the status names and no tree needs, those that were given up among them. A part that
//! was stored while the status could not be written, or twice at once, stays until the project goes. The digest of the whole is for the populator to check:
//! a gateway has only one part in its hands.

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
    MAX_BUNDLES, MAX_MACHINES, MAX_UPLOADS, PART_KEY, StoredBundle, StoredPart, SyncStatus, SyncUpload, SyncedMachine, SyncedTree,
    part_count, part_prefix,
};
use yoi_wire::sync::SyncQuery;

/// How often a write is tried while others write the status.
const TRIES: usize = 6;
/// Parts that are held in memory at once. More requests wait with their body unread.
const UPLOADS: usize = 8;

/// A part of a bundle that was checked, as far as that is done without git.
pub struct Upload<'a> {
    pub namespace: &'a str,
    pub project: &'a str,
    pub person: &'a str,
    pub query: &'a SyncQuery,
    pub part: &'a [u8],
}

/// What is there of a bundle.
#[derive(Debug, PartialEq, Eq)]
pub enum Taken {
    /// So many parts, and others are missing.
    Parts(usize),
    /// All of it: the state counts since this time, RFC 3339.
    All(String),
}

/// Why a working tree was not taken.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    #[error("it does not exist; see kubectl get yoiprojects")]
    NotFound,
    #[error(
        "it takes no working trees; an administrator lets it: set spec.source.git.sync, or spec.source.empty.sync where there is no repository, to {{}}"
    )]
    TakesNone,
    #[error("a newer state of machine {machine} is there, commit {commit}: say it again, and what is on the disk by then counts")]
    Newer { machine: String, commit: String },
    #[error("nothing is known any more of what machine {0} sent before: say it again")]
    Forgotten(String),
    #[error("{MAX_BUNDLES} states that came before are still kept: wait until the operator has deleted those that no tree is made from")]
    Full,
    #[error("of this bundle {there} parts are there, and the next one is missing")]
    PartMissing { there: usize },
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

    /// Stores it, and lets the state count once it is whole. What is there already is not stored again.
    ///
    /// # Errors
    /// See [`SyncError`]; nothing of it is listed then.
    pub async fn take(&self, upload: &Upload<'_>) -> Result<Taken, SyncError> {
        let api = Api::<YoiProject>::namespaced(self.client.clone(), upload.namespace);
        let mut stored: Option<StoredPart> = None;
        for _ in 0..TRIES {
            let project = self.ask("read the project", api.get_opt(upload.project)).await?.ok_or(SyncError::NotFound)?;
            if let Some(received_at) = check(&project, upload.query)? {
                return Ok(Taken::All(received_at));
            }
            let begun = begun(&project, upload.query);
            let there = begun.parts.len();
            match upload.query.part {
                part if part < there => return Ok(Taken::Parts(there)),
                part if part > there => return Err(SyncError::PartMissing { there }),
                _ => {}
            }
            let part = match &stored {
                Some(part) => part.clone(),
                None => stored.insert(self.store(&project, upload).await?).clone(),
            };
            let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            let (sync, taken) = desired(&project, upload, begun, part, &now);
            let params = PatchParams::apply(field_manager::GATEWAY).force();
            match self
                .ask("write the project's status", api.patch_status(upload.project, &params, &Patch::Apply(&patch(&project, &sync))))
                .await
            {
                Ok(_) => return Ok(taken),
                Err(SyncError::Api { source: kube::Error::Api(status), .. }) if status.is_conflict() => {}
                Err(error) => return Err(error),
            }
        }
        Err(SyncError::Contended)
    }

    async fn store(&self, project: &YoiProject, upload: &Upload<'_>) -> Result<StoredPart, SyncError> {
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), upload.namespace);
        // A name of its own for each try: what an earlier one has left is not trusted.
        let id = uuid::Uuid::now_v7().simple();
        let name = format!("{}{id}-{}", part_prefix(upload.project), upload.query.part);
        let map = part(project, upload.project, &name, upload.part);
        let made = self.ask("store a part of the bundle", api.create(&PostParams::default(), &map)).await?;
        Ok(StoredPart { name, uid: made.metadata.uid.unwrap_or_default() })
    }

    async fn ask<T>(&self, operation: &'static str, request: impl Future<Output = kube::Result<T>>) -> Result<T, SyncError> {
        let answer = timeout(self.deadline, request).await.map_err(|_| SyncError::TimedOut { operation, within: self.deadline })?;
        answer.map_err(|source| SyncError::Api { operation, source })
    }
}

/// Whether the project takes this state. `Some`: it came already, at this time.
fn check(project: &YoiProject, query: &SyncQuery) -> Result<Option<String>, SyncError> {
    if !project.spec.source.takes_trees() {
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

/// What is there of the bundle that a part is of.
fn begun(project: &YoiProject, query: &SyncQuery) -> StoredBundle {
    let SyncQuery { machine, commit, sha256, bytes, .. } = query;
    let bytes = i64::try_from(*bytes).unwrap_or(i64::MAX);
    let uploads = project.status.as_ref().and_then(|status| status.sync.as_deref()).map(|sync| sync.uploads.as_slice()).unwrap_or_default();
    let is_it = |upload: &&SyncUpload| {
        let StoredBundle { commit: of, sha256: digest, bytes: length, parts: _ } = &upload.bundle;
        upload.machine == *machine && of == commit && digest == sha256 && *length == bytes
    };
    let none = || StoredBundle { commit: commit.clone(), sha256: sha256.clone(), bytes, parts: Vec::new() };
    uploads.iter().find(is_it).map_or_else(none, |upload| upload.bundle.clone())
}

/// The gateway's fields with one part more of what has `begun`: with the last one, its state is the last one.
fn desired(project: &YoiProject, upload: &Upload<'_>, begun: StoredBundle, part: StoredPart, now: &str) -> (SyncStatus, Taken) {
    let SyncQuery { machine, commit, captured_at, bytes, .. } = upload.query;
    let SyncStatus { mut last, mut machines, bundles, uploads, deleted } =
        project.status.as_ref().and_then(|status| status.sync.as_deref().cloned()).unwrap_or_default();
    let mut bundles: Vec<StoredBundle> = bundles.into_iter().filter(|kept| !deleted.contains(&kept.commit)).collect();
    let is_other =
        |other: &SyncUpload| other.machine == *machine && (other.bundle.commit != begun.commit || other.bundle.sha256 != begun.sha256);
    // Another state of this machine is sent in their place.
    let (mut given_up, others): (Vec<SyncUpload>, Vec<SyncUpload>) = uploads.into_iter().partition(is_other);
    let mut uploads: Vec<SyncUpload> = others.into_iter().filter(|other| other.machine != *machine).collect();
    let mut bundle = begun;
    bundle.parts.push(part);
    let there = bundle.parts.len();
    let taken = if there == part_count(*bytes) {
        machines.retain(|known| known.machine != *machine);
        machines.push(SyncedMachine { machine: machine.clone(), commit: commit.clone() });
        machines = machines.split_off(machines.len().saturating_sub(MAX_MACHINES));
        bundles.retain(|kept| kept.commit != bundle.commit);
        bundles.push(bundle);
        last = Some(SyncedTree {
            machine: machine.clone(),
            commit: commit.clone(),
            captured_at: captured_at.clone(),
            received_at: now.to_owned(),
            person: upload.person.to_owned(),
        });
        Taken::All(now.to_owned())
    } else {
        uploads.push(SyncUpload { machine: machine.clone(), bundle });
        let too_many = uploads.len().saturating_sub(MAX_UPLOADS);
        given_up.extend(uploads.drain(..too_many));
        Taken::Parts(there)
    };
    // The operator deletes a bundle that no tree needs. One of a commit that is listed already would pass for that one.
    for SyncUpload { machine: _, bundle } in given_up {
        if bundles.len() < MAX_BUNDLES && bundles.iter().all(|kept| kept.commit != bundle.commit) {
            bundles.push(bundle);
        }
    }
    (SyncStatus { last, machines, bundles, uploads, deleted: Vec::new() }, taken)
}

fn patch(project: &YoiProject, sync: &SyncStatus) -> serde_json::Value {
    json!({
        "apiVersion": "yoi.dev/v1alpha1",
        "kind": "YoiProject",
        "metadata": {"name": project.metadata.name, "resourceVersion": project.metadata.resource_version},
        // Without the operator's field, which is empty here.
        "status": {"sync": sync},
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
