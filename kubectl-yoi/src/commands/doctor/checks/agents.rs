//! Objects that are not Ready and should be, with the reason's own remedy.

use kube::ResourceExt;
use yoi_crds::condition::{Condition, ConditionStatus, find};
use yoi_crds::pod::{Completion, DesiredState, Model};
use yoi_crds::reason::{self, Reason, condition};
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_plan::yoipod::workspace_name;

use super::super::finding::{Finding, Severity};
use super::super::world::{World, called, seen};
use super::{or_ok, pod};

/// What takes longer than this is not just on its way.
const PATIENCE: i64 = 120;

pub fn check(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    // Trees that are gone, by the agents that had them.
    let mut told = Vec::new();
    for project in seen(&world.projects).iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let conditions = project.status.as_ref().map(|s| s.conditions.as_slice());
        found.extend(unready(world, project, conditions, None));
    }
    for yoipod in seen(&world.yoipods).iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let conditions = yoipod.status.as_ref().map(|s| s.conditions.as_slice());
        let lost = lost(yoipod, conditions, workspace_name(yoipod));
        if lost.is_none() && yoipod.spec.desired_state == DesiredState::Running && !is_finished(yoipod) {
            found.extend(unready(world, yoipod, conditions, secret(world, yoipod)));
        }
        told.extend(lost.as_ref().map(|_| (yoipod.namespace(), workspace_name(yoipod).to_owned())));
        found.extend(lost);
        let failed = conditions.and_then(|c| find(c, condition::TASK_COMPLETE)).filter(|c| c.reason == reason::TASK_FAILED);
        found.extend(
            failed.map(|c| Finding::note(called(yoipod), format!("{}: {}", c.reason, c.message), remedy(yoipod, reason::TASK_FAILED))),
        );
    }
    for peer in seen(&world.peers).iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        found.extend(unready(world, peer, peer.status.as_ref().map(|s| s.conditions.as_slice()), None));
    }
    // A base tells its story in its project, and comes anew when it is lost.
    let lasting = |w: &&AgentWorkspace| w.spec.base.is_none() && w.metadata.deletion_timestamp.is_none();
    for workspace in seen(&world.workspaces).iter().filter(lasting) {
        let conditions = workspace.status.as_ref().map(|s| s.conditions.as_slice());
        let lost = lost(workspace, conditions, &workspace.name_any());
        // An agent's tree tells its story in its YoiPod.
        if lost.is_none() && workspace.metadata.owner_references.is_none() {
            found.extend(unready(world, workspace, conditions, None));
        }
        found.extend(lost.filter(|_| !told.contains(&(workspace.namespace(), workspace.name_any()))));
    }
    found.extend(pods(world, &found));
    let complete = world.projects.is_ok() && world.yoipods.is_ok() && world.peers.is_ok() && world.workspaces.is_ok() && world.pods.is_ok();
    or_ok(found, complete, "agents", || {
        let (agents, projects) = (seen(&world.yoipods).len(), seen(&world.projects).len());
        format!("{agents} YoiPods and {projects} YoiProjects are as they should be")
    })
}

/// It has done its task and was to stop then: not Ready for good, and well.
fn is_finished(yoipod: &YoiPod) -> bool {
    let conditions = yoipod.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
    let says = |type_, reasons: &[Reason]| find(conditions, type_).is_some_and(|c| reasons.iter().any(|reason| c.reason == *reason));
    yoipod.spec.completion == Completion::Stop
        && says(condition::READY, &[reason::STOPPED])
        && says(condition::TASK_COMPLETE, &[reason::TASK_SUCCEEDED, reason::TASK_FAILED])
}

/// A tree that is gone, whoever wants it now: it does not come back by itself, and who starts the agent later should know it before.
fn lost<K: kube::Resource<DynamicType = ()>>(object: &K, conditions: Option<&[Condition]>, workspace: &str) -> Option<Finding> {
    let gone = [reason::TREE_LOST, reason::NODE_LOST];
    let is_gone = |c: &&Condition| c.status != ConditionStatus::True && gone.iter().any(|reason| c.reason == *reason);
    let said = conditions?.iter().find(is_gone)?;
    let known = Reason::named(&said.reason)?;
    let advice = known.advice().map(|a| format!(" {a}")).unwrap_or_default();
    let what = format!("{}: {}.{advice}", said.reason, said.message.trim_end_matches('.'));
    // Of an agent too the tree alone is made anew: its session stays.
    let command = filled(known, "agentworkspace", workspace, &object.namespace().unwrap_or_default());
    Some(Finding::error(called(object), what, command))
}

fn unready<K>(world: &World, object: &K, conditions: Option<&[Condition]>, exact: Option<String>) -> Option<Finding>
where
    K: kube::Resource<DynamicType = ()>,
{
    let Some(ready) = conditions.and_then(|c| find(c, condition::READY)) else {
        let age = object.creation_timestamp().map_or(0, |t| world.age(t.0));
        let command = format!("kubectl rollout status deployment yoi-operator -n {} --timeout=60s", world.home);
        return (age > PATIENCE).then(|| Finding::error(called(object), format!("no operator has looked at it in {age} s"), command));
    };
    if ready.status == ConditionStatus::True || ready.reason == reason::WAITING_FOR_CONSUMER {
        return None;
    }
    let age = ready.last_transition_time.parse().map_or(0, |since| world.age(since));
    let known = Reason::named(&ready.reason);
    let severity = if known.is_some_and(Reason::warns) {
        Severity::Error
    } else if age > PATIENCE {
        Severity::Warning
    } else {
        return None;
    };
    let advice = known.and_then(Reason::advice).map(|a| format!(" {a}")).unwrap_or_default();
    let what = format!("not Ready for {}: {}: {}.{advice}", crate::show::span(age), ready.reason, ready.message.trim_end_matches('.'));
    let exact = exact.filter(|_| ready.reason == reason::SECRET_MISSING);
    Some(Finding::of(severity, called(object), what, exact.unwrap_or_else(|| remedy(object, known.unwrap_or(reason::OTHER)))))
}

/// The reason's own command for this object, or the look at it.
fn remedy<K: kube::Resource<DynamicType = ()>>(object: &K, reason: Reason) -> String {
    filled(reason, &K::kind(&()).to_lowercase(), &object.name_any(), &object.namespace().unwrap_or_default())
}

fn filled(reason: Reason, kind: &str, name: &str, namespace: &str) -> String {
    // The longer name first: the other one is its beginning.
    let command = reason.command().unwrap_or("kubectl describe $KIND $NAME -n $NAMESPACE");
    command.replace("$NAMESPACE", namespace).replace("$NAME", name).replace("$KIND", kind)
}

/// The Secret that the agent's model asks for, made.
fn secret(world: &World, yoipod: &YoiPod) -> Option<String> {
    let namespace = yoipod.namespace()?;
    let project = |p: &&YoiProject| p.namespace().as_deref() == Some(&namespace) && p.name_any() == yoipod.spec.project_ref.name;
    let default = || seen(&world.projects).iter().find(project).and_then(|p| p.spec.defaults.model.clone());
    let Model { auth_secret_ref, .. } = yoipod.spec.model.clone().or_else(default)?;
    let wanted = auth_secret_ref?;
    Some(format!("kubectl create secret generic {} -n {namespace} --from-literal={}=\"$MODEL_KEY\"", wanted.name, wanted.key))
}

/// Pods in trouble that no finding about their owner speaks of.
fn pods(world: &World, told: &[Finding]) -> Vec<Finding> {
    let mut found = Vec::new();
    for p in seen(&world.pods).iter().filter(|p| p.metadata.deletion_timestamp.is_none()) {
        let age = p.creation_timestamp().map_or(0, |t| world.age(t.0));
        let namespace = p.namespace().unwrap_or_default();
        let owner = p.labels().get(yoi_crds::name::label::YOIPOD).map(|name| format!("YoiPod {namespace}/{name}"));
        if owner.is_some_and(|owner| told.iter().any(|f| f.object == owner)) {
            continue;
        }
        if let Some(why) = pod::trouble(p, seen(&world.warnings), age) {
            let command = format!("kubectl describe pod {} -n {namespace}", p.name_any());
            found.push(Finding::warning(called(p), why, command));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::sample::{condition, found, healthy};
    use super::super::{Severity, check_named};
    use super::{Completion, Condition, DesiredState};
    use serde_json::json;

    #[test]
    fn a_reason_that_warns_is_told_at_once_with_its_remedy() {
        let mut world = healthy();
        condition(&mut world, "Ready", "SourceNotFound", "YoiProject p does not exist in namespace ns");
        let finding = found(&world, "agents", "SourceNotFound: YoiProject p does not exist");
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(finding.command.unwrap(), "kubectl apply -n ns -f MANIFEST.yaml");
    }

    #[test]
    fn a_missing_secret_is_made_by_its_own_name_and_key() {
        let mut world = healthy();
        condition(&mut world, "Ready", "SecretMissing", "missing");
        let model = json!({ "provider": "OpenAI", "name": "m", "authSecretRef": { "name": "s", "key": "k" } });
        world.projects.as_mut().unwrap()[0].spec.defaults.model = serde_json::from_value(model).unwrap();
        let command = found(&world, "agents", "SecretMissing").command.unwrap();
        assert_eq!(command, "kubectl create secret generic s -n ns --from-literal=k=\"$MODEL_KEY\"");
    }

    #[test]
    fn what_is_on_its_way_gets_time_and_then_is_told() {
        let mut world = healthy();
        condition(&mut world, "Ready", "Starting", "the Pod is being made");
        assert_eq!(check_named(&world, "agents")[0].severity, Severity::Ok);
        world.now += jiff::SignedDuration::from_secs(121);
        let finding = found(&world, "agents", "not Ready for 2m: Starting");
        assert_eq!((finding.severity, finding.command.unwrap().as_str()), (Severity::Warning, "kubectl describe yoipod a -n ns"));
    }

    #[test]
    fn a_damaged_log_is_an_error_and_a_stopped_agent_is_none() {
        let mut world = healthy();
        condition(&mut world, "Ready", "ReplayFailed", "line 3 of x.jsonl is damaged");
        assert!(found(&world, "agents", "line 3 of x.jsonl").message.contains("Nothing is overwritten"));
        world.yoipods.as_mut().unwrap()[0].spec.desired_state = yoi_crds::pod::DesiredState::Stopped;
        assert_eq!(check_named(&world, "agents")[0].severity, Severity::Ok);
    }

    fn say(conditions: &[(&str, &str, &str, &str)]) -> Vec<Condition> {
        let said = |(type_, status, reason, message): &(&str, &str, &str, &str)| {
            json!({ "type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": "2026-11-21T12:00:00Z",
                "observedGeneration": 1 })
        };
        serde_json::from_value(conditions.iter().map(said).collect()).unwrap()
    }

    #[test]
    fn an_agent_that_stopped_when_its_task_was_done_is_finished_and_not_ill() {
        for (completion, task, severity) in [
            (Completion::Stop, ("TaskComplete", "True", "TaskSucceeded", "the task's run finished"), Severity::Ok),
            (Completion::Stop, ("TaskComplete", "False", "TaskFailed", "the log says why"), Severity::Ok),
            (Completion::Stop, ("TaskComplete", "False", "TaskRunning", "it was given to the agent"), Severity::Warning),
            (Completion::Keep, ("TaskComplete", "True", "TaskSucceeded", "the task's run finished"), Severity::Warning),
        ] {
            let mut world = healthy();
            let yoipod = &mut world.yoipods.as_mut().unwrap()[0];
            yoipod.spec.completion = completion;
            let ready = ("Ready", "False", "Stopped", "the task is done and completion is Stop");
            yoipod.status.as_mut().unwrap().conditions = say(&[ready, task]);
            world.now += jiff::SignedDuration::from_hours(200);
            let said = check_named(&world, "agents");
            let worst = said.iter().map(|f| f.severity).filter(|s| *s != Severity::Note).max();
            assert_eq!(worst, Some(severity), "{completion:?} {task:?}: {said:#?}");
        }
    }

    #[test]
    fn a_tree_that_is_gone_is_told_though_its_agent_is_stopped_and_told_once() {
        for (reason, desired) in
            [("TreeLost", DesiredState::Stopped), ("TreeLost", DesiredState::Running), ("NodeLost", DesiredState::Stopped)]
        {
            let mut world = healthy();
            let gone = ("Provisioned", "False", reason, "the tree is gone from the node's disk");
            let workspace = &mut world.workspaces.as_mut().unwrap()[0];
            workspace.metadata.owner_references = Some(vec![Default::default()]);
            workspace.status.as_mut().unwrap().conditions = say(&[gone]);
            let told = found(&world, "agents", &format!("{reason}: the tree is gone"));
            assert_eq!((told.object.as_str(), told.severity), ("AgentWorkspace ns/a", Severity::Error));

            let yoipod = &mut world.yoipods.as_mut().unwrap()[0];
            yoipod.spec.desired_state = desired;
            let ready = ("Ready", "False", "Stopped", "desiredState is Stopped");
            yoipod.status.as_mut().unwrap().conditions = say(&[ready, ("WorkspaceReady", "False", reason, gone.3)]);
            let said = check_named(&world, "agents");
            assert_eq!(said.len(), 1, "{said:#?}");
            assert_eq!((said[0].object.as_str(), said[0].severity), ("YoiPod ns/a", Severity::Error));
            assert_eq!(said[0].command.as_deref(), Some("kubectl delete agentworkspace a -n ns"));
        }
        // A base that is lost is made anew by itself.
        let mut world = healthy();
        let workspace = &mut world.workspaces.as_mut().unwrap()[0];
        workspace.spec.base = serde_json::from_value(json!({ "node": "n", "generation": "g" })).unwrap();
        workspace.status.as_mut().unwrap().conditions = say(&[("Provisioned", "False", "TreeLost", "gone")]);
        assert_eq!(check_named(&world, "agents")[0].severity, Severity::Ok);
    }

    #[test]
    fn a_pod_that_crashes_says_it_in_the_kubelets_words() {
        let mut world = healthy();
        let state = json!([{ "name": "agent", "image": "i", "imageID": "", "ready": false, "restartCount": 3,
            "state": { "waiting": { "reason": "CrashLoopBackOff", "message": "back-off 40s" } },
            "lastState": { "terminated": { "exitCode": 101 } } }]);
        world.pods.as_mut().unwrap()[0].status.as_mut().unwrap().container_statuses = serde_json::from_value(state).unwrap();
        assert!(found(&world, "agents", "CrashLoopBackOff back-off 40s").message.ends_with("exit code 101"));
    }
}
