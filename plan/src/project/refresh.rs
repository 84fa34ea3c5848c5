//! Whether a project's branch has moved: when a Pod looks, what it found, and what is said of it.
//!
//! What was found stands in the status. The Pod that found it goes only once the status says so, so nothing is lost when a write fails. Trees are made
//! from the former commit until the new one is sealed on a node: a commit that cannot be fetched stops nobody.

use std::time::Duration;

use yoi_crds::YoiProject;
use yoi_crds::condition::ConditionValue;
use yoi_crds::name::annotation;
use yoi_crds::project::RefreshStatus;
use yoi_crds::reason;
use yoi_crds::source::{GitSource, is_commit_id};
use yoi_crds::sync::SyncedTree;

use super::look_pod::{self, CONTAINER};
use crate::conditions::format_time;
use crate::duration::{self, time_left};
use crate::meta;
use crate::observed_pod::{ContainerState, ObservedPod, PodPhase};
use crate::settings::Settings;
use crate::step::Step;
use crate::stored::{Stored, delete_all};
use crate::tree::base_set::{BaseSet, first_generation, refresh_status, synced};
use crate::workspace::populate_report::{failure, without_user};

/// How long a look may take, the start of its Pod included.
const LOOK_PATIENCE: Duration = Duration::from_secs(300);

/// How long a look may take to go. A Pod whose node does not answer goes with its Node object, and others look meanwhile.
const GOING_PATIENCE: Duration = Duration::from_secs(60);

/// What to make and delete, and what the status says of the looks.
pub(super) struct RefreshPlan {
    pub steps: Vec<Step>,
    pub status: Option<Box<RefreshStatus>>,
    pub condition: Option<ConditionValue>,
    pub requeue_after: Option<Duration>,
}

/// `looks` are the project's Pods that look. `current` are the bases that trees are made from, and `next` those that are to follow.
pub(super) fn plan(
    project: Stored<'_, YoiProject>,
    looks: &[Stored<'_, ObservedPod>],
    current: &BaseSet<'_>,
    next: Option<&BaseSet<'_>>,
    settings: &Settings,
    now: jiff::Timestamp,
) -> RefreshPlan {
    let git = project.get().spec.source.git.as_deref();
    let source = first_generation(project);
    // The Pod that fetches first takes the ref as it is. What was found before that may be older than what it fetches.
    let before = refresh_status(project).filter(|before| before.in_use.is_some() || !current.sealed_nodes().is_empty());
    let mut status = before.cloned().map(Box::new);
    let context = git.map(|git| LookContext { project, git, source: &source, before, now });
    let mut plan = match &context {
        Some(context) => context.looks(looks, current, next, settings, &mut status),
        // Nobody looks at a source without a server: it is what people sync.
        None => RefreshPlan { steps: delete_all(looks.iter().copied()), status: None, condition: None, requeue_after: None },
    };
    if let Some(next) = next.filter(|next| !next.sealed_nodes().is_empty()) {
        if let Some(tree) = synced(project).filter(|tree| next.revision().as_ref() == Some(&tree.commit)) {
            let status = status.get_or_insert_default();
            if status.source != source {
                **status = RefreshStatus { source: source.clone(), looked_at: tree.received_at.clone(), ..RefreshStatus::default() };
            }
            status.in_use = next.revision();
        } else if let Some(status) = &mut status
            && status.revision == next.revision()
        {
            status.in_use = status.revision.clone();
        }
    }
    plan.condition = match synced(project) {
        Some(tree) => Some(synced_condition(tree, status.as_deref(), next, now)),
        None => context.zip(status.as_deref()).map(|(context, status)| context.condition(status, current, next)),
    };
    plan.status = status;
    plan
}

struct LookContext<'a> {
    project: Stored<'a, YoiProject>,
    git: &'a GitSource,
    source: &'a str,
    /// What earlier looks have found.
    before: Option<&'a RefreshStatus>,
    now: jiff::Timestamp,
}

impl LookContext<'_> {
    /// `all` are the Pods that look, those among them that do not go, too.
    fn looks(
        &self,
        all: &[Stored<'_, ObservedPod>],
        current: &BaseSet<'_>,
        next: Option<&BaseSet<'_>>,
        settings: &Settings,
        status: &mut Option<Box<RefreshStatus>>,
    ) -> RefreshPlan {
        let left = |pod: &Stored<'_, ObservedPod>| Some(time_left(pod.meta().deletion_timestamp.as_ref()?.0, GOING_PATIENCE, self.now));
        let pods: Vec<_> = all.iter().copied().filter(|pod| left(pod) != Some(None)).collect();
        let going = pods.iter().filter_map(left).flatten().min();
        let planned = |steps, requeue_after: Option<Duration>| {
            let requeue_after = requeue_after.into_iter().chain(going).min();
            RefreshPlan { steps, status: None, condition: None, requeue_after }
        };
        // What is fetched first takes the ref as it is; a commit that the bases are pinned to must be looked past.
        let may_look = !current.sealed_nodes().is_empty() || self.before.is_some_and(|before| before.in_use.is_some());
        let Some(pod) = pods.first().copied() else {
            let (is_due, requeue_after) = if may_look { self.due(next) } else { (false, None) };
            let name = || look_pod::free_name(self.project, all);
            let make = || Step::EnsurePod(Box::new(look_pod::pod(name(), self.project, self.git, self.source, self.request(), settings)));
            return planned(is_due.then(make).into_iter().collect(), requeue_after);
        };
        if !may_look || meta::annotation(pod.meta(), annotation::LOOKS_AT) != Some(self.source) {
            return planned(delete_all(pods.iter().copied()), None);
        }
        let (ended, found) = match self.ended(pod.get()) {
            Ok(ended) => ended,
            Err(requeue_after) => return planned(Vec::new(), requeue_after),
        };
        let looked_at = format_time(ended);
        // The status tells it already, so the Pod is not needed any more.
        let request = meta::annotation(pod.meta(), annotation::LOOK).map(str::to_owned);
        if self.before.is_some_and(|before| before.looked_at >= looked_at && (request.is_none() || before.request == request)) {
            return planned(delete_all(pods.iter().copied()), None);
        }
        let told = status.get_or_insert_default();
        told.source = self.source.to_owned();
        told.request = request.or(told.request.take());
        told.failure = found.as_ref().err().cloned();
        if let Ok(commit) = found
            && told.revision.as_ref() != Some(&commit)
        {
            told.revision = Some(commit);
            told.since = Some(looked_at.clone());
        }
        told.looked_at = looked_at;
        planned(Vec::new(), None)
    }

    fn request(&self) -> Option<&str> {
        meta::annotation(self.project.meta(), annotation::LOOK)
    }

    /// Whether a look is due, and else when.
    fn due(&self, next: Option<&BaseSet<'_>>) -> (bool, Option<Duration>) {
        // A request is carried out once for each source.
        let written = self.before.and_then(|before| before.request.as_deref());
        if self.request().is_some_and(|request| written != Some(request)) {
            return (true, None);
        }
        // A newer commit would take the place of the one that is being fetched or prepared, and a branch that moves faster than that would never be
        // sealed. One that fails may be mended by a newer one.
        let has_failed = |why: &ConditionValue| why.reason == reason::POPULATE_FAILED || why.reason == reason::PREPARE_FAILED;
        let is_moving = next.is_some_and(|next| !has_failed(&next.not_populated(self.now)));
        let interval = self.git.refresh.as_deref().and_then(|text| duration::parse(text).ok()).filter(|_| !is_moving);
        let Some(interval) = interval else { return (false, None) };
        let last = self.before.and_then(|before| before.looked_at.parse::<jiff::Timestamp>().ok());
        let left = last.and_then(|last| time_left(last, interval, self.now));
        (left.is_none(), left)
    }

    /// When the Pod ended, with the commit that it found or its failure; else when to look at it again.
    fn ended(&self, pod: &ObservedPod) -> Result<(jiff::Timestamp, Result<String, String>), Option<Duration>> {
        let created = pod.metadata.creation_timestamp.as_ref().map_or(self.now, |t| t.0);
        let ended = pod.terminated(CONTAINER).and_then(|t| t.finished_at).unwrap_or(created);
        match pod.phase {
            PodPhase::Succeeded => {
                let words = pod.terminated(CONTAINER).and_then(|t| t.message.as_deref()).unwrap_or_default().trim();
                let commit = is_commit_id(words).then(|| words.to_owned());
                Ok((ended, commit.ok_or_else(|| "its Pod named no commit".to_owned())))
            }
            PodPhase::Failed => Ok((ended, Err(failure(pod, CONTAINER, Some(&self.git.url))))),
            PodPhase::Running | PodPhase::Other => match time_left(created, LOOK_PATIENCE, self.now) {
                Some(left) => Err(Some(left)),
                None => {
                    let over = created.saturating_add(LOOK_PATIENCE).unwrap_or(self.now);
                    Ok((
                        over,
                        Err(format!("Pod {} did not look within {} s: {}", meta::name(&pod.metadata), LOOK_PATIENCE.as_secs(), waits(pod))),
                    ))
                }
            },
        }
    }

    fn condition(&self, status: &RefreshStatus, current: &BaseSet<'_>, next: Option<&BaseSet<'_>>) -> ConditionValue {
        let at = |commit: &Option<String>| commit.as_deref().map(|commit| format!(" at commit {commit}")).unwrap_or_default();
        let ref_ = self.git.ref_.as_deref().unwrap_or("HEAD");
        let url = without_user(&self.git.url);
        if let Some(failure) = &status.failure {
            let held = current.held_revision().map(str::to_owned);
            let goes_on = if held.is_some() { format!("; trees are made{}", at(&held).replace(" at ", " from ")) } else { String::new() };
            return ConditionValue::no(reason::REFRESH_FAILED, format!("failed to look at {ref_} of {url}: {failure}{goes_on}"));
        }
        let found = at(&status.revision);
        match next.filter(|next| status.in_use != next.revision()) {
            Some(next) => {
                let why = next.not_populated(self.now);
                ConditionValue { message: format!("{ref_} has moved, and is{found}: {}", why.message), ..why }
            }
            None => ConditionValue::yes(reason::REFRESHED, format!("{ref_} of {url} is{found}")),
        }
    }
}

/// What is said of a project that takes working trees: which one its trees are made from, or why they are not made from the last one yet.
fn synced_condition(tree: &SyncedTree, status: Option<&RefreshStatus>, next: Option<&BaseSet<'_>>, now: jiff::Timestamp) -> ConditionValue {
    let SyncedTree { machine, commit, captured_at, person, received_at: _ } = tree;
    let what = format!("the tree of {machine} as it was at {captured_at}, which {person} has synced as commit {commit}");
    match next {
        Some(next) if next.revision().as_ref() == Some(commit) && status.and_then(|status| status.in_use.as_ref()) != Some(commit) => {
            let why = next.not_populated(now);
            ConditionValue { message: format!("trees are not made yet from {what}: {}", why.message), ..why }
        }
        _ if status.and_then(|status| status.in_use.as_ref()) == Some(commit) => {
            ConditionValue::yes(reason::REFRESHED, format!("trees are made from {what}"))
        }
        _ => ConditionValue::no(reason::POPULATING, format!("the source is being fetched, and then {what}")),
    }
}

/// Why a Pod has not ended.
fn waits(pod: &ObservedPod) -> String {
    if let Some(unscheduled) = &pod.unscheduled {
        return unscheduled.message.clone().unwrap_or_else(|| "no node fits".to_owned());
    }
    match pod.container(CONTAINER) {
        Some(ContainerState::Waiting { reason, message }) => {
            [reason.as_deref(), message.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(": ")
        }
        Some(ContainerState::Running | ContainerState::Terminated(_)) => "git goes on".to_owned(),
        None => "the kubelet has not begun with it".to_owned(),
    }
}
