//! A push of what an agent has committed to a branch of its project's repository: one restricted Pod at a time.
//!
//! # Flow
//! A person's request comes through the gateway, which writes `status.push.request`. `spec.push` asks by itself, once for each task. The Pod gets the
//! commits from the gateway, checks them, and pushes one ref without force.
//!
//! # Guarantees
//! A push ends: with a [`PushOutcome`] of its id, after at most [`MOST_ATTEMPTS`] Pods, and though none can be made or its node is gone. Made again, it
//! finds the branch at the commit already. It goes to the source that the project has at its end.

mod push_pod;

use std::time::Duration;

use yoi_crds::condition::{ConditionValue, find};
use yoi_crds::name::annotation;
use yoi_crds::pod::{Completion, PodRef, PushAttempts, PushOutcome, PushResult, PushStatus, RequestedPush};
use yoi_crds::reason::{self, condition};
use yoi_crds::source::GitSource;
use yoi_crds::workspace::OriginKind;
use yoi_crds::{YoiPod, YoiProject};
use yoi_wire::push::{default_branch, is_hash};

use super::yoipod_conditions::{not_running, succeeded_task};
use super::yoipod_input::YoiPodInput;
use crate::duration::time_left;
use crate::meta;
use crate::names;
use crate::observed_pod::{ObservedPod, PodPhase};
use crate::settings::Settings;
use crate::step::{Kind, Step};
use crate::stored::{Stored, delete_all};
use crate::tree::base_set::first_generation;
use crate::workspace::populate::ATTEMPT;
use crate::workspace::populate_report::{failure, without_user};
pub use push_pod::SCRIPT;
use push_pod::{CONTAINER, PodParts};

/// Pods that are made for one push.
const MOST_ATTEMPTS: i32 = 3;
/// How long the first Pod that failed stays before the next one is made; the second one twice as long.
const PAUSE: Duration = Duration::from_secs(10);
/// How long a Pod may take to be made, to start, and to go.
const START_PATIENCE: Duration = Duration::from_secs(600);
/// Exit code of the script when the next Pod would end the same.
const FINAL: i32 = 1;
/// Bytes that the schema gives a message.
const MAX_MESSAGE: usize = 2048;

/// What to make and delete for a push, and what came of it.
#[derive(Default)]
pub(super) struct PushPlan {
    pub steps: Vec<Step>,
    /// The operator's fields; `None` for an agent of which nothing was ever to be pushed.
    pub status: Option<PushStatus>,
    /// The condition Pushed; `None` as above.
    pub pushed: Option<ConditionValue>,
    pub requeue_after: Option<Duration>,
}

/// A push that is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WantedPush {
    pub id: String,
    pub branch: String,
    /// What is checked out when absent.
    pub commit: Option<String>,
    pub expected: Option<String>,
    /// The task that it is for, when `spec.push` asks for it.
    task: Option<String>,
}

impl WantedPush {
    fn new(yoipod: &YoiPod, before: &PushStatus) -> Option<Self> {
        let open = before.request.clone().filter(|request| before.last_ended() != Some(&request.id));
        if let Some(RequestedPush { id, branch, commit, expected, .. }) = open {
            return Some(WantedPush { id, branch, commit: Some(commit), expected, task: None });
        }
        let settings = yoipod.spec.push.as_ref().filter(|_| yoipod.spec.completion == Completion::Stop)?;
        let task = succeeded_task(yoipod).filter(|task| before.task.as_ref() != Some(task))?;
        let branch = settings.branch.clone().unwrap_or_else(|| default_branch(meta::name(&yoipod.metadata)));
        Some(WantedPush { id: task.clone(), branch, commit: None, expected: None, task: Some(task) })
    }
}

/// The step that has the Pod gone before the YoiPod goes, in case it was made and is not observed yet.
pub(super) fn confirm_gone(input: &YoiPodInput<'_>) -> Option<Step> {
    input.before.push.as_ref()?;
    let yoipod = input.yoipod;
    Some(Step::ConfirmGone {
        kind: Kind::Pod,
        namespace: yoipod.namespace().to_owned(),
        name: names::pusher(yoipod.name()),
        of: yoipod.uid().as_str().to_owned(),
    })
}

pub(super) fn plan(input: &YoiPodInput<'_>, settings: &Settings, now: jiff::Timestamp) -> PushPlan {
    let before = input.before.push.as_deref().cloned().unwrap_or_default();
    let Some(wanted) = WantedPush::new(input.yoipod.get(), &before) else {
        let pushed = before.outcome.as_ref().map(of_outcome);
        let status =
            Some(PushStatus { request: None, pod: None, attempts: None, ..before }).filter(|status| *status != PushStatus::default());
        return PushPlan { steps: delete_all(input.pushers.iter().copied()), status, pushed, requeue_after: None };
    };
    let context = PushContext { input, wanted, before, settings, now };
    match (git_source(input), input.pushers.first()) {
        (Ok((project, git)), _) => context.follow(project, git),
        // It pushes to a source that the project had before.
        (Err(_), Some(&pod)) => context.outlives(pod),
        (Err(why), None) => context.end(PushResult::Failed, None, why),
    }
}

/// The repository that is pushed to, or why there is none.
fn git_source<'a>(input: &YoiPodInput<'a>) -> Result<(Stored<'a, YoiProject>, &'a GitSource), String> {
    let name = &input.yoipod.get().spec.project_ref.name;
    let project = input.project.ok_or_else(|| format!("YoiProject {name} does not exist, so there is no repository to push to"))?;
    let git = project.get().spec.source.git.as_deref();
    let git = git.ok_or_else(|| {
        format!("the source of YoiProject {name} is no git repository, so there is nothing to push to; kubectl yoi patch shows the commits")
    })?;
    Ok((project, git))
}

/// The commit of the sealed base that the tree, or the one that it is a fork of, was made from. `None` where there was no commit, and where no object
/// names it: that of a fork of former versions.
fn base_commit(input: &YoiPodInput<'_>) -> Option<String> {
    let origin = input.workspace?.get().status.as_ref()?.origin.as_ref()?;
    if let Some(revision) = &origin.revision {
        return Some(revision.clone());
    }
    // A version before this field has made the tree.
    let origin = Some(origin).filter(|origin| origin.kind == OriginKind::Base)?;
    let base = input.bases.iter().find(|base| origin.workspace_uid.as_deref() == Some(base.workspace.uid().as_str()))?;
    base.workspace.get().status.as_ref()?.volume.as_ref()?.revision.clone()
}

struct PushContext<'a> {
    input: &'a YoiPodInput<'a>,
    wanted: WantedPush,
    before: PushStatus,
    settings: &'a Settings,
    now: jiff::Timestamp,
}

impl PushContext<'_> {
    fn follow(self, project: Stored<'_, YoiProject>, git: &GitSource) -> PushPlan {
        let url = without_user(&git.url);
        let branch = self.wanted.branch.clone();
        let doing = |what: &str| format!("the agent's commits {what} branch {branch} of {url}");
        let Some(&pod) = self.input.pushers.first() else {
            let tried = self.tried().map_or(0, |attempts| attempts.count);
            if tried >= MOST_ATTEMPTS {
                let message = format!("{}: {tried} Pods were deleted before they had ended", doing("were not pushed to"));
                return self.end(PushResult::Failed, None, message);
            }
            let since = self.tried().and_then(|attempts| attempts.no_pod_since.as_ref()?.parse().ok()).unwrap_or(self.now);
            let Some(left) = time_left(since, START_PATIENCE, self.now) else {
                let message = format!(
                    "{}: in {} s no Pod was made that does it{}",
                    doing("were not pushed to"),
                    START_PATIENCE.as_secs(),
                    self.refusal()
                );
                return self.end(PushResult::Failed, None, message);
            };
            let parts = PodParts {
                yoipod: self.input.yoipod,
                project,
                git,
                push: &self.wanted,
                base: base_commit(self.input),
                attempt: tried + 1,
                settings: self.settings,
            };
            let step = Step::EnsurePod(Box::new(push_pod::pod(&parts)));
            // It is counted once it is seen: it may be refused, or made already.
            let attempts = PushAttempts { id: self.wanted.id.clone(), count: tried, no_pod_since: Some(since.to_string()) };
            return self.goes_on(vec![step], None, attempts, doing("are about to be pushed to"), Some(left));
        };
        let is_current = meta::annotation(pod.meta(), annotation::LOOKS_AT) == Some(&*first_generation(project));
        if pod.is_deleting() || !self.made(pod) || !is_current {
            return self.outlives(pod);
        }
        let attempts = self.attempts(pod);
        let attempt = attempts.count;
        match pod.phase {
            PodPhase::Succeeded => self.succeeded(pod, &url),
            PodPhase::Failed => {
                let why = failure(pod.get(), CONTAINER, Some(&git.url));
                let is_final = pod.terminated(CONTAINER).is_some_and(|ended| ended.exit_code == FINAL);
                if is_final || attempt >= MOST_ATTEMPTS {
                    let tries = if attempt > 1 { format!(", in {attempt} attempts") } else { String::new() };
                    let message = format!("{}{tries}: {why}", doing("were not pushed to"));
                    return self.end(PushResult::Failed, None, message);
                }
                let pause = PAUSE * attempt.unsigned_abs();
                let ended = pod.terminated(CONTAINER).and_then(|ended| ended.finished_at);
                let left = time_left(ended.unwrap_or_else(|| self.created(pod)), pause, self.now);
                let steps = if left.is_none() { pod.delete().into_iter().collect() } else { Vec::new() };
                let message = format!("{}, and are tried again: {why}", doing("could not be pushed to"));
                self.goes_on(steps, None, attempts, message, left)
            }
            PodPhase::Running | PodPhase::Other => self.runs(pod, attempts, doing("are being pushed to")),
        }
    }

    /// What the API server said when it took no Pod, as the last round has it.
    fn refusal(&self) -> String {
        let ready = find(&self.input.before.conditions, condition::READY).filter(|ready| ready.reason == reason::APPLY_FAILED);
        ready.map_or(String::new(), |ready| format!(": {}", ready.message))
    }

    /// The Pods that were counted for this push.
    fn tried(&self) -> Option<&PushAttempts> {
        self.before.attempts.as_ref().filter(|attempts| attempts.id == self.wanted.id)
    }

    /// Whether the Pod was made for this push.
    fn made(&self, pod: Stored<'_, ObservedPod>) -> bool {
        meta::annotation(pod.meta(), annotation::PUSH) == Some(&self.wanted.id)
    }

    /// The Pods of this push, with the one that is there.
    fn attempts(&self, pod: Stored<'_, ObservedPod>) -> PushAttempts {
        let tried = self.tried().map_or(0, |attempts| attempts.count);
        let number = meta::annotation(pod.meta(), ATTEMPT).filter(|_| self.made(pod)).and_then(|text| text.parse().ok());
        PushAttempts { id: self.wanted.id.clone(), count: number.unwrap_or(tried).max(tried), no_pod_since: None }
    }

    /// A Pod that is of no use goes before the next one is made, which has its name. On a node that is gone it never does.
    fn outlives(self, pod: Stored<'_, ObservedPod>) -> PushPlan {
        let name = pod.name();
        let deletion = pod.meta().deletion_timestamp.as_ref().map(|at| at.0);
        let left = deletion.map(|at| time_left(at, START_PATIENCE, self.now));
        if let (Some(at), Some(None)) = (deletion, left) {
            let node = pod.node.as_deref().unwrap_or("none");
            let branch = &self.wanted.branch;
            let what = if self.made(pod) {
                format!("it is not known whether the agent's commits were pushed to branch {branch}: its Pod {name}")
            } else {
                format!("the agent's commits were not pushed to branch {branch}: Pod {name} of a former push")
            };
            let message = format!(
                "{what} should have gone at {at}, and node {node} does not say that it has; if that node does not come back, delete it, and push again"
            );
            return self.end(PushResult::Failed, None, message);
        }
        let attempts = self.attempts(pod);
        let message = format!("Pod {name} of a former push is going down");
        self.goes_on(pod.delete().into_iter().collect(), None, attempts, message, left.flatten())
    }

    fn created(&self, pod: Stored<'_, ObservedPod>) -> jiff::Timestamp {
        pod.meta().creation_timestamp.as_ref().map_or(self.now, |at| at.0)
    }

    fn runs(self, pod: Stored<'_, ObservedPod>, attempts: PushAttempts, doing: String) -> PushPlan {
        let Some(why) = not_running(pod, CONTAINER, false) else {
            return self.goes_on(Vec::new(), Some(pod), attempts, doing, None);
        };
        let left = time_left(self.created(pod), START_PATIENCE, self.now);
        if left.is_none() && pod.phase == PodPhase::Other {
            let message = format!("{doing}, but in {} s it did not begin: {}", START_PATIENCE.as_secs(), why.message);
            return self.end(PushResult::Failed, None, message);
        }
        self.goes_on(Vec::new(), Some(pod), attempts, format!("{doing}: {}", why.message), left)
    }

    fn succeeded(self, pod: Stored<'_, ObservedPod>, url: &str) -> PushPlan {
        let said = pod.terminated(CONTAINER).and_then(|ended| ended.message.as_deref()).unwrap_or_default();
        let mut words = said.split_whitespace();
        let mut hash = || words.next().filter(|word| is_hash(word)).map(str::to_owned);
        let (commit, previous) = (hash(), hash());
        let uncommitted: u64 = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
        let left = match uncommitted {
            0 => String::new(),
            1 => "; 1 path is not committed".to_owned(),
            count => format!("; {count} paths are not committed"),
        };
        let branch = &self.wanted.branch;
        match (&commit, &previous) {
            (None, _) => self.end(PushResult::Nothing, None, format!("the agent has committed nothing since its base{left}")),
            (Some(new), Some(old)) if new == old => {
                let message = format!("branch {branch} of {url} is at {new} already{left}");
                self.end(PushResult::Pushed, commit.zip(Some(previous)), message)
            }
            (Some(new), _) => {
                let message = format!("branch {branch} of {url} is at {new}{left}");
                self.end(PushResult::Pushed, commit.zip(Some(previous)), message)
            }
        }
    }

    fn goes_on(
        self,
        steps: Vec<Step>,
        pod: Option<Stored<'_, ObservedPod>>,
        attempts: PushAttempts,
        message: String,
        requeue_after: Option<Duration>,
    ) -> PushPlan {
        let status = PushStatus {
            request: None,
            pod: pod.map(|pod| PodRef { name: pod.name().to_owned(), uid: pod.uid().as_str().to_owned() }),
            attempts: Some(attempts),
            outcome: self.before.outcome,
            ended_request: self.before.ended_request,
            task: self.before.task,
        };
        PushPlan { steps, status: Some(status), pushed: Some(ConditionValue::no(reason::PUSHING, message)), requeue_after }
    }

    /// The Pod goes in the next round, when the status has its words.
    fn end(self, result: PushResult, commits: Option<(String, Option<String>)>, message: String) -> PushPlan {
        let (commit, previous) = commits.map_or((None, None), |(commit, previous)| (Some(commit), previous));
        let WantedPush { id, branch, task, .. } = self.wanted;
        let message = message.chars().take(MAX_MESSAGE).collect();
        let outcome = PushOutcome { id, result, branch, commit, previous, message, finished_at: self.now.to_string() };
        let pushed = of_outcome(&outcome);
        // An open request goes before a task, so the request that is there has ended.
        let ended_request = self.before.request.map(|request| request.id).or(self.before.ended_request);
        let status = PushStatus { outcome: Some(outcome), ended_request, task: task.or(self.before.task), ..PushStatus::default() };
        PushPlan { steps: Vec::new(), status: Some(status), pushed: Some(pushed), requeue_after: None }
    }
}

fn of_outcome(outcome: &PushOutcome) -> ConditionValue {
    let message = outcome.message.clone();
    match outcome.result {
        PushResult::Pushed => ConditionValue::yes(reason::PUSHED, message),
        PushResult::Nothing => ConditionValue::yes(reason::NOTHING_TO_PUSH, message),
        PushResult::Failed | PushResult::Unknown => ConditionValue::no(reason::PUSH_FAILED, message),
    }
}
