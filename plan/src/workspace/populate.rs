//! Filling a base: one restricted Pod at a time. When it fails, another one tries again after a pause.

use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{GitSource, TreeOwner};

use super::populate_pod::{self, PodParts};
use super::workspace_input::{Source, WorkspaceInput};
use crate::duration::time_left;
use crate::meta::annotation;
use crate::observed_pod::{ContainerState, ObservedPod, PodPhase, Terminated};
use crate::settings::Settings;
use crate::step::Step;
use crate::stored::{Stored, delete_all};
use crate::tree::base_set::ObservedBase;

/// Number of the attempt that a populator Pod is.
pub const ATTEMPT: &str = "yoi.dev/attempt";
pub(super) const CONTAINER: &str = "populate";
/// How long the Pod may wait for room on its node, before the base counts as stuck.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);
/// How long the Pod may wait on its node for its image and its volumes, before the base counts as stuck.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Characters of git's output that the condition's message holds: as many as a person reads.
const MAX_FAILURE_CHARS: usize = 500;

/// What to make and delete, the value of the condition Populated, and which Pod may mount the base.
pub(super) struct PopulatePlan {
    pub steps: Vec<Step>,
    pub populated: ConditionValue,
    /// UID of the Pod that may mount the base now.
    pub pod_uid: Option<String>,
    pub requeue_after: Option<Duration>,
}

/// The plan of a base that is provisioned.
#[must_use]
pub(super) fn plan(input: &WorkspaceInput<'_>, base: ObservedBase<'_>, settings: &Settings, now: jiff::Timestamp) -> PopulatePlan {
    let git = match &input.source {
        Source::Git(git) => *git,
        // The node takes a folder of its own when it makes the tree.
        Source::Host(_) | Source::Project { .. } | Source::Fork { .. } | Source::Empty => {
            return PopulatePlan::done_plan(Vec::new(), None, None);
        }
    };
    if base.workspace.is_true(condition::SEALED) {
        return PopulatePlan::done_plan(delete_all(input.populators.iter().copied()), None, git.depth);
    }
    let context = PopulateContext {
        base: base.workspace,
        git,
        owner: input.owner(),
        node: input.node_name.filter(|node| input.nodes.exists(node)),
        follows_consumer: base.follows_consumer(),
        tolerations: input.project_tolerations(),
        revision: base.pinned_revision(&input.bases),
        settings,
        now,
    };
    let pods: Vec<Populator<'_>> = input.populators.iter().copied().map(Populator::new).collect();
    context.plan(&pods)
}

impl PopulatePlan {
    /// `depth` is how many commits of the history are there; all of them when absent.
    fn done_plan(steps: Vec<Step>, pod: Option<Populator<'_>>, depth: Option<i64>) -> Self {
        let history = depth.map(|depth| format!(", with a history of depth {depth}")).unwrap_or_default();
        Self::new(steps, ConditionValue::yes(reason::FILLED, format!("the source's content is in the base{history}")), pod)
    }

    fn new(steps: Vec<Step>, populated: ConditionValue, pod: Option<Populator<'_>>) -> Self {
        PopulatePlan { steps, populated, pod_uid: pod.map(|p| p.pod.uid().as_str().to_owned()), requeue_after: None }
    }
}

/// A Pod that fills, or has filled, the base.
#[derive(Clone, Copy)]
struct Populator<'a> {
    pod: Stored<'a, ObservedPod>,
    /// From 1; 0 for a Pod without a number.
    attempt: u32,
    phase: PodPhase,
}

impl<'a> Populator<'a> {
    fn new(pod: Stored<'a, ObservedPod>) -> Self {
        let attempt = annotation(pod.meta(), ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(0);
        Populator { pod, attempt, phase: pod.phase }
    }

    /// It runs, or will.
    fn may_write(self) -> bool {
        !matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }
}

/// What a populator Pod is made from.
struct PopulateContext<'a> {
    base: Stored<'a, AgentWorkspace>,
    git: &'a GitSource,
    owner: TreeOwner,
    /// The base's node; `None` while it does not exist.
    node: Option<&'a str>,
    follows_consumer: bool,
    /// Of the project's agents.
    tolerations: &'a [Toleration],
    revision: Option<String>,
    settings: &'a Settings,
    now: jiff::Timestamp,
}

impl PopulateContext<'_> {
    /// `pods` are the populators of this base that still exist.
    fn plan(&self, pods: &[Populator<'_>]) -> PopulatePlan {
        let newest = pods.iter().copied().filter(|p| !p.pod.is_deleting()).max_by_key(|p| p.attempt);
        if self.base.is_true(condition::POPULATED) {
            // The Pod may be gone by now; the base is filled all the same.
            return PopulatePlan::done_plan(Vec::new(), newest, self.git.depth);
        }
        // There is one writer: a Pod that may still write stays the one that may mount the base until it is done or gone.
        let writer = pods.iter().copied().filter(|p| p.may_write()).min_by_key(|p| p.attempt);
        match (newest, writer) {
            (Some(newest), None) => self.follow(newest, pods),
            (Some(newest), Some(writer)) if writer.pod.uid() == newest.pod.uid() => self.follow(newest, pods),
            (_, Some(writer)) => PopulatePlan::new(
                delete_all(pods.iter().map(|p| p.pod)),
                ConditionValue::no(reason::POPULATING, self.sentence("is about to be filled anew from")),
                Some(writer),
            ),
            (None, None) => PopulatePlan::new(
                self.ensure(1).into_iter().collect(),
                ConditionValue::no(reason::POPULATING, self.sentence("is being filled from")),
                None,
            ),
        }
    }

    /// The plan while `current` fills the base, or after it has tried to.
    fn follow(&self, current: Populator<'_>, pods: &[Populator<'_>]) -> PopulatePlan {
        // A former attempt exists only between the making of its successor and its own removal.
        let steps = delete_all(pods.iter().filter(|p| p.attempt < current.attempt).map(|p| p.pod));
        match current.phase {
            PodPhase::Succeeded => PopulatePlan::done_plan(steps, Some(current), self.git.depth),
            PodPhase::Failed => self.failed_plan(steps, current),
            PodPhase::Running | PodPhase::Other => {
                let waits = waits_on_node(current.pod.get());
                let left = waits.as_ref().map(|waits| time_left(waits.since, waits.patience, self.now));
                let last_failure = find(self.base.conditions(), condition::POPULATED).filter(|c| c.reason == reason::POPULATE_FAILED);
                let populated = match (waits, left, last_failure) {
                    (Some(waits), Some(None), _) => {
                        let message = format!("Pod {} cannot fill the base: {}", current.pod.name(), waits.why);
                        ConditionValue::no(reason::POPULATOR_NOT_RUNNING, message)
                    }
                    // Until this attempt ends, people want to read why the last one failed.
                    (_, _, Some(c)) => ConditionValue::no(reason::POPULATE_FAILED, c.message.clone()),
                    (_, _, None) => ConditionValue::no(reason::POPULATING, self.sentence("is being filled from")),
                };
                PopulatePlan { requeue_after: left.flatten(), ..PopulatePlan::new(steps, populated, Some(current)) }
            }
        }
    }

    fn failed_plan(&self, mut steps: Vec<Step>, failed: Populator<'_>) -> PopulatePlan {
        let pod = failed.pod.get();
        let message = format!("{}: {}", self.sentence("could not be filled from"), failure(pod, CONTAINER, &self.git.url));
        let populated = ConditionValue::no(reason::POPULATE_FAILED, message);
        let tried = failed.attempt;
        let ended = terminated(pod).and_then(|t| t.finished_at).or(pod.metadata.creation_timestamp.as_ref().map(|t| t.0));
        let due = ended.map_or(self.now, |at| at.saturating_add(pause(tried)).unwrap_or(self.now));
        let left = Duration::try_from(due.duration_since(self.now)).unwrap_or(Duration::ZERO);
        if left > Duration::ZERO {
            return PopulatePlan { requeue_after: Some(left), ..PopulatePlan::new(steps, populated, Some(failed)) };
        }
        // The failed Pod stays until the new one exists: its number gives the new one's.
        steps.extend(self.ensure(tried + 1));
        PopulatePlan::new(steps, populated, Some(failed))
    }

    /// "the base WHAT URL", without the URL's credentials.
    fn sentence(&self, what: &str) -> String {
        format!("the base {what} {}", without_user(&self.git.url))
    }

    fn ensure(&self, attempt: u32) -> Option<Step> {
        let parts = PodParts {
            base: self.base,
            git: self.git,
            owner: self.owner,
            node: self.node?,
            attempt,
            revision: self.revision.as_deref(),
            tolerations: self.tolerations(),
            settings: self.settings,
        };
        Some(Step::EnsurePod(Box::new(populate_pod::pod(parts))))
    }

    /// Where a consumer is already, its Pod runs whatever the taints. Elsewhere the agents of the project are expected.
    fn tolerations(&self) -> Option<Vec<Toleration>> {
        if self.follows_consumer {
            return Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }]);
        }
        (!self.tolerations.is_empty()).then(|| self.tolerations.to_vec())
    }
}

/// User and password of a URL, which may stand before its host.
fn user_of(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let host = rest.split('/').next().unwrap_or_default();
    host.rsplit_once('@').map(|(user, _)| user)
}

/// The URL as people may read it in conditions and Events.
pub(crate) fn without_user(url: &str) -> String {
    match user_of(url) {
        Some(user) => url.replacen(&format!("{user}@"), "", 1),
        None => url.to_owned(),
    }
}

/// How long to wait after this attempt: 10 s, doubled with each attempt, at most 10 min.
fn pause(attempt: u32) -> Duration {
    Duration::from_secs((10_u64 << attempt.saturating_sub(1).min(6)).min(600))
}

/// What a Pod waits for that has not started.
struct Waits {
    since: jiff::Timestamp,
    patience: Duration,
    why: String,
}

/// `None` for a Pod that runs, or of which nothing is known yet.
fn waits_on_node(pod: &ObservedPod) -> Option<Waits> {
    if let Some(unscheduled) = &pod.unscheduled {
        let why = unscheduled.message.clone().unwrap_or_else(|| "no node fits".to_owned());
        return Some(Waits { since: unscheduled.no_node_since?, patience: ROOM_PATIENCE, why });
    }
    let why = match pod.container(CONTAINER) {
        Some(ContainerState::Running | ContainerState::Terminated(_)) => return None,
        Some(ContainerState::Waiting { reason, message }) => {
            let reason = reason.as_deref().unwrap_or("its container waits");
            message.as_ref().map_or_else(|| reason.to_owned(), |message| format!("{reason}: {message}"))
        }
        None => "the kubelet has not begun with it".to_owned(),
    };
    Some(Waits { since: pod.scheduled_at?, patience: START_PATIENCE, why })
}

fn terminated(pod: &ObservedPod) -> Option<&Terminated> {
    pod.terminated(CONTAINER)
}

/// The end of git's output, where its errors stand; else why Kubernetes ended the Pod. Without the credentials that the URL may hold.
pub(crate) fn failure(pod: &ObservedPod, container: &str, url: &str) -> String {
    let output = pod.terminated(container).and_then(|t| t.message.as_deref()).map(str::trim).filter(|m| !m.is_empty());
    let text = match output {
        Some(output) => output.split_whitespace().collect::<Vec<_>>().join(" "),
        None => {
            let why = pod.message.clone().or_else(|| pod.reason.clone());
            let code = pod.terminated(container).map(|t| format!("its Pod ended with exit code {}", t.exit_code));
            why.or(code).unwrap_or_else(|| "its Pod failed without a word".to_owned())
        }
    };
    let text = match user_of(url).filter(|user| !user.is_empty()) {
        Some(user) => text.replace(&format!("{user}@"), ""),
        None => text,
    };
    let count = text.chars().count();
    text.chars().skip(count.saturating_sub(MAX_FAILURE_CHARS)).collect()
}
