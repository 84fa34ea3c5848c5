//! Objects that are not Ready and should be, with the command of the reason.

use kube::ResourceExt;
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::pod::{Completion, DesiredState};
use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_plan::yoipod::workspace_name;

use super::super::finding::{Finding, Severity};
use super::super::observed::{ObservedCluster, display_name, listed};
use super::{or_ok, pod, sources};
use crate::remedy::{self, fill_command, fix_command};

/// An object that is not Ready for longer than this is not merely starting. In seconds.
const GRACE_SECONDS: i64 = 120;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    // Trees that are gone and reported with their agent.
    let mut reported = Vec::new();
    for project in listed(&observed.projects).iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let conditions = project.status.as_ref().map(|s| s.conditions.as_slice());
        // The check of sources knows more of it.
        if sources::finding(observed, project).is_none() {
            found.extend(not_ready(observed, project, conditions, None));
        }
    }
    for yoipod in listed(&observed.yoipods).iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let conditions = yoipod.status.as_ref().map(|s| s.conditions.as_slice());
        let lost = lost_tree(yoipod, conditions, |reason, namespace| {
            // Its session is about the tree that is gone, so a new one has to be allowed, too.
            let allow = fix_command(yoipod, reason::TREE_DELETED);
            if reason == reason::TREE_DELETED {
                allow
            } else if reason == reason::TREE_AND_SESSION_LOST {
                fix_command(yoipod, reason)
            } else {
                format!("{} && {allow}", fill_command(reason, "agentworkspace", workspace_name(yoipod), namespace))
            }
        });
        let is_to_run = match yoipod.spec.desired_state {
            DesiredState::Running | DesiredState::Suspended => {
                let is_over = yoi_plan::yoipod::lifetime_is_over(yoipod) || yoi_plan::yoipod::loan_is_over(yoipod);
                let has_ended = is_finished(yoipod) || is_over;
                !has_ended && !yoi_plan::yoipod::may_be_woken(yoipod)
            }
            DesiredState::Stopped | DesiredState::Unknown => false,
        };
        if lost.is_none() && is_to_run {
            found.extend(not_ready(observed, yoipod, conditions, missing_secret_command(observed, yoipod, conditions)));
        }
        reported.extend(lost.as_ref().map(|_| (yoipod.namespace(), workspace_name(yoipod).to_owned())));
        found.extend(lost);
        let failed = conditions.and_then(|c| find(c, condition::TASK_COMPLETE)).filter(|c| reason::is_task_failure(&c.reason));
        found.extend(failed.map(|c| {
            Finding::note(
                display_name(yoipod),
                format!("{}: {}", c.reason, c.message),
                fix_command(yoipod, Reason::from_name(&c.reason).unwrap_or(reason::TASK_FAILED)),
            )
        }));
    }
    for peer in listed(&observed.peers).iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        found.extend(not_ready(observed, peer, peer.status.as_ref().map(|s| s.conditions.as_slice()), None));
    }
    // A base is reported with its project, and the operator makes it again when it is lost.
    let lasting = |w: &&AgentWorkspace| w.spec.base.is_none() && w.metadata.deletion_timestamp.is_none();
    for workspace in listed(&observed.workspaces).iter().filter(lasting) {
        let conditions = workspace.status.as_ref().map(|s| s.conditions.as_slice());
        let lost =
            lost_tree(workspace, conditions, |reason, namespace| fill_command(reason, "agentworkspace", &workspace.name_any(), namespace));
        // The tree of an agent is reported with its YoiPod.
        if lost.is_none() && workspace.metadata.owner_references.is_none() {
            found.extend(not_ready(observed, workspace, conditions, None));
        }
        found.extend(lost.filter(|_| !reported.contains(&(workspace.namespace(), workspace.name_any()))));
    }
    found.extend(failing_pods(observed, &found));
    let complete = observed.projects.is_ok()
        && observed.yoipods.is_ok()
        && observed.peers.is_ok()
        && observed.workspaces.is_ok()
        && observed.pods.is_ok();
    or_ok(found, complete, "agents", || {
        let (agents, projects) = (listed(&observed.yoipods).len(), listed(&observed.projects).len());
        format!("{agents} YoiPods and {projects} YoiProjects are as they should be")
    })
}

/// Returns whether an agent has stopped because its task has ended. Such an agent is not Ready, and that is no fault.
fn is_finished(yoipod: &YoiPod) -> bool {
    let conditions = yoipod.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let has = |type_, reasons: &[Reason]| find(conditions, type_).is_some_and(|c| reasons.iter().any(|reason| c.reason == *reason));
    yoipod.spec.completion == Completion::Stop
        && has(condition::READY, &[reason::STOPPED])
        && find(conditions, condition::TASK_COMPLETE)
            .is_some_and(|c| c.reason == reason::TASK_SUCCEEDED || reason::is_task_failure(&c.reason))
}

/// Returns the finding for a lost tree. A stopped agent has one too, because its tree does not come back when it starts.
fn lost_tree<K: kube::Resource<DynamicType = ()>>(
    object: &K,
    conditions: Option<&[Condition]>,
    command: impl FnOnce(Reason, &str) -> String,
) -> Option<Finding> {
    let gone = [reason::TREE_AND_SESSION_LOST, reason::TREE_LOST, reason::NODE_LOST, reason::TREE_DELETED];
    let is_gone = |reason: &Reason| conditions?.iter().find(|c| c.status != ConditionStatus::True && c.reason == *reason);
    // The first of them says most.
    let condition = gone.iter().find_map(is_gone)?;
    let known = Reason::from_name(&condition.reason)?;
    let advice = known.advice().map(|a| format!(" {a}")).unwrap_or_default();
    let what = format!("{}: {}.{advice}", condition.reason, condition.message.trim_end_matches('.'));
    let command = command(known, &object.namespace().unwrap_or_default());
    Some(Finding::error(display_name(object), what, command))
}

fn not_ready<K>(observed: &ObservedCluster, object: &K, conditions: Option<&[Condition]>, secret_command: Option<String>) -> Option<Finding>
where
    K: kube::Resource<DynamicType = ()>,
{
    let Some(ready) = conditions.and_then(|c| find(c, condition::READY)) else {
        let age = object.creation_timestamp().map_or(0, |t| observed.age(t.0));
        let command = format!("kubectl rollout status deployment yoi-operator -n {} --timeout=60s", observed.operator_namespace);
        return (age > observed.patience(GRACE_SECONDS))
            .then(|| Finding::error(display_name(object), format!("no operator has looked at it in {age} s"), command));
    };
    if ready.status == ConditionStatus::True || ready.reason == reason::WAITING_FOR_CONSUMER {
        return None;
    }
    let age = ready.last_transition_time.parse().map_or(0, |since| observed.age(since));
    let known = Reason::from_name(&ready.reason);
    let severity = if ready.reason == reason::MEMBER_MISSING {
        // A person who deletes an agent for good does that on purpose, and its YoiPeers stay for an agent of that name.
        Severity::Warning
    } else if known.is_some_and(Reason::warns) {
        Severity::Error
    } else if age > observed.patience(GRACE_SECONDS) {
        Severity::Warning
    } else {
        return None;
    };
    let advice = known.and_then(Reason::advice).map(|a| format!(" {a}")).unwrap_or_default();
    let what = format!("not Ready for {}: {}: {}.{advice}", crate::show::duration(age), ready.reason, ready.message.trim_end_matches('.'));
    Some(Finding::of(
        severity,
        display_name(object),
        what,
        secret_command.unwrap_or_else(|| fix_command(object, known.unwrap_or(reason::OTHER))),
    ))
}

/// Returns the command that makes the Secret of the agent's model, if that one is missing.
fn missing_secret_command(observed: &ObservedCluster, yoipod: &YoiPod, conditions: Option<&[Condition]>) -> Option<String> {
    let namespace = yoipod.namespace()?;
    let project = |p: &&YoiProject| p.namespace().as_deref() == Some(&namespace) && p.name_any() == yoipod.spec.project_ref.name;
    let ready = conditions.and_then(|c| find(c, condition::READY));
    remedy::missing_secret_command(yoipod, listed(&observed.projects).iter().find(project), ready, &namespace)
}

/// Returns a finding for each failing Pod whose YoiPod has no finding.
fn failing_pods(observed: &ObservedCluster, others: &[Finding]) -> Vec<Finding> {
    let mut found = Vec::new();
    for p in listed(&observed.pods).iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let age = p.creation_timestamp().map_or(0, |t| observed.age(t.0));
        let namespace = p.namespace().unwrap_or_default();
        let owner = p.labels().get(yoi_crds::name::label::YOIPOD).map(|name| format!("YoiPod {namespace}/{name}"));
        if owner.is_some_and(|owner| others.iter().any(|f| f.object == owner)) {
            continue;
        }
        if let Some(why) = pod::failure(p, listed(&observed.warnings), age) {
            let command = format!("kubectl describe pod {} -n {namespace}", p.name_any());
            found.push(Finding::warning(display_name(p), why, command));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy, set_condition};
    use super::super::{Severity, check_named};
    use super::{Completion, Condition, DesiredState};
    use serde_json::json;

    #[test]
    fn a_reason_that_warns_is_told_at_once_with_its_remedy() {
        let mut observed = healthy();
        set_condition(&mut observed, "Ready", "SourceNotFound", "YoiProject p does not exist in namespace ns");
        let finding = expect_finding(&observed, "agents", "SourceNotFound: YoiProject p does not exist");
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(finding.command.unwrap(), "kubectl apply -n ns -f MANIFEST.yaml");
    }

    #[test]
    fn a_peer_whose_member_was_deleted_is_a_warning() {
        let mut observed = healthy();
        let ready = json!({ "type": "Ready", "status": "False", "reason": "MemberMissing", "message": "YoiPod b does not exist in namespace ns",
            "lastTransitionTime": "2026-11-21T12:00:00Z", "observedGeneration": 1 });
        let peer = json!({ "metadata": { "name": "a.b", "namespace": "ns" }, "spec": { "members": ["a", "b"] }, "status": { "conditions": [ready] } });
        observed.peers = Ok(vec![serde_json::from_value(peer).unwrap()]);
        let finding = expect_finding(&observed, "agents", "MemberMissing: YoiPod b does not exist");
        assert_eq!((finding.severity, finding.command.unwrap().as_str()), (Severity::Warning, "kubectl delete yoipeer a.b -n ns"));
    }

    #[test]
    fn a_missing_secret_is_made_by_its_own_name_and_key() {
        let mut observed = healthy();
        set_condition(&mut observed, "Ready", "SecretMissing", "Secret s with the model's key does not exist");
        let model = json!({ "provider": "OpenAI", "name": "m", "authSecretRef": { "name": "s", "key": "k" } });
        observed.projects.as_mut().unwrap()[0].spec.defaults.model = serde_json::from_value(model).unwrap();
        let command = expect_finding(&observed, "agents", "SecretMissing").command.unwrap();
        assert_eq!(command, "kubectl create secret generic s -n ns --from-literal=k=\"$MODEL_KEY\"");
    }

    #[test]
    fn what_is_on_its_way_gets_time_and_then_is_told() {
        let mut observed = healthy();
        set_condition(&mut observed, "Ready", "Starting", "the Pod is being made");
        assert_eq!(check_named(&observed, "agents")[0].severity, Severity::Ok);
        observed.now += jiff::SignedDuration::from_secs(121);
        let finding = expect_finding(&observed, "agents", "not Ready for 2m: Starting");
        assert_eq!((finding.severity, finding.command.unwrap().as_str()), (Severity::Warning, "kubectl describe yoipod a -n ns"));
    }

    #[test]
    fn a_damaged_log_is_an_error_and_a_stopped_agent_is_none() {
        let mut observed = healthy();
        set_condition(&mut observed, "Ready", "ReplayFailed", "line 3 of x.jsonl is damaged");
        assert!(expect_finding(&observed, "agents", "line 3 of x.jsonl").message.contains("Nothing is overwritten"));
        observed.yoipods.as_mut().unwrap()[0].spec.desired_state = yoi_crds::pod::DesiredState::Stopped;
        assert_eq!(check_named(&observed, "agents")[0].severity, Severity::Ok);
    }

    fn conditions(conditions: &[(&str, &str, &str, &str)]) -> Vec<Condition> {
        let condition = |(type_, status, reason, message): &(&str, &str, &str, &str)| {
            json!({ "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-21T12:00:00Z",
                "observedGeneration": 1 })
        };
        serde_json::from_value(conditions.iter().map(condition).collect()).unwrap()
    }

    #[test]
    fn an_agent_that_stopped_when_its_task_was_done_is_finished_and_no_fault() {
        for (completion, task, severity) in [
            (Completion::Stop, ("TaskComplete", "True", "TaskSucceeded", "the task's run finished"), Severity::Ok),
            (Completion::Stop, ("TaskComplete", "False", "TaskFailed", "the log says why"), Severity::Ok),
            (Completion::Stop, ("TaskComplete", "False", "TaskRunning", "it was given to the agent"), Severity::Warning),
            (Completion::Keep, ("TaskComplete", "True", "TaskSucceeded", "the task's run finished"), Severity::Warning),
        ] {
            let mut observed = healthy();
            let yoipod = &mut observed.yoipods.as_mut().unwrap()[0];
            yoipod.spec.completion = completion;
            let ready = ("Ready", "False", "Stopped", "the task is done and completion is Stop");
            yoipod.status.as_mut().unwrap().conditions = conditions(&[ready, task]);
            observed.now += jiff::SignedDuration::from_hours(200);
            let findings = check_named(&observed, "agents");
            let worst = findings.iter().map(|f| f.severity).filter(|s| *s != Severity::Note).max();
            assert_eq!(worst, Some(severity), "{completion:?} {task:?}: {findings:#?}");
        }
    }

    #[test]
    fn a_tree_that_is_gone_is_told_though_its_agent_is_stopped_and_told_once() {
        for (reason, desired) in
            [("TreeLost", DesiredState::Stopped), ("TreeLost", DesiredState::Running), ("NodeLost", DesiredState::Stopped)]
        {
            let mut observed = healthy();
            let gone = ("Provisioned", "False", reason, "the tree is gone from the node's disk");
            let workspace = &mut observed.workspaces.as_mut().unwrap()[0];
            workspace.metadata.owner_references = Some(vec![Default::default()]);
            workspace.status.as_mut().unwrap().conditions = conditions(&[gone]);
            let finding = expect_finding(&observed, "agents", &format!("{reason}: the tree is gone"));
            assert_eq!((finding.object.as_str(), finding.severity), ("AgentWorkspace ns/a", Severity::Error));

            let yoipod = &mut observed.yoipods.as_mut().unwrap()[0];
            yoipod.spec.desired_state = desired;
            let ready = ("Ready", "False", "Stopped", "desiredState is Stopped");
            yoipod.status.as_mut().unwrap().conditions = conditions(&[ready, ("WorkspaceReady", "False", reason, gone.3)]);
            let findings = check_named(&observed, "agents");
            assert_eq!(findings.len(), 1, "{findings:#?}");
            assert_eq!((findings[0].object.as_str(), findings[0].severity), ("YoiPod ns/a", Severity::Error));
            let command = findings[0].command.as_deref().unwrap();
            assert!(command.starts_with("kubectl delete agentworkspace a -n ns && kubectl annotate yoipod a -n ns "), "{command}");
            let both = ("WorkspaceReady", "False", "TreeAndSessionLost", "the session is gone too");
            observed.yoipods.as_mut().unwrap()[0].status.as_mut().unwrap().conditions =
                conditions(&[("Provisioned", "False", reason, gone.3), both]);
            let findings = check_named(&observed, "agents");
            let command = findings[0].command.as_deref().unwrap();
            assert!(findings.len() == 1 && command == "kubectl yoi rm a -n ns --purge --force", "{findings:?}");
            let ready = ("WorkspaceReady", "False", "TreeDeleted", "the tree was deleted");
            observed.yoipods.as_mut().unwrap()[0].status.as_mut().unwrap().conditions = conditions(&[ready]);
            observed.workspaces = Ok(Vec::new());
            let findings = check_named(&observed, "agents");
            let command = findings[0].command.as_deref().unwrap();
            assert!(
                findings.len() == 1 && command.starts_with("kubectl annotate yoipod a -n ns --overwrite yoi.dev/new-tree="),
                "{findings:?}"
            );
        }
        // The operator makes a lost base again.
        let mut observed = healthy();
        let workspace = &mut observed.workspaces.as_mut().unwrap()[0];
        workspace.spec.base = serde_json::from_value(json!({ "node": "n", "generation": "g" })).unwrap();
        workspace.status.as_mut().unwrap().conditions = conditions(&[("Provisioned", "False", "TreeLost", "gone")]);
        assert_eq!(check_named(&observed, "agents")[0].severity, Severity::Ok);
    }

    #[test]
    fn a_pod_that_crashes_says_it_in_the_kubelets_words() {
        let mut observed = healthy();
        let state = json!([{ "name": "agent", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
            "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 40s" } },
            "lastState": { "terminated": { "exitCode": 101 } } }]);
        observed.pods.as_mut().unwrap()[0].status.as_mut().unwrap().container_statuses = serde_json::from_value(state).unwrap();
        assert!(expect_finding(&observed, "agents", "CrashLoopBackOff back-off 40s").message.ends_with("exit code 101"));
    }
}
