//! Agents whose last push failed: the cause, by the words of the pusher, git and the server, and the command that mends it.

use kube::ResourceExt;
use yoi_crds::YoiPod;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::reason::{self, condition};

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed};
use super::{or_ok, sources};
use crate::remedy::fix_command;

/// Why commits are not on their branch, beside what keeps a source from being fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PushFault {
    Moved,
    LeaseBroken,
    Full,
    TooLarge,
    Locked,
    Rule,
    LfsPointers,
}

/// The words that tell each fault; the first that is in the message counts. Servers have words of their own for what is full or too large.
const FAULTS: &[(&str, PushFault)] = &[
    ("has moved: it is at", PushFault::Moved),
    ("as --force-with-lease says", PushFault::LeaseBroken),
    ("the commits hold pointers of git LFS", PushFault::LfsPointers),
    ("No space left on device", PushFault::Full),
    ("Disk quota exceeded", PushFault::Full),
    ("quota exceeded", PushFault::Full),
    ("over its size limit", PushFault::Full),
    ("exceeds GitHub's file size limit", PushFault::TooLarge),
    ("pack exceeds maximum allowed size", PushFault::TooLarge),
    ("larger than the maximum file size", PushFault::TooLarge),
    ("HTTP 413", PushFault::TooLarge),
    (".lock': File exists", PushFault::Locked),
    ("[remote rejected]", PushFault::Rule),
];

impl PushFault {
    fn of(message: &str) -> Option<Self> {
        FAULTS.iter().find(|(words, _)| message.contains(words)).map(|(_, fault)| *fault)
    }

    fn cause(self) -> &'static str {
        match self {
            PushFault::Moved => "somebody else has pushed to the branch since: take another branch, or let the agent rebase its commits",
            PushFault::LeaseBroken => "the branch is not where --force-with-lease expects it: look at it before anything there is lost",
            PushFault::Full => {
                "the server has no room for the commits: ask its owner, who raises the quota of the repository or frees its disk"
            }
            PushFault::TooLarge => {
                "a file or the whole is larger than the server takes: let the agent take it out of its commits, not only delete it"
            }
            PushFault::Locked => {
                "another push holds the lock of the branch: push again, and if it stays, the server's owner removes what a killed push has left"
            }
            PushFault::Rule => "a rule of the server refuses the branch or the commits: take a branch that it allows",
            PushFault::LfsPointers => {
                "the files of git LFS are in the agent's tree only: let the agent commit without them, or take the commits with pull"
            }
        }
    }

    fn command(self, agent: &YoiPod, branch: &str) -> String {
        let (name, namespace) = (agent.name_any(), agent.namespace().unwrap_or_default());
        match self {
            PushFault::Moved | PushFault::Rule => format!("kubectl yoi push {name} -n {namespace} --branch OTHER"),
            PushFault::LeaseBroken => format!("kubectl yoi push {name} -n {namespace} --branch {branch} --force-with-lease=COMMIT"),
            PushFault::LfsPointers => format!("kubectl yoi pull {name} -n {namespace}"),
            PushFault::Full | PushFault::Locked => format!("kubectl yoi push {name} -n {namespace} --branch {branch}"),
            PushFault::TooLarge => format!("kubectl yoi diff {name} -n {namespace}"),
        }
    }
}

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let living = |agent: &&YoiPod| agent.metadata.deletion_timestamp.is_none();
    let found = listed(&observed.yoipods).iter().filter(living).filter_map(|agent| finding(observed, agent)).collect();
    or_ok(found, observed.yoipods.is_ok() && observed.projects.is_ok(), "pushes", || "no agent's last push has failed".to_owned())
}

fn finding(observed: &ObservedCluster, agent: &YoiPod) -> Option<Finding> {
    let status = agent.status.as_ref()?;
    let said =
        find(&status.conditions, condition::PUSHED).filter(|c| c.status != ConditionStatus::True && c.reason == reason::PUSH_FAILED)?;
    let outcome = status.push.as_ref().and_then(|push| push.outcome.as_ref());
    let branch = outcome.map_or("BRANCH", |outcome| &outcome.branch);
    let at_source = || sources::cause_and_command(observed.project_of(agent)?, &said.message);
    let own = PushFault::of(&said.message).map(|fault| (fault.cause().to_owned(), fault.command(agent, branch)));
    let (what, command) = match own.or_else(at_source) {
        Some((cause, command)) => (format!("its last push failed; {cause}: {}", said.message), command),
        None => (format!("its last push failed: {}", said.message), fix_command(agent, reason::PUSH_FAILED)),
    };
    Some(Finding::error(display_name(agent), what, command))
}

#[cfg(test)]
mod tests {
    use super::super::Severity;
    use super::super::sample::{expect_finding, healthy};
    use super::*;
    use serde_json::json;

    fn after_push(reason: &str, message: &str) -> ObservedCluster {
        let git = json!({ "url": "https://git.example/p.git", "credentialsSecretRef": { "name": "token" } });
        let project = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": { "name": "p", "namespace": "ns" },
            "spec": { "source": { "git": git } } });
        let conditions = json!([{ "type": "Pushed", "status": "False", "reason": reason, "message": message,
            "lastTransitionTime": "2026-11-21T12:00:00Z", "observedGeneration": 1 }]);
        let outcome = json!({ "id": "1", "result": "Failed", "branch": "yoi/a", "message": message, "finishedAt": "2026-11-21T12:00:00Z" });
        let agent = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": "a", "namespace": "ns" },
            "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} } }, "status": { "conditions": conditions, "push": { "outcome": outcome } } });
        let (project, agent) = (serde_json::from_value(project).unwrap(), serde_json::from_value(agent).unwrap());
        ObservedCluster { projects: Ok(vec![project]), yoipods: Ok(vec![agent]), ..healthy() }
    }

    /// The words of git and of its servers, and those that tests against real servers see from the pusher.
    #[test]
    fn each_cause_of_a_failed_push_comes_with_the_command_that_mends_it() {
        for (message, cause, command) in [
            (
                "branch yoi/a has moved: it is at abc, and the agent's commit def is not made on top of that",
                "somebody else",
                "--branch OTHER",
            ),
            (
                "branch yoi/a is at abc, and not at def, as --force-with-lease says: nothing was pushed",
                "not where",
                "--force-with-lease=COMMIT",
            ),
            (
                "remote: fatal: write error: No space left on device ! [remote rejected] def -> yoi/a (unpacker error)",
                "no room",
                "--branch yoi/a",
            ),
            ("remote: GitLab: repository has exceeded its limit: quota exceeded", "no room", "--branch yoi/a"),
            ("remote: error: File big.bin is 120.00 MB; this exceeds GitHub's file size limit of 100.00 MB", "larger", "diff a"),
            ("error: RPC failed; HTTP 413 curl 22 The requested URL returned error: 413", "larger", "diff a"),
            (
                "remote: error: cannot lock ref 'refs/heads/yoi/a': Unable to create '/r/yoi/a.lock': File exists. ! [remote rejected]",
                "the lock",
                "--branch yoi/a",
            ),
            (
                "branches of yoi/ are reviewed first ! [remote rejected] def -> yoi/a (pre-receive hook declined)",
                "a rule",
                "--branch OTHER",
            ),
            ("the commits hold pointers of git LFS, whose files are in the agent's tree only", "of git LFS", "kubectl yoi pull a"),
            (
                "git.example refuses username and password of Secret token: has the token expired?",
                "has expired",
                "create secret generic token",
            ),
            ("something that nobody knows yet", "its last push failed: something", "kubectl yoi push a -n ns"),
        ] {
            let finding = expect_finding(&after_push("PushFailed", message), "pushes", cause);
            assert_eq!((finding.severity, finding.object.as_str()), (Severity::Error, "YoiPod ns/a"), "{message}");
            assert!(finding.message.ends_with(message), "the pusher's own words are gone: {}", finding.message);
            assert!(finding.command.as_deref().unwrap().contains(command), "{message}: {:?}", finding.command);
        }
    }

    #[test]
    fn the_words_of_the_pusher_are_those_of_its_script() {
        for (words, fault) in
            FAULTS.iter().filter(|(_, fault)| matches!(fault, PushFault::Moved | PushFault::LeaseBroken | PushFault::LfsPointers))
        {
            assert!(yoi_plan::yoipod::push::SCRIPT.contains(words), "no script says {words:?} any more: {fault:?} is not found");
        }
    }

    #[test]
    fn a_push_that_goes_on_or_had_nothing_to_push_is_no_finding() {
        for reason in ["Pushing", "NothingToPush"] {
            let [finding] = &check(&after_push(reason, "it says so"))[..] else { panic!("{reason}: one finding") };
            assert_eq!(finding.severity, Severity::Ok, "{reason}");
        }
    }
}
