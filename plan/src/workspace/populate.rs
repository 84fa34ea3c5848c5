//! Filling a base: one restricted Pod at a time, tried again by a new Pod after a pause.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, ContainerStateTerminated, EnvVar, Pod, PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{ConditionValue, find, is_true};
use yoi_crds::name::label;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{GitSource, TreeOwner};

use crate::meta::{annotation, deleting, name, owner_reference, target, uid};
use crate::names;
use crate::restricted;
use crate::settings::Settings;
use crate::step::{Kind, Step};

/// Number of the attempt that a populator Pod is.
pub const ATTEMPT: &str = "yoi.dev/attempt";
const SCRIPT: &str = include_str!("populate.sh");
const CONTAINER: &str = "populate";
/// git's own words, as many as a person reads.
const MOST_WORDS: usize = 500;

pub(crate) struct PopulatePlan {
    pub steps: Vec<Step>,
    pub populated: ConditionValue,
    /// UID of the Pod that may mount the base now.
    pub pod_uid: Option<String>,
    pub requeue_after: Option<Duration>,
}

pub(crate) struct Filling<'a> {
    pub base: &'a AgentWorkspace,
    pub git: &'a GitSource,
    pub owner: TreeOwner,
    /// The hostname label's value on the base's node. None while there is no such node: a Pod would be bound to a name that may not be its own
    /// when it comes back, and wait for ever.
    pub hostname: Option<String>,
    pub revision: Option<String>,
    pub settings: &'a Settings,
    pub now: jiff::Timestamp,
}

impl Filling<'_> {
    /// `pods`: the populators of this base that still exist. Called while the base is provisioned and not sealed.
    #[must_use]
    pub(crate) fn plan(&self, pods: &[Arc<Pod>]) -> PopulatePlan {
        let before = self.base.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        if is_true(before, condition::POPULATED) {
            // The Pod may be gone by now; what it did stands.
            return self.told(Vec::new(), filled(), current(pods), None);
        }
        // One writer: whoever still may write goes on being the one, until it is done or gone.
        let writer = pods.iter().filter(|p| !matches!(phase(p), Some("Succeeded" | "Failed"))).min_by_key(|p| attempt(p)).map(Arc::as_ref);
        let Some(pod) = current(pods).filter(|p| writer.is_none_or(|w| uid(&w.metadata) == uid(&p.metadata))) else {
            if let Some(writer) = writer {
                let steps = pods.iter().filter(|p| !deleting(&p.metadata)).map(|p| Step::Delete(target(Kind::Pod, &p.metadata))).collect();
                return self.told(
                    steps,
                    ConditionValue::no(reason::POPULATING, self.words("is about to be filled anew from")),
                    Some(writer),
                    None,
                );
            }
            return self.told(
                self.ensure(1).into_iter().collect(),
                ConditionValue::no(reason::POPULATING, self.words("is being filled from")),
                None,
                None,
            );
        };
        // Two exist only between the making of a new one and the removal of the failed one before it.
        let steps: Vec<Step> = pods
            .iter()
            .filter(|p| attempt(p) < attempt(pod) && !deleting(&p.metadata))
            .map(|p| Step::Delete(target(Kind::Pod, &p.metadata)))
            .collect();
        match phase(pod) {
            Some("Succeeded") => self.told(steps, filled(), Some(pod), None),
            Some("Failed") => self.failed(steps, pod),
            _ => {
                let failed = find(before, condition::POPULATED).filter(|c| c.reason == reason::POPULATE_FAILED);
                let populated = match failed {
                    // Until the next attempt says otherwise, people want to read why the last one failed.
                    Some(c) => ConditionValue::no(reason::POPULATE_FAILED, c.message.clone()),
                    None => ConditionValue::no(reason::POPULATING, self.words("is being filled from")),
                };
                self.told(steps, populated, Some(pod), None)
            }
        }
    }

    fn failed(&self, mut steps: Vec<Step>, pod: &Pod) -> PopulatePlan {
        let populated = ConditionValue::no(
            reason::POPULATE_FAILED,
            format!("{}: {}", self.words("could not be filled from"), last_words(pod, &self.git.url)),
        );
        let tried = attempt(pod);
        let ended = terminated(pod).and_then(|t| t.finished_at.as_ref()).or(pod.metadata.creation_timestamp.as_ref()).map(|t| t.0);
        let due = ended.map_or(self.now, |at| at.saturating_add(pause(tried)).unwrap_or(self.now));
        let left = Duration::try_from(due.duration_since(self.now)).unwrap_or(Duration::ZERO);
        if left > Duration::ZERO {
            return self.told(steps, populated, Some(pod), Some(left));
        }
        // The new one first: its number is made from the old one's.
        steps.extend(self.ensure(tried + 1));
        self.told(steps, populated, Some(pod), None)
    }

    fn told(&self, steps: Vec<Step>, populated: ConditionValue, pod: Option<&Pod>, requeue_after: Option<Duration>) -> PopulatePlan {
        PopulatePlan { steps, populated, pod_uid: pod.map(|p| uid(&p.metadata).to_owned()), requeue_after }
    }

    fn words(&self, what: &str) -> String {
        format!("the base {what} {}", without_user(&self.git.url))
    }

    fn ensure(&self, attempt: u32) -> Option<Step> {
        let hostname = self.hostname.clone()?;
        Some(Step::EnsurePod(Box::new(self.pod(attempt, hostname))))
    }

    fn pod(&self, attempt: u32, hostname: String) -> Pod {
        let base = &self.base.metadata;
        let plain = |key: &str, value: &str| EnvVar { name: key.to_owned(), value: Some(value.to_owned()), value_from: None };
        let path = self.base.spec.path.as_str();
        let labels = BTreeMap::from([
            (label::ROLE.to_owned(), label::ROLE_POPULATOR.to_owned()),
            (label::WORKSPACE.to_owned(), name(base).to_owned()),
        ]);
        let container = Container {
            name: CONTAINER.to_owned(),
            image: Some(self.settings.populator_image.clone()),
            image_pull_policy: self.settings.image_pull_policy.map(restricted::pull_policy),
            command: Some(["/bin/sh", "-eu", "-c", SCRIPT].map(str::to_owned).to_vec()),
            env: Some(vec![
                plain("URL", &self.git.url),
                plain("REF", self.git.ref_.as_deref().unwrap_or_default()),
                plain("REVISION", self.revision.as_deref().unwrap_or_default()),
                plain("DEST", path),
            ]),
            working_dir: Some("/".to_owned()),
            resources: Some(ResourceRequirements {
                requests: Some(BTreeMap::from([
                    ("cpu".to_owned(), Quantity("50m".to_owned())),
                    ("memory".to_owned(), Quantity("64Mi".to_owned())),
                ])),
                ..ResourceRequirements::default()
            }),
            security_context: Some(restricted::container_security()),
            termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
            volume_mounts: Some(vec![restricted::mount("tree", path, false), restricted::mount("tmp", "/tmp", false)]),
            ..Container::default()
        };
        Pod {
            metadata: ObjectMeta {
                name: Some(names::populator(name(base), attempt)),
                namespace: base.namespace.clone(),
                labels: Some(labels),
                annotations: Some(BTreeMap::from([(ATTEMPT.to_owned(), attempt.to_string())])),
                owner_references: Some(vec![owner_reference("AgentWorkspace", base)]),
                ..ObjectMeta::default()
            },
            spec: Some(PodSpec {
                affinity: Some(restricted::only_on(vec![hostname])),
                automount_service_account_token: Some(false),
                enable_service_links: Some(false),
                containers: vec![container],
                restart_policy: Some("Never".to_owned()),
                security_context: Some(restricted::pod_security(self.owner)),
                termination_grace_period_seconds: Some(5),
                active_deadline_seconds: Some(3600),
                volumes: Some(vec![restricted::tree_volume(uid(base), false), restricted::empty("tmp")]),
                ..PodSpec::default()
            }),
            status: None,
        }
    }
}

/// User and password of a URL, which may stand before its host.
fn user_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let host = rest.split('/').next().unwrap_or_default();
    host.rsplit_once('@').map(|(user, _)| user)
}

/// The URL as people may read it in conditions and Events.
fn without_user(url: &str) -> String {
    match user_of(url) {
        Some(user) => url.replacen(&format!("{user}@"), "", 1),
        None => url.to_owned(),
    }
}

pub(crate) fn filled() -> ConditionValue {
    ConditionValue::yes(reason::FILLED, "the source's content is in the base")
}

/// 10 s, doubled with each attempt, at most 10 min.
fn pause(attempt: u32) -> Duration {
    Duration::from_secs((10_u64 << attempt.saturating_sub(1).min(6)).min(600))
}

fn attempt(pod: &Pod) -> u32 {
    annotation(&pod.metadata, ATTEMPT).and_then(|a| a.parse().ok()).unwrap_or(0)
}

fn current(pods: &[Arc<Pod>]) -> Option<&Pod> {
    pods.iter().filter(|p| !deleting(&p.metadata)).max_by_key(|p| attempt(p)).map(Arc::as_ref)
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

fn terminated(pod: &Pod) -> Option<&ContainerStateTerminated> {
    pod.status.as_ref()?.container_statuses.as_ref()?.iter().find(|c| c.name == CONTAINER)?.state.as_ref()?.terminated.as_ref()
}

/// The end of what git said, where its errors stand; else why Kubernetes ended the Pod. Without the credentials that the URL may hold.
fn last_words(pod: &Pod, url: &str) -> String {
    let said = terminated(pod).and_then(|t| t.message.as_deref()).map(str::trim).filter(|m| !m.is_empty());
    let words = match said {
        Some(said) => said.split_whitespace().collect::<Vec<_>>().join(" "),
        None => {
            let status = pod.status.as_ref();
            let why = status.and_then(|s| s.message.clone().or_else(|| s.reason.clone()));
            let code = terminated(pod).map(|t| format!("its Pod ended with exit code {}", t.exit_code));
            why.or(code).unwrap_or_else(|| "its Pod failed without a word".to_owned())
        }
    };
    let words = match user_of(url).filter(|user| !user.is_empty()) {
        Some(user) => words.replace(&format!("{user}@"), ""),
        None => words,
    };
    let count = words.chars().count();
    words.chars().skip(count.saturating_sub(MOST_WORDS)).collect()
}
