//! What has become of the sets that an agent's Pod fetches.

use std::collections::BTreeMap;

use yoi_crds::assets::Assets;
use yoi_crds::condition::ConditionValue;
use yoi_crds::name::annotation::LEFT_OUT;
use yoi_crds::reason;
use yoi_crds::source::is_commit_id;

use super::{SetSource, sets};
use crate::meta::annotation;
use crate::observed_pod::{ContainerState, ObservedPod};
use crate::settings::Settings;
use crate::step::Step;
use crate::stored::Stored;
use crate::workspace::populate_report::cut;
use crate::yoipod::waiting_container::is_not_pulled;

/// What the names of containers that fetch sets begin with.
const CONTAINER: &str = "assets-";

/// Of the set `git/NAME` or `image/NAME`.
pub(super) fn container_name(set: &str) -> String {
    format!("{CONTAINER}{}", set.replacen('/', "-", 1))
}

/// A set, as its container has left it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::yoipod) struct FetchedSet {
    /// As people are shown it.
    name: String,
    state: FetchState,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum FetchState {
    /// It is fetched, or waits for that.
    Pending,
    /// The commit, or the digest of the image; `None`: nobody knows it.
    Fetched(Option<String>),
    /// Why not. The agent starts without it.
    LeftOut(String),
    /// Why not. The agent does not start, and it is tried again.
    Failed(String),
}

impl FetchedSet {
    /// Its name, and what it is of.
    pub(super) fn revision(&self) -> Option<(&str, &str)> {
        match &self.state {
            FetchState::Fetched(Some(revision)) => Some((&self.name, revision)),
            FetchState::Fetched(None) | FetchState::Pending | FetchState::LeftOut(_) | FetchState::Failed(_) => None,
        }
    }

    fn failure(&self) -> Option<String> {
        match &self.state {
            FetchState::LeftOut(why) | FetchState::Failed(why) => Some(format!("{} is not fetched: {why}", self.name)),
            FetchState::Fetched(_) | FetchState::Pending => None,
        }
    }
}

/// The sets that this Pod fetches.
pub(in crate::yoipod) fn fetched(pod: &ObservedPod) -> Vec<FetchedSet> {
    let of_container = |container: &str| Some(FetchedSet { name: set(container)?, state: state(pod, container) });
    pod.container_names().filter_map(of_container).collect()
}

/// The set that a container of this name fetches, if it fetches one.
fn set(container: &str) -> Option<String> {
    let (kind, name) = container.strip_prefix(CONTAINER)?.split_once('-')?;
    ["git", "image"].contains(&kind).then(|| format!("{kind}/{name}"))
}

fn state(pod: &ObservedPod, container: &str) -> FetchState {
    match (of_container(pod, container), left_out(pod).remove(container)) {
        (FetchState::Failed(why), _) => FetchState::Failed(why),
        (_, Some(why)) => FetchState::LeftOut(why),
        (state, None) => state,
    }
}

fn of_container(pod: &ObservedPod, container: &str) -> FetchState {
    match pod.container(container) {
        Some(ContainerState::Terminated(ended)) => match (ended.exit_code, ended.message.as_deref().map(str::trim).unwrap_or_default()) {
            (0, "") => FetchState::Fetched(pod.image_digest(container).map(str::to_owned)),
            (0, commit) if is_commit_id(commit) => FetchState::Fetched(Some(format!("commit {commit}"))),
            (0, why) => FetchState::LeftOut(words(why)),
            (code, "") => FetchState::Failed(format!("its container ended with exit code {code}")),
            (_, why) => FetchState::Failed(words(why)),
        },
        Some(ContainerState::Waiting { reason, message }) => match (reason.as_deref(), pod.last_words(container)) {
            // It is tried again after a pause.
            (Some("CrashLoopBackOff"), Some(why)) => FetchState::Failed(words(why)),
            (None | Some("PodInitializing" | "ContainerCreating"), _) => FetchState::Pending,
            (Some(why), _) => FetchState::Failed(words(&format!("{why}: {}", message.as_deref().unwrap_or_default()))),
        },
        Some(ContainerState::Running) | None => FetchState::Pending,
    }
}

/// Containers of sets whose image is not pulled, and why: see [`leave_out`].
fn left_out(pod: &ObservedPod) -> BTreeMap<String, String> {
    // Whoever may change Pods here can write this annotation.
    annotation(&pod.metadata, LEFT_OUT).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

/// A step that lets an agent start whose set is of an image that is not pulled, where the project is not strict: the container that would copy from it gets
/// the image that fetches sources, which holds nothing to copy. Nothing else of a Pod can be left out once it is made, and the next Pod tries the image again.
pub(in crate::yoipod) fn leave_out(pod: Stored<'_, ObservedPod>, assets: Option<&Assets>, settings: &Settings) -> Option<Step> {
    let is_strict = assets.is_some_and(|assets| assets.strict);
    let mut left_out = left_out(pod.get());
    let lenient = sets(assets, settings).into_iter().filter(|set| matches!(set.from, SetSource::Image(_)) && (set.optional || !is_strict));
    let names = lenient.map(|set| container_name(&set.name));
    let waits = |name: &String| match pod.get().container(name)? {
        ContainerState::Waiting { reason, .. } if reason.as_deref().is_some_and(is_not_pulled) => match of_container(pod.get(), name) {
            FetchState::Failed(why) => Some(why),
            FetchState::Pending | FetchState::Fetched(_) | FetchState::LeftOut(_) => None,
        },
        ContainerState::Waiting { .. } | ContainerState::Running | ContainerState::Terminated(_) => None,
    };
    let (container, why) = names.filter(|name| !left_out.contains_key(name)).find_map(|name| waits(&name).map(|why| (name, why)))?;
    left_out.insert(container.clone(), why);
    Some(Step::LeaveOutSet {
        pod: pod.target(),
        container,
        image: settings.populator_image.clone(),
        // Its keys are strings, so it serializes without fail.
        left_out: serde_json::to_string(&left_out).unwrap_or_default(),
    })
}

/// On one line, as many as a person reads.
fn words(text: &str) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// What of them was not fetched, as a part of a sentence.
pub(super) fn failures(sets: &[FetchedSet]) -> Option<String> {
    let failures: Vec<String> = sets.iter().filter_map(FetchedSet::failure).collect();
    (!failures.is_empty()).then(|| failures.join("; "))
}

/// Why an agent that has not started does not start, if it is for a set.
pub(in crate::yoipod) fn keeps_from_starting(pod: Stored<'_, ObservedPod>) -> Option<ConditionValue> {
    let mut sets = fetched(pod.get());
    sets.retain(|set| matches!(set.state, FetchState::Failed(_)));
    let message = format!("{}. Pod {} tries it again, and the agent does not start before", failures(&sets)?, pod.name());
    Some(ConditionValue::no(reason::ASSETS_NOT_FETCHED, message))
}
