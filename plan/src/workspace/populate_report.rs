//! What people read of a Pod that fills or prepares a base: what it waits for, and why it ended.

use std::time::Duration;

use yoi_crds::source::is_commit_id;

use crate::observed_pod::{ContainerState, ObservedPod};

/// How long the Pod may wait for room on its node, before the base counts as stuck.
const ROOM_PATIENCE: Duration = Duration::from_secs(10);
/// How long the Pod may wait on its node for its image and its volumes, before the base counts as stuck.
const START_PATIENCE: Duration = Duration::from_secs(60);
/// Characters of a Pod's output that the condition's message holds: as many as a person reads.
const MAX_FAILURE_CHARS: usize = 500;

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

/// What a Pod waits for that has not started.
pub(super) struct Waits {
    pub since: jiff::Timestamp,
    pub patience: Duration,
    pub why: String,
}

/// `None` for a Pod that runs, or of which nothing is known yet.
pub(super) fn waits_on_node(pod: &ObservedPod, container: &str) -> Option<Waits> {
    if let Some(unscheduled) = &pod.unscheduled {
        let why = unscheduled.message.clone().unwrap_or_else(|| "no node fits".to_owned());
        return Some(Waits { since: unscheduled.no_node_since?, patience: ROOM_PATIENCE, why });
    }
    let why = match pod.container(container) {
        Some(ContainerState::Running | ContainerState::Terminated(_)) => return None,
        Some(ContainerState::Waiting { reason, message }) => {
            let reason = reason.as_deref().unwrap_or("its container waits");
            message.as_ref().map_or_else(|| reason.to_owned(), |message| format!("{reason}: {message}"))
        }
        None => "the kubelet has not begun with it".to_owned(),
    };
    Some(Waits { since: pod.scheduled_at?, patience: START_PATIENCE, why })
}

/// The end of git's output, where its errors stand; else why Kubernetes ended the Pod. Without the credentials that the URL may hold.
pub(crate) fn failure(pod: &ObservedPod, container: &str, url: Option<&str>) -> String {
    let text = last_words(pod, container).unwrap_or_else(|| why_ended(pod, container));
    let text = match url.and_then(user_of).filter(|user| !user.is_empty()) {
        Some(user) => text.replace(&format!("{user}@"), ""),
        None => text,
    };
    cut(&text)
}

/// What the Pod that has filled a base from git says of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    /// Of HEAD; `-` where it names none. Empty where the Pod says nothing that is known, as one of another version.
    pub commit: String,
    /// The same, as a full name, e.g. `refs/heads/main`.
    pub branch: String,
    /// Why it was fetched anew, though it began as a clone of the former base.
    pub anew: Option<String>,
}

impl Filled {
    /// Reads what `answer` of the script has written.
    pub(super) fn new(pod: &ObservedPod, container: &str) -> Self {
        let answer = pod.terminated(container).and_then(|ended| ended.message.as_deref()).unwrap_or_default();
        let mut lines = answer.lines();
        let Some((commit, branch)) = lines.next().and_then(|line| line.split_once(' ')) else { return Self::default() };
        if commit != "-" && !is_commit_id(commit) {
            return Self::default();
        }
        Filled { commit: commit.to_owned(), branch: branch.to_owned(), anew: lines.next().map(cut) }
    }
}

/// What the container wrote last, on one line: as many whole lines as a person reads, and of a last line that is longer its end. `None` if nothing is
/// known of it.
pub(super) fn last_words(pod: &ObservedPod, container: &str) -> Option<String> {
    let output = pod.terminated(container).and_then(|t| t.message.as_deref())?;
    let lines = output.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).filter(|line| !line.is_empty());
    let mut lines: Vec<String> = lines.collect();
    let mut words = lines.pop()?;
    while let Some(line) = lines.pop().filter(|line| line.chars().count() + 1 + words.chars().count() <= MAX_FAILURE_CHARS) {
        words = format!("{line} {words}");
    }
    Some(cut(&words))
}

/// Why the Pod ended, in the words of Kubernetes.
pub(super) fn why_ended(pod: &ObservedPod, container: &str) -> String {
    let code = pod.terminated(container).map(|t| format!("its Pod ended with exit code {}", t.exit_code));
    pod.message.clone().or_else(|| pod.reason.clone()).or(code).unwrap_or_else(|| "its Pod failed without a word".to_owned())
}

/// The end of a text, as much of it as a person reads. One that is cut begins with a whole word.
pub(crate) fn cut(text: &str) -> String {
    let too_many = text.chars().count().saturating_sub(MAX_FAILURE_CHARS);
    if too_many == 0 {
        return text.to_owned();
    }
    let end: String = text.chars().skip(too_many).collect();
    // A word without an end, as of a base64 text, is better than none.
    let whole = end.split_once(' ').map_or(&*end, |(_, rest)| rest);
    format!("... {whole}")
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    fn failure_of(message: &str) -> String {
        let ended = serde_json::json!({ "terminated": { "exitCode": 1, "message": message } });
        let status = serde_json::json!({ "phase": "Failed", "containerStatuses": [{ "name": "populate", "image": "", "imageID": "",
            "ready": false, "restartCount": 0, "state": ended }] });
        let pod: Pod =
            serde_json::from_value(serde_json::json!({ "metadata": {}, "spec": { "containers": [] }, "status": status })).unwrap();
        failure(&pod.into(), "populate", None)
    }

    #[test]
    fn a_failure_begins_with_a_whole_line_or_says_that_it_is_cut() {
        assert_eq!(failure_of("  one\ttwo \n\n three\n"), "one two three");
        let (early, late) = ("early ".repeat(70), "the last line ".repeat(20));
        assert_eq!(failure_of(&format!("{early}\nbetween\n{late}")), format!("between {}", late.trim()));
        let long = format!("word{}", " sentence".repeat(200));
        let words = failure_of(&long);
        assert!(words.starts_with("... sentence sentence") && words.chars().count() <= MAX_FAILURE_CHARS + 4, "{words}");
        assert!(failure_of(&"x".repeat(600)).starts_with("... xxx"));
    }
}
