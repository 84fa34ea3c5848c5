//! Projects whose source is not fetched or not prepared: the cause, by the words of the populator, git and ssh, and the command that mends it.

use kube::ResourceExt;
use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::reason::{self, condition};
use yoi_crds::source::GitSource;
use yoi_crds::{AgentWorkspace, Condition, YoiProject};
use yoi_plan::meta::controlled_by;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed};
use super::or_ok;
use crate::remedy::fix_command;

/// What is wrong with a source that a populator could not fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    TokenRefused,
    KeyRefused,
    NoCredentials,
    HostMayNotHaveCredentials,
    HostUnknown,
    HostChanged,
    Passphrase,
    SecretMissing,
    SecretKeyMissing,
    HostNotAllowed,
    CaMissing,
    RefGone,
    CommitGone,
    NoSpace,
    ServerSilent,
}

/// The words that tell each fault; the first that is in the message counts. Those of git, ssh and the kernel are not the populator's own.
const FAULTS: &[(&str, Fault)] = &[
    ("refuses username and password of Secret", Fault::TokenRefused),
    ("HOST IDENTIFICATION HAS CHANGED", Fault::HostChanged),
    (", which shows ", Fault::HostUnknown),
    ("asks for a user, or has no such repository", Fault::NoCredentials),
    ("asks for a user, and gets none", Fault::HostMayNotHaveCredentials),
    ("does not exist in this namespace, or is empty", Fault::SecretMissing),
    ("has no key", Fault::SecretKeyMissing),
    ("must be a private key without a passphrase", Fault::Passphrase),
    ("does not exist in this namespace, or holds no certificate", Fault::CaMissing),
    ("which nobody has allowed", Fault::HostNotAllowed),
    ("the source has no branch, tag or commit", Fault::RefGone),
    ("the server does not give it any more", Fault::CommitGone),
    ("the server has sent nothing", Fault::ServerSilent),
    ("Permission denied (publickey", Fault::KeyRefused),
    ("No space left on device", Fault::NoSpace),
];

/// Those of [`FAULTS`] that other programs say.
#[cfg(test)]
const WORDS_OF_OTHERS: [&str; 3] = ["HOST IDENTIFICATION HAS CHANGED", "Permission denied (publickey", "No space left on device"];

impl Fault {
    fn of(message: &str) -> Option<Self> {
        FAULTS.iter().find(|(words, _)| message.contains(words)).map(|(_, fault)| *fault)
    }

    /// What is the matter, in one sentence. `secret` is the one of the spec.
    fn cause(self, secret: &str) -> String {
        match self {
            Fault::TokenRefused => format!("the token in Secret {secret} has expired, is wrong, or may not read the repository"),
            Fault::KeyRefused => {
                format!("the server does not take the key in Secret {secret}: it must be among the repository's deploy keys")
            }
            Fault::NoCredentials => {
                "the repository wants a user, or does not exist, and spec.source.git.credentialsSecretRef names no Secret".to_owned()
            }
            Fault::HostMayNotHaveCredentials => {
                "a host of a submodule wants a user, and spec.source.git.submoduleHosts does not name it".to_owned()
            }
            Fault::HostUnknown => {
                format!("known_hosts in Secret {secret} does not list the server: compare its fingerprint with what its owner publishes")
            }
            Fault::HostChanged => {
                format!("the server shows another key than known_hosts in Secret {secret} has: ask its owner before you replace the line")
            }
            Fault::Passphrase => format!("the key in Secret {secret} has a passphrase or is damaged: it must be one without"),
            Fault::SecretMissing => format!("Secret {secret} does not exist, or is empty"),
            Fault::SecretKeyMissing => format!("Secret {secret} lacks a key"),
            Fault::HostNotAllowed => "a submodule or git LFS is on a host that spec.source.git.submoduleHosts does not name".to_owned(),
            Fault::CaMissing => "the ConfigMap of spec.source.git.caRef is missing, or holds no certificate".to_owned(),
            Fault::RefGone => {
                "the branch, tag or commit of spec.source.git.ref is not in the repository: it was renamed or deleted, or never pushed"
                    .to_owned()
            }
            Fault::CommitGone => "the branch was moved by force, and the server has dropped the commit that other nodes hold".to_owned(),
            Fault::NoSpace => "the disk of the base's node is full".to_owned(),
            Fault::ServerSilent => {
                "the server is not reached: it is down, or the chart's agents.populatorEgress does not let Pods reach it".to_owned()
            }
        }
    }

    /// What mends it. The user replaces words in capitals, and pipes or names what is secret: none of it is an argument.
    fn command(self, project: &YoiProject, git: &GitSource) -> String {
        let namespace = project.namespace().unwrap_or_default();
        let secret = git.credentials_secret_ref.as_ref().map_or("NAME", |secret| &secret.name);
        let edit = || format!("kubectl edit yoiproject {} -n {namespace}", project.name_any());
        let is_ssh = !git.url.starts_with("https://");
        let files = if is_ssh {
            "--from-file=ssh-privatekey=KEYFILE --from-file=known_hosts=HOSTSFILE"
        } else {
            "--from-file=username=USERFILE --from-file=password=TOKENFILE"
        };
        let replace =
            || format!("kubectl create secret generic {secret} -n {namespace} {files} --dry-run=client -o yaml | kubectl apply -f -");
        match self {
            Fault::TokenRefused | Fault::KeyRefused | Fault::HostUnknown | Fault::HostChanged | Fault::Passphrase => replace(),
            Fault::SecretMissing | Fault::SecretKeyMissing => replace(),
            Fault::NoCredentials | Fault::HostMayNotHaveCredentials | Fault::HostNotAllowed | Fault::RefGone | Fault::CommitGone => edit(),
            Fault::CaMissing => match &git.ca_ref {
                Some(ca) => format!("kubectl create configmap {} -n {namespace} --from-file={}=PEMFILE", ca.name, ca.key),
                None => edit(),
            },
            Fault::NoSpace => "kubectl get workspacenodes".to_owned(),
            Fault::ServerSilent => format!("kubectl describe networkpolicy yoi-populators -n {namespace}"),
        }
    }
}

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let living = |project: &&YoiProject| project.metadata.deletion_timestamp.is_none();
    let found = listed(&observed.projects).iter().filter(living).filter_map(|project| finding(observed, project)).collect();
    or_ok(found, observed.projects.is_ok(), "sources", || "every source could be fetched and prepared".to_owned())
}

/// The finding of a project whose source was not fetched for a known cause, or not prepared.
pub(super) fn finding(observed: &ObservedCluster, project: &YoiProject) -> Option<Finding> {
    let conditions = project.status.as_ref()?.conditions.as_slice();
    let said = find(conditions, condition::SOURCE_READY).filter(|c| c.status != ConditionStatus::True)?;
    if said.reason == reason::PREPARE_FAILED {
        return Some(not_prepared(observed, project, said));
    }
    let (cause, command) = cause_and_command(project, &said.message).filter(|_| said.reason == reason::POPULATE_FAILED)?;
    Some(Finding::error(display_name(project), format!("{cause}: {}", said.message), command))
}

/// What is the matter with the project's repository, and the command that mends it, by the words of a Pod that was to fetch from it or push to it.
pub(super) fn cause_and_command(project: &YoiProject, message: &str) -> Option<(String, String)> {
    let git = project.spec.source.git.as_deref()?;
    let fault = Fault::of(message)?;
    let secret = git.credentials_secret_ref.as_ref().map_or("", |secret| &secret.name);
    Some((fault.cause(secret), fault.command(project, git)))
}

fn not_prepared(observed: &ObservedCluster, project: &YoiProject, said: &Condition) -> Finding {
    let is_base = |tree: &&AgentWorkspace| tree.spec.base.is_some() && project.uid().is_some_and(|uid| controlled_by(&tree.metadata, &uid));
    let bases: Vec<String> = listed(&observed.workspaces).iter().filter(is_base).filter_map(ResourceExt::uid).collect();
    let is_prepare = |pod: &&k8s_openapi::api::core::v1::Pod| {
        let role = pod.labels().get(yoi_crds::name::label::ROLE).map(String::as_str);
        role == Some(yoi_crds::name::label::ROLE_PREPARE) && bases.iter().any(|base| controlled_by(&pod.metadata, base))
    };
    let pod = listed(&observed.pods).iter().find(is_prepare);
    let command = match pod {
        Some(pod) => format!("kubectl logs {} -n {} --tail=100", pod.name_any(), pod.namespace().unwrap_or_default()),
        None => fix_command(project, reason::PREPARE_FAILED),
    };
    let is_full = Fault::of(&said.message) == Some(Fault::NoSpace);
    let command = if is_full { "kubectl get workspacenodes".to_owned() } else { command };
    Finding::error(display_name(project), format!("spec.prepare failed: {}", said.message), command)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy};
    use super::super::{Severity, check_named};
    use super::*;
    use serde_json::{Value, json};

    fn project(url: &str, reason: &str, message: &str) -> YoiProject {
        let conditions = ["SourceReady", "Ready"].map(|type_| {
            json!({ "type": type_, "status": "False", "reason": reason, "message": message,
                "lastTransitionTime": "2026-11-21T12:00:00Z", "observedGeneration": 1 })
        });
        let git = json!({ "url": url, "credentialsSecretRef": { "name": "clone-key" }, "caRef": { "name": "cas", "key": "ca.crt" } });
        let object = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiProject", "metadata": { "name": "p", "namespace": "ns", "uid": "uid-p" },
            "spec": { "source": { "git": git } }, "status": { "conditions": conditions } });
        serde_json::from_value(object).unwrap()
    }

    fn observed(url: &str, reason: &str, message: &str) -> ObservedCluster {
        ObservedCluster { projects: Ok(vec![project(url, reason, message)]), ..healthy() }
    }

    /// Each message is as the populator's tests against real servers see it.
    #[test]
    fn each_cause_that_a_populator_can_tell_comes_with_the_command_that_mends_it() {
        const HTTPS: &str = "https://git.example/p.git";
        const SSH: &str = "ssh://git@git.example/p.git";
        let (token, key) = ("--from-file=username=USERFILE --from-file=password=TOKENFILE", "--from-file=ssh-privatekey=KEYFILE");
        let mut observed = healthy();
        for (url, message, cause, command) in [
            (
                HTTPS,
                "fatal: Authentication failed for 'https://git.example/p.git/' git.example refuses username and password of Secret clone-key: has the token expired, and may it read this repository?",
                "has expired, is wrong",
                token,
            ),
            (
                SSH,
                "git@git.example: Permission denied (publickey). fatal: Could not read from remote repository.",
                "does not take the key in Secret clone-key",
                key,
            ),
            (
                HTTPS,
                "git.example asks for a user, or has no such repository: name a Secret with username and password in spec.source.git.credentialsSecretRef",
                "names no Secret",
                "kubectl edit yoiproject p -n ns",
            ),
            (
                HTTPS,
                "lib.example asks for a user, and gets none: name it in spec.source.git.submoduleHosts if it may have the credentials",
                "submoduleHosts does not name it",
                "kubectl edit yoiproject p -n ns",
            ),
            (
                SSH,
                "Host key verification failed. known_hosts of Secret clone-key does not list git.example, which shows SHA256:abc (ED25519) now: compare it with what its owner publishes, then add its line",
                "does not list the server",
                key,
            ),
            (SSH, "WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! known_hosts of Secret clone-key", "shows another key", key),
            (
                SSH,
                "Load key: incorrect passphrase supplied to decrypt private key; ssh-privatekey of Secret clone-key must be a private key without a passphrase, whose last line ends with a line feed",
                "has a passphrase",
                key,
            ),
            (
                HTTPS,
                "Secret clone-key does not exist in this namespace, or is empty: it must hold username and password",
                "does not exist, or is empty",
                "kubectl create secret generic clone-key -n ns ",
            ),
            (SSH, "Secret clone-key has no key known_hosts: it must hold", "lacks a key", "--from-file=known_hosts=HOSTSFILE"),
            (
                HTTPS,
                "submodule vendor/x is on host evil.example, which nobody has allowed: name it in spec.source.git.submoduleHosts",
                "on a host that",
                "kubectl edit yoiproject p -n ns",
            ),
            (
                HTTPS,
                "key ca.crt of ConfigMap cas does not exist in this namespace, or holds no certificate in PEM: spec.source.git.caRef",
                "is missing, or holds no certificate",
                "kubectl create configmap cas -n ns --from-file=ca.crt=PEMFILE",
            ),
            (HTTPS, "the source has no branch, tag or commit main", "renamed or deleted", "kubectl edit yoiproject p -n ns"),
            (
                HTTPS,
                "another node holds commit abc of the source, and the server does not give it any more",
                "moved by force",
                "kubectl edit yoiproject p -n ns",
            ),
            (HTTPS, "error: unable to write file: No space left on device", "is full", "kubectl get workspacenodes"),
            (
                HTTPS,
                "the server has sent nothing for 60 s; does it work, and may Pods of this namespace reach it?",
                "is not reached",
                "networkpolicy yoi-populators -n ns",
            ),
        ] {
            observed.projects = Ok(vec![project(url, "PopulateFailed", &format!("the base could not be filled from {url}: {message}"))]);
            let [finding] = &check(&observed)[..] else { panic!("{message}: one finding") };
            assert_eq!((finding.object.as_str(), finding.severity), ("YoiProject ns/p", Severity::Error), "{message}");
            assert!(finding.message.contains(cause), "{message}: {}", finding.message);
            assert!(finding.message.ends_with(message), "the populator's own words are gone: {}", finding.message);
            let text = finding.command.as_deref().unwrap();
            assert!(text.contains(command), "{message}: {text}");
            let twice = super::super::agents::check(&observed);
            assert!(twice.iter().all(|f| f.object != finding.object), "{message}: it is told twice: {twice:?}");
        }
    }

    #[test]
    fn the_words_are_those_of_the_populators_script() {
        let script = yoi_plan::workspace::populate_pod::SCRIPT;
        for (words, fault) in FAULTS.iter().filter(|(words, _)| !WORDS_OF_OTHERS.contains(words)) {
            assert!(script.contains(words), "no script says {words:?} any more: {fault:?} is not found");
        }
    }

    #[test]
    fn a_failure_of_prepare_shows_the_log_of_the_pod_that_it_ran_in() {
        let message = "the base could not be prepared by Pod b-prepare-2: the command ended with exit code 2: no such header";
        let mut observed = observed("https://git.example/p.git", "PrepareFailed", message);
        let finding = expect_finding(&observed, "sources", &format!("spec.prepare failed: {message}"));
        assert_eq!(finding.command.unwrap(), "kubectl logs -n ns -l yoi.dev/role=prepare --tail=100");
        let owned = |kind: &str, name: &str, uid: &str, owner: &str, labels: Value| {
            json!({ "name": name, "namespace": "ns", "uid": uid, "labels": labels, "creationTimestamp": "2026-11-21T11:59:58Z",
                "ownerReferences": [{ "apiVersion": "yoi.dev/v1alpha1", "kind": kind, "name": owner, "uid": owner, "controller": true }] })
        };
        let base = json!({ "apiVersion": "yoi.dev/v1alpha1", "kind": "AgentWorkspace", "metadata": owned("YoiProject", "b", "uid-b", "uid-p", json!({})),
            "spec": { "source": { "empty": {} }, "base": { "generation": "g", "node": "n" } } });
        observed.workspaces.as_mut().unwrap().push(serde_json::from_value(base).unwrap());
        for (name, owner) in [("other-prepare-1", "uid-other"), ("b-prepare-2", "uid-b")] {
            let pod = json!({ "metadata": owned("AgentWorkspace", name, name, owner, json!({ "yoi.dev/role": "prepare" })) });
            observed.pods.as_mut().unwrap().push(serde_json::from_value(pod).unwrap());
        }
        assert_eq!(expect_finding(&observed, "sources", message).command.unwrap(), "kubectl logs b-prepare-2 -n ns --tail=100");
    }

    #[test]
    fn a_failure_that_nobody_knows_is_left_to_the_check_of_agents() {
        let observed = observed("https://git.example/p.git", "PopulateFailed", "fatal: the remote end hung up unexpectedly");
        assert_eq!(check_named(&observed, "sources")[0].severity, Severity::Ok);
        assert!(expect_finding(&observed, "agents", "hung up").message.contains("PopulateFailed"));
    }
}
