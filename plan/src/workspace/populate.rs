//! Filling a base, and preparing it: one restricted Pod at a time. When one fails, another one fills the base again after a pause.
//!
//! A run of `prepare` that was cut short leaves files that look finished: build tools go by their times. So each run begins in a base that was just filled
//! from nothing, and a base is sealed only as one whole run has left it. Populated becomes True after it: the node seals what is populated.

use std::time::Duration;

use k8s_openapi::api::core::v1::Toleration;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::{ConditionStatus, ConditionValue, find};
use yoi_crds::name::annotation::LOOK;
use yoi_crds::name::label;
use yoi_crds::pod::PodSettings;
use yoi_crds::prepare::Prepare;
use yoi_crds::reason::{self, condition};
use yoi_crds::source::{GitSource, TreeOwner};
use yoi_crds::workspace::OriginKind;

use super::populate_pod::{self, Content, PodParts};
use super::populate_report::{Filled, failure, waits_on_node, without_user};
use super::prepare::{self, PreparePod};
use super::workspace_input::{Source, WorkspaceInput};
use crate::conditions::format_time;
use crate::duration::time_left;
use crate::meta::{self, annotation};
use crate::observed_pod::{ObservedPod, PodPhase};
use crate::restricted;
use crate::settings::Settings;
use crate::step::Step;
use crate::stored::{Stored, delete_all};
use crate::tree::base_set::ObservedBase;

/// Number of the attempt to fill and prepare the base that a Pod is of.
pub const ATTEMPT: &str = "yoi.dev/attempt";
pub(super) const CONTAINER: &str = "populate";
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Begins what a message says of the next attempt.
const NEXT_TRY: &str = "; the next attempt is at ";
const PREPARING: &str = "the source's content is in the base, and prepare runs in it";

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
    let filling = match &input.source {
        Source::Git(git) => Filling::Git(git),
        Source::Empty if base.wanted_revision().is_some() => Filling::Synced,
        Source::Empty if base.prepare.is_some() => Filling::Empty,
        Source::Host(_) if base.prepare.is_some() => Filling::Taken,
        // The node takes a folder of its own when it makes the tree.
        Source::Host(_) | Source::Project { .. } | Source::Fork { .. } | Source::Empty => {
            let populated = ConditionValue::yes(reason::FILLED, "the source's content is in the base");
            return PopulatePlan::new(Vec::new(), populated, None);
        }
    };
    let context = PopulateContext {
        base: base.workspace,
        filling,
        prepare: base.prepare,
        agents: input.project_pods(),
        asked: input.project_of_base.and_then(|project| meta::annotation(project.meta(), LOOK)),
        project: input.project_of_base.map(Stored::name),
        owner: input.owner(),
        node: input.node_name.filter(|node| input.nodes.exists(node)),
        follows_consumer: base.follows_consumer(),
        // The branch may have moved on since another base of the same content was sealed.
        revision: base.wanted_revision().or_else(|| base.pinned_revision(&input.bases)),
        settings,
        now,
    };
    if base.workspace.is_true(condition::SEALED) {
        return context.done_plan(delete_all(input.populators.iter().copied()), None);
    }
    let pods: Vec<Populator<'_>> = input.populators.iter().copied().map(Populator::new).collect();
    context.plan(&pods)
}

impl PopulatePlan {
    fn new(steps: Vec<Step>, populated: ConditionValue, pod: Option<Populator<'_>>) -> Self {
        PopulatePlan { steps, populated, pod_uid: pod.map(|p| p.pod.uid().as_str().to_owned()), requeue_after: None }
    }
}

/// What a Pod does in the base, in the order of one attempt.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Work {
    Fill,
    Prepare,
}

impl Work {
    fn container(self) -> &'static str {
        match self {
            Work::Fill => CONTAINER,
            Work::Prepare => prepare::CONTAINER,
        }
    }
}

/// A Pod that fills or prepares the base, or has done so.
#[derive(Clone, Copy)]
struct Populator<'a> {
    pod: Stored<'a, ObservedPod>,
    /// From 1; 0 for a Pod without a number.
    attempt: u32,
    work: Work,
    phase: PodPhase,
}

impl<'a> Populator<'a> {
    fn new(pod: Stored<'a, ObservedPod>) -> Self {
        let attempt = annotation(pod.meta(), ATTEMPT).and_then(|text| text.parse().ok()).unwrap_or(0);
        let is_prepare = meta::label(pod.meta(), label::ROLE) == Some(label::ROLE_PREPARE);
        Populator { pod, attempt, work: if is_prepare { Work::Prepare } else { Work::Fill }, phase: pod.phase }
    }

    /// Its place among all that are made one after the other.
    fn turn(self) -> (u32, Work) {
        (self.attempt, self.work)
    }

    /// It runs, or will.
    fn may_write(self) -> bool {
        !matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }
}

/// How the base gets its source's content.
#[derive(Clone, Copy)]
enum Filling<'a> {
    /// A Pod fetches it.
    Git(&'a GitSource),
    /// A Pod makes it of nothing but what somebody has synced.
    Synced,
    /// A Pod removes what is there.
    Empty,
    /// The node took it from a folder of its own when it made the base: only a base that is made anew has it as it was.
    Taken,
}

/// What a populator Pod is made from.
struct PopulateContext<'a> {
    base: Stored<'a, AgentWorkspace>,
    filling: Filling<'a>,
    prepare: Option<&'a Prepare>,
    /// The settings of the project's agents.
    agents: Option<&'a PodSettings>,
    /// The last request of a person to look at the project's source. One that no Pod was made for yet ends a pause.
    asked: Option<&'a str>,
    /// The project whose source it is.
    project: Option<&'a str>,
    owner: TreeOwner,
    /// The base's node; `None` while it does not exist.
    node: Option<&'a str>,
    follows_consumer: bool,
    revision: Option<String>,
    settings: &'a Settings,
    now: jiff::Timestamp,
}

impl PopulateContext<'_> {
    /// `pods` are the populators of this base that still exist.
    fn plan(&self, pods: &[Populator<'_>]) -> PopulatePlan {
        let newest = pods.iter().copied().filter(|p| !p.pod.is_deleting()).max_by_key(|p| p.turn());
        if self.base.is_true(condition::POPULATED) {
            // The Pod may be gone by now; the base is filled all the same.
            return self.done_plan(Vec::new(), newest);
        }
        // There is one writer: a Pod that may still write stays the one that may mount the base until it is done or gone.
        let writer = pods.iter().copied().filter(|p| p.may_write()).min_by_key(|p| p.turn());
        match (newest, writer) {
            (Some(newest), None) => self.follow(newest, pods),
            (Some(newest), Some(writer)) if writer.pod.uid() == newest.pod.uid() => self.follow(newest, pods),
            (_, Some(writer)) => PopulatePlan::new(
                delete_all(pods.iter().map(|p| p.pod)),
                ConditionValue::no(reason::POPULATING, self.sentence("is about to be filled anew from")),
                Some(writer),
            ),
            (None, None) => self.first_plan(),
        }
    }

    /// The plan of a base without a Pod.
    fn first_plan(&self) -> PopulatePlan {
        let former = self.base.get().status.as_ref().and_then(|status| status.pod_uid.clone());
        match (self.filling, self.prepare, former) {
            (Filling::Taken, Some(prepare), None) => PopulatePlan::new(
                self.ensure_prepare(1, None, prepare).into_iter().collect(),
                ConditionValue::no(reason::PREPARING, PREPARING),
                None,
            ),
            // Somebody has deleted the Pod, and nobody knows how far it was. The UID stays in the status until the base is gone.
            (Filling::Taken, _, former) => {
                let populated = ConditionValue::no(reason::PREPARING, "the base is made anew: the Pod that prepared it is gone");
                PopulatePlan { pod_uid: former, ..PopulatePlan::new(self.base.delete().into_iter().collect(), populated, None) }
            }
            (Filling::Git(_) | Filling::Synced | Filling::Empty, ..) => PopulatePlan::new(
                self.ensure_filling(1).into_iter().collect(),
                ConditionValue::no(reason::POPULATING, self.sentence("is being filled from")),
                None,
            ),
        }
    }

    fn git(&self) -> Option<&GitSource> {
        if let Filling::Git(git) = self.filling { Some(git) } else { None }
    }

    fn done_plan(&self, steps: Vec<Step>, pod: Option<Populator<'_>>) -> PopulatePlan {
        let history = self.git().and_then(|git| git.depth).map(|depth| format!(", with a history of depth {depth}")).unwrap_or_default();
        let prepared = if self.prepare.is_some() { ", and prepare has succeeded in it" } else { "" };
        let skipped = self.git().and_then(GitSource::skipped).map(|what| format!(", without {what}")).unwrap_or_default();
        let mut message = format!("the source's content is in the base{history}{skipped}{prepared}");
        let before = find(self.base.conditions(), condition::POPULATED).filter(|c| c.status == ConditionStatus::True);
        if let Some(before) = before.filter(|before| before.message.starts_with(&message)) {
            // The Pod that has said why the base was fetched anew may be gone.
            message.clone_from(&before.message);
        } else if let Some(why) = pod.and_then(|pod| self.fetched_anew(pod)) {
            message = format!("{message}; it was fetched anew: {why}");
        }
        PopulatePlan::new(steps, ConditionValue::yes(reason::FILLED, message), pod)
    }

    /// Why a base that has begun as a clone of the former one was not filled by increment.
    fn fetched_anew(&self, filled: Populator<'_>) -> Option<String> {
        self.former_revision().filter(|_| filled.work == Work::Fill)?;
        match filled.attempt {
            0 | 1 => Filled::new(filled.pod.get(), CONTAINER).anew,
            _ => Some("an attempt to go on from the former base failed".to_owned()),
        }
    }

    /// The plan while `current` fills or prepares the base, or after it has tried to.
    fn follow(&self, current: Populator<'_>, pods: &[Populator<'_>]) -> PopulatePlan {
        // A former Pod exists only between the making of its successor and its own removal: where the one that prepares is deleted by somebody, none is
        // left, and the base is filled anew. What prepare has said can be read until its next run.
        let is_read = |p: &Populator<'_>| p.work == Work::Prepare && current.work == Work::Fill;
        let steps = delete_all(pods.iter().filter(|p| p.turn() < current.turn() && !is_read(p)).map(|p| p.pod));
        match (current.phase, current.work, self.prepare) {
            (PodPhase::Succeeded, Work::Fill, Some(prepare)) => self.filled_plan(steps, current, prepare),
            (PodPhase::Succeeded, Work::Fill | Work::Prepare, _) => self.done_plan(steps, Some(current)),
            (PodPhase::Failed, ..) => self.failed_plan(steps, current),
            (PodPhase::Running | PodPhase::Other, ..) => self.running_plan(steps, current),
        }
    }

    /// The plan once the base is filled, and is to be prepared.
    fn filled_plan(&self, mut steps: Vec<Step>, filled: Populator<'_>, prepare: &Prepare) -> PopulatePlan {
        let has_head = matches!(self.filling, Filling::Git(_) | Filling::Synced);
        let head = has_head.then(|| Filled::new(filled.pod.get(), CONTAINER));
        steps.extend(self.ensure_prepare(filled.attempt, head.as_ref(), prepare));
        let populated = self.last_failure().unwrap_or_else(|| ConditionValue::no(reason::PREPARING, PREPARING));
        PopulatePlan::new(steps, populated, Some(filled))
    }

    fn running_plan(&self, steps: Vec<Step>, current: Populator<'_>) -> PopulatePlan {
        let waits = waits_on_node(current.pod.get(), current.work.container());
        let left = waits.as_ref().map(|waits| time_left(waits.since, waits.patience, self.now));
        let populated = match (waits, left, self.last_failure()) {
            (Some(waits), Some(None), _) => {
                let verb = if current.work == Work::Fill { "fill" } else { "prepare" };
                let message = format!("Pod {} cannot {verb} the base: {}", current.pod.name(), waits.why);
                ConditionValue::no(reason::POPULATOR_NOT_RUNNING, message)
            }
            // Until this attempt ends, people want to read why the last one failed.
            (_, _, Some(failure)) => failure,
            (_, _, None) if current.work == Work::Prepare => {
                ConditionValue::no(reason::PREPARING, format!("{PREPARING}: Pod {}", current.pod.name()))
            }
            (_, _, None) => ConditionValue::no(reason::POPULATING, self.sentence("is being filled from")),
        };
        PopulatePlan { requeue_after: left.flatten(), ..PopulatePlan::new(steps, populated, Some(current)) }
    }

    /// What Populated says of the attempt before, while it does.
    fn last_failure(&self) -> Option<ConditionValue> {
        let populated = find(self.base.conditions(), condition::POPULATED)?;
        let reason = [reason::POPULATE_FAILED, reason::PREPARE_FAILED].into_iter().find(|reason| populated.reason == *reason)?;
        let message = match populated.message.split_once(NEXT_TRY) {
            Some((failure, _)) => format!("{failure}; it is being tried again"),
            None => populated.message.clone(),
        };
        Some(ConditionValue::no(reason, message))
    }

    /// Whether somebody has asked for the source since this Pod was made: what it lacked may be there now.
    fn is_asked_since(&self, pod: Populator<'_>) -> bool {
        self.asked.is_some() && annotation(pod.pod.meta(), LOOK) != self.asked
    }

    /// When the next Pod follows one that failed, as the end of a sentence.
    fn next_try(&self, due: jiff::Timestamp) -> String {
        let at_once = match (self.filling, self.project) {
            (Filling::Git(_), Some(project)) => format!(", or at once with `kubectl yoi refresh {project} -n {}`", self.base.namespace()),
            (Filling::Git(_) | Filling::Synced | Filling::Empty | Filling::Taken, _) => String::new(),
        };
        format!("{NEXT_TRY}{}{at_once}", format_time(due))
    }

    fn failed_plan(&self, mut steps: Vec<Step>, failed: Populator<'_>) -> PopulatePlan {
        let pod = failed.pod.get();
        let mut populated = match failed.work {
            Work::Fill => {
                let message = format!(
                    "{}: {}",
                    self.sentence("could not be filled from"),
                    failure(pod, CONTAINER, self.git().map(|git| git.url.as_str()))
                );
                ConditionValue::no(reason::POPULATE_FAILED, message)
            }
            Work::Prepare => ConditionValue::no(reason::PREPARE_FAILED, prepare::failure(failed.pod)),
        };
        let tried = failed.attempt;
        let wait = match self.filling {
            Filling::Git(_) | Filling::Synced | Filling::Empty => pause(tried),
            // The attempts of a base that is made anew begin with the first, so no pause would ever be longer.
            Filling::Taken => LONGEST_PAUSE,
        };
        let ended =
            pod.terminated(failed.work.container()).and_then(|t| t.finished_at).or(pod.metadata.creation_timestamp.as_ref().map(|t| t.0));
        let due = ended.map_or(self.now, |at| at.saturating_add(wait).unwrap_or(self.now));
        let left = Duration::try_from(due.duration_since(self.now)).unwrap_or(Duration::ZERO);
        if self.is_asked_since(failed) {
            populated = ConditionValue::no(reason::POPULATING, self.sentence("is being filled again, as somebody has asked for it, from"));
        } else {
            populated.message.push_str(&self.next_try(due));
        }
        if left > Duration::ZERO && !self.is_asked_since(failed) {
            return PopulatePlan { requeue_after: Some(left), ..PopulatePlan::new(steps, populated, Some(failed)) };
        }
        // The failed Pod stays until the new one exists: its number gives the new one's.
        steps.extend(match self.filling {
            Filling::Git(_) | Filling::Synced | Filling::Empty => self.ensure_filling(tried + 1),
            Filling::Taken => self.base.delete(),
        });
        PopulatePlan::new(steps, populated, Some(failed))
    }

    /// "the base WHAT URL", without the URL's credentials.
    fn sentence(&self, what: &str) -> String {
        let source = match self.filling {
            Filling::Git(git) => without_user(&git.url),
            Filling::Synced => "what was synced".to_owned(),
            Filling::Empty => "an empty source".to_owned(),
            Filling::Taken => "a folder of its node".to_owned(),
        };
        format!("the base {what} {source}")
    }

    fn ensure_filling(&self, attempt: u32) -> Option<Step> {
        let parts = PodParts {
            base: self.base,
            content: match self.filling {
                Filling::Git(git) => Content::Git(git),
                Filling::Synced => Content::Synced,
                Filling::Empty | Filling::Taken => Content::Nothing,
            },
            owner: self.owner,
            node: self.node?,
            attempt,
            revision: self.revision.as_deref(),
            former: self.former_revision().filter(|_| attempt == 1),
            asked: self.asked,
            tolerations: self.tolerations(),
            bundle: self.base.get().spec.base.as_ref().and_then(|base| base.bundle.as_deref()),
            settings: self.settings,
        };
        Some(Step::EnsurePod(Box::new(populate_pod::pod(parts))))
    }

    /// The commit that the base has begun with as a clone of a former one.
    fn former_revision(&self) -> Option<&str> {
        let origin = self.base.get().status.as_ref()?.origin.as_ref().filter(|origin| origin.kind == OriginKind::Base)?;
        origin.revision.as_deref()
    }

    fn ensure_prepare(&self, attempt: u32, filled: Option<&Filled>, prepare: &Prepare) -> Option<Step> {
        let parts = PreparePod {
            base: self.base,
            prepare,
            agents: self.agents,
            owner: self.owner,
            node: self.node?,
            attempt,
            filled,
            asked: self.asked,
            tolerations: self.tolerations(),
            settings: self.settings,
        };
        Some(Step::EnsurePod(Box::new(parts.pod())))
    }

    /// Where a consumer is already, its Pod runs whatever the taints. Elsewhere the agents of the project are expected.
    fn tolerations(&self) -> Option<Vec<Toleration>> {
        if self.follows_consumer {
            return Some(vec![Toleration { operator: Some("Exists".to_owned()), ..Toleration::default() }]);
        }
        restricted::tolerations(self.agents)
    }
}

/// How long to wait after this attempt: 10 s, doubled with each attempt.
fn pause(attempt: u32) -> Duration {
    Duration::from_secs(10_u64 << attempt.saturating_sub(1).min(6)).min(LONGEST_PAUSE)
}
