//! The Pod that pushes what an agent has committed: when there is one, what it holds, and what is said of it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::pod::{PushOutcome, PushResult, PushStatus};
use yoi_crds::{Condition, YoiPod, YoiPodStatus};
use yoi_plan::nodes::Nodes;
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{ObservedPod, names, yoipod};

use crate::samples::{now, settings, yoipod_with};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).expect("an object of the kind"))
}

fn ago(seconds: i64) -> String {
    (now() - jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn commit() -> String {
    "c0".repeat(20)
}

fn base() -> String {
    "ba".repeat(20)
}

fn request(id: &str) -> Value {
    json!({"id": id, "branch": "yoi/a", "commit": commit(), "requestedAt": ago(1)})
}

fn git() -> Value {
    json!({"git": {"url": "https://user:secret@git.example/p.git", "credentialsSecretRef": {"name": "key"}, "caRef": {"name": "cas", "key": "ca.pem"}}})
}

/// The stopped agent `a` of a project with this source.
fn seen(source: &Value, spec: Value, status: Value) -> yoipod::Observed {
    let mut whole = json!({"projectRef": {"name": "p"}, "agent": {"builtin": {}}, "desiredState": "Stopped", "task": "work"});
    whole.as_object_mut().expect("a spec").extend(spec.as_object().cloned().unwrap_or_default());
    let yoipod: Arc<YoiPod> = made(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1", "generation": 1, "finalizers": ["yoi.dev/operator"]},
        "spec": whole, "status": status,
    }));
    let tree = json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "tree", "resourceVersion": "1", "finalizers": ["yoi.dev/operator"],
            "ownerReferences": [{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true}]},
        "spec": {"source": {"project": {"name": "p"}}}, "status": {"origin": {"kind": "Base", "workspaceUID": "b"}, "conditions": []},
    });
    let base = json!({
        "metadata": {"name": "base", "namespace": "ns", "uid": "b", "resourceVersion": "1"},
        "spec": {"source": source, "base": {"generation": "g", "node": "n1"}},
        "status": {"volume": {"id": "v", "sizeBytes": 1, "revision": base()}, "conditions": []},
    });
    yoipod::Observed {
        users: vec![Arc::clone(&yoipod)],
        project: Some(made(
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {"source": source, "owner": {"uid": 2000, "gid": 2000}}}),
        )),
        workspace: Some(made(tree)),
        bases: vec![made(base)],
        ..yoipod_with(yoipod, Arc::new(Nodes::default()))
    }
}

fn asked(id: &str) -> yoipod::Observed {
    seen(&git(), json!({}), json!({"push": {"request": request(id)}}))
}

/// As `seen`, after its task has succeeded with completion Stop.
fn finished(spec: Value, push: Value) -> yoipod::Observed {
    let mut stop = json!({"completion": "Stop", "desiredState": "Running"});
    stop.as_object_mut().expect("a spec").extend(spec.as_object().cloned().unwrap_or_default());
    let task = json!({"id": names::task("a", "work"), "state": "Succeeded"});
    seen(&git(), stop, json!({"task": task, "push": push}))
}

fn plan(seen: &yoipod::Observed) -> Plan<YoiPodStatus> {
    yoipod::plan(seen, &settings(), now())
}

fn pushers(plan: &Plan<YoiPodStatus>) -> Vec<Pod> {
    let pods = plan.steps.iter().filter_map(|step| if let Step::EnsurePod(pod) = step { Some((**pod).clone()) } else { None });
    pods.filter(|pod| pod.metadata.name.as_deref() == Some("a-push")).collect()
}

fn made_pod(plan: &Plan<YoiPodStatus>) -> Pod {
    pushers(plan).pop().expect("a Pod")
}

/// The Pod of this plan as the API server has stored it, `seconds` ago.
fn stored(plan: &Plan<YoiPodStatus>, seconds: i64, status: Value) -> Arc<ObservedPod> {
    let mut pod = serde_json::to_value(made_pod(plan)).expect("JSON");
    pod["metadata"]["uid"] = json!("pusher");
    pod["metadata"]["creationTimestamp"] = json!(ago(seconds));
    pod["status"] = status;
    Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod)).into())
}

/// The same Pod, which should have gone `seconds` ago.
fn going(plan: &Plan<YoiPodStatus>, seconds: i64) -> Arc<ObservedPod> {
    let mut pod = made_pod(plan);
    pod.metadata.uid = Some("pusher".to_owned());
    let mut pod = serde_json::to_value(pod).expect("JSON");
    pod["metadata"]["deletionTimestamp"] = json!(ago(seconds));
    pod["spec"]["nodeName"] = json!("n9");
    Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod)).into())
}

fn meta_annotation<'a>(pod: &'a Pod, name: &str) -> &'a str {
    pod.metadata.annotations.as_ref().and_then(|all| all.get(name)).expect("an annotation")
}

fn ended(phase: &str, code: i32, message: &str) -> Value {
    let state = json!({"terminated": {"exitCode": code, "message": message, "finishedAt": ago(0)}});
    json!({"phase": phase, "containerStatuses": [{"name": "push", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}]})
}

/// What follows when the Pod that is made ends so, and the status is as before.
fn after(mut seen: yoipod::Observed, status: Value) -> Plan<YoiPodStatus> {
    let pod = stored(&plan(&seen), 5, status);
    seen.pods = vec![pod];
    plan(&seen)
}

fn push(plan: &Plan<YoiPodStatus>) -> PushStatus {
    plan.status.as_ref().and_then(|status| status.push.as_deref().cloned()).expect("status.push")
}

fn outcome(plan: &Plan<YoiPodStatus>) -> PushOutcome {
    push(plan).outcome.expect("an outcome")
}

fn pushed(plan: &Plan<YoiPodStatus>) -> Condition {
    let conditions = &plan.status.as_ref().expect("a status").conditions;
    conditions.iter().find(|condition| condition.type_ == "Pushed").expect("a condition").clone()
}

fn deletes(plan: &Plan<YoiPodStatus>) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Delete(target) if target.kind == Kind::Pod && target.name == "a-push"))
}

/// The same agent with this as its status.push, and the request.
fn with_push(mut seen: yoipod::Observed, status: &PushStatus, id: &str) -> yoipod::Observed {
    let mut yoipod = (*seen.yoipod).clone();
    let mut status = status.clone();
    status.request = Some(serde_json::from_value(request(id)).expect("a request"));
    yoipod.status.as_mut().expect("a status").push = Some(Box::new(status));
    seen.yoipod = Arc::new(yoipod);
    seen
}

#[test]
fn the_base_of_a_push_is_what_the_trees_own_status_names_and_never_the_agents_word() {
    let variable = |origin: Value, bases: bool| {
        let mut seen = asked("one");
        let mut tree = (**seen.workspace.as_ref().expect("a tree")).clone();
        tree.status.as_mut().expect("a status").origin = serde_json::from_value(origin).expect("an origin");
        seen.workspace = Some(Arc::new(tree));
        if !bases {
            seen.bases.clear();
        }
        let spec = made_pod(&plan(&seen)).spec.expect("a spec");
        spec.containers[0].env.iter().flatten().find(|v| v.name == "BASE").and_then(|v| v.value.clone()).expect("BASE")
    };
    let of = |kind: &str| json!({"kind": kind, "workspaceUID": "b", "revision": base()});
    let without = |kind: &str| json!({"kind": kind, "workspaceUID": "b"});
    for (origin, bases, wanted) in [
        (of("Base"), false, base()),
        (of("Fork"), true, base()),
        (of("Fork"), false, base()),
        (without("Base"), true, base()),
        (without("Base"), false, String::new()),
        (without("Fork"), true, String::new()),
    ] {
        assert_eq!(variable(origin.clone(), bases), wanted, "{origin} {bases}");
    }
}

#[test]
fn a_push_gets_a_pod_with_the_projects_credentials_a_token_for_the_gateway_and_no_volume_of_the_agent() {
    let plan = plan(&asked("one"));
    let pod = made_pod(&plan);
    let labels = pod.metadata.labels.as_ref().expect("labels");
    assert_eq!((labels["yoi.dev/role"].as_str(), labels["yoi.dev/yoipod"].as_str()), ("pusher", "a"));
    let spec = pod.spec.expect("a spec");
    let volumes: Vec<_> = spec.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
    assert_eq!(volumes, ["token", "tmp", "credentials", "ca"]);
    assert!(spec.volumes.iter().flatten().all(|volume| volume.csi.is_none() && volume.persistent_volume_claim.is_none()));
    assert_eq!(spec.automount_service_account_token, Some(false));
    assert_eq!(spec.restart_policy.as_deref(), Some("Never"));
    assert_eq!(spec.security_context.as_ref().and_then(|security| security.run_as_user), Some(2000));
    let container = &spec.containers[0];
    let variable = |name: &str| container.env.iter().flatten().find(|v| v.name == name).and_then(|v| v.value.clone());
    assert_eq!(variable("COMMIT"), Some(commit()));
    assert_eq!(variable("BASE"), Some(base()), "the base of the cluster's objects");
    assert_eq!(
        (variable("BRANCH").as_deref(), variable("EXPECTED").as_deref(), variable("SECRET").as_deref()),
        (Some("yoi/a"), Some(""), Some("key"))
    );
    let mounts = container.volume_mounts.iter().flatten();
    let writable: Vec<_> = mounts.filter(|mount| mount.read_only != Some(true)).map(|mount| mount.mount_path.as_str()).collect();
    assert_eq!(writable, ["/tmp"]);
    assert_eq!(push(&plan).attempts.map(|attempts| (attempts.id, attempts.count)), Some(("one".to_owned(), 0)), "it is not seen yet");
    let condition = pushed(&plan);
    assert!(
        condition.reason == "Pushing" && condition.message.contains("https://git.example/p.git") && !condition.message.contains("secret")
    );
    assert!(pushers(&self::plan(&seen(&git(), json!({}), json!({})))).is_empty(), "nobody asked");
}

#[test]
fn what_the_pod_says_at_its_end_is_the_outcome_and_then_it_goes() {
    let plan = after(asked("one"), ended("Succeeded", 0, &format!("{} {} 2\n", commit(), base())));
    let outcome = outcome(&plan);
    assert_eq!(
        (outcome.id.as_str(), outcome.result, outcome.commit, outcome.previous),
        ("one", PushResult::Pushed, Some(commit()), Some(base()))
    );
    assert_eq!(outcome.message, format!("branch yoi/a of https://git.example/p.git is at {}; 2 paths are not committed", commit()));
    assert_eq!(pushed(&plan).reason, "Pushed");
    assert!(!deletes(&plan), "its words are not in the status yet");
    let mut seen = with_push(asked("one"), &push(&plan), "one");
    seen.pods = vec![stored(&self::plan(&asked("one")), 9, ended("Succeeded", 0, ""))];
    let next = self::plan(&seen);
    assert!(deletes(&next) && pushers(&next).is_empty());
    assert_eq!(next.status.expect("a status").push.expect("kept").outcome.map(|outcome| outcome.id).as_deref(), Some("one"));
    let nothing = after(asked("one"), ended("Succeeded", 0, "- - 1\n"));
    assert_eq!((self::outcome(&nothing).result, self::outcome(&nothing).commit), (PushResult::Nothing, None));
    assert_eq!(pushed(&nothing).reason, "NothingToPush");
}

#[test]
fn a_refusal_is_final_and_what_broke_off_is_tried_three_times() {
    let refused = after(asked("one"), ended("Failed", 1, "branch yoi/a has moved"));
    assert_eq!(outcome(&refused).result, PushResult::Failed);
    assert!(pushed(&refused).reason == "PushFailed" && pushed(&refused).message.contains("branch yoi/a has moved"));

    let mut status = PushStatus::default();
    for attempt in 1..=3 {
        let seen = with_push(asked("one"), &status, "one");
        let made = plan(&seen);
        assert_eq!(push(&made).attempts.map(|attempts| attempts.count), Some(attempt - 1));
        status = push(&made);
        let seen = with_push(asked("one"), &status, "one");
        let mut failed = seen.clone();
        failed.pods = vec![stored(&made, 400, json!({"phase": "Failed", "reason": "Evicted", "message": "the node is full"}))];
        let next = plan(&failed);
        assert_eq!(push(&next).attempts.map(|attempts| (attempts.count, attempts.no_pod_since)), (attempt < 3).then_some((attempt, None)));
        if attempt < 3 {
            assert!(deletes(&next) && push(&next).outcome.is_none(), "attempt {attempt}");
            assert!(pushed(&next).message.contains("are tried again: the node is full"), "{:?}", pushed(&next));
        } else {
            assert_eq!(outcome(&next).result, PushResult::Failed);
            assert!(outcome(&next).message.contains("in 3 attempts: the node is full"), "{}", outcome(&next).message);
        }
        status = push(&next);
    }
    // Another push begins anew.
    assert_eq!(push(&plan(&with_push(asked("two"), &status, "two"))).attempts.map(|attempts| attempts.count), Some(0));
}

#[test]
fn a_pod_that_just_failed_waits_before_the_next_one_and_pods_that_vanish_are_counted() {
    let plan = after(asked("one"), ended("Failed", 75, "the push failed"));
    assert!(!deletes(&plan) && plan.requeue_after.is_some());
    let vanished: PushStatus = serde_json::from_value(json!({"attempts": {"id": "one", "count": 3}})).expect("a status");
    let plan = self::plan(&with_push(asked("one"), &vanished, "one"));
    assert!(pushers(&plan).is_empty() && outcome(&plan).message.contains("3 Pods were deleted"), "{:?}", outcome(&plan));
}

#[test]
fn a_pod_that_cannot_start_is_explained_and_given_up_after_ten_minutes() {
    let waits = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}]});
    let mut seen = asked("one");
    let made = plan(&seen);
    seen.pods = vec![stored(&made, 5, waits.clone())];
    assert!(pushed(&plan(&seen)).message.contains("0/2 nodes"), "{:?}", pushed(&plan(&seen)));
    seen.pods = vec![stored(&made, 601, waits)];
    let plan = plan(&seen);
    assert_eq!(outcome(&plan).result, PushResult::Failed);
    assert!(outcome(&plan).message.contains("in 600 s it did not begin"), "{}", outcome(&plan).message);
}

#[test]
fn a_pod_that_is_not_seen_is_not_counted_and_one_that_is_never_made_ends_the_push_with_the_refusal() {
    let mut seen = asked("one");
    for round in 0..5 {
        let plan = plan(&seen);
        assert_eq!(meta_annotation(&made_pod(&plan), "yoi.dev/attempt"), "1", "round {round}");
        assert!(plan.requeue_after.is_some(), "round {round}");
        seen = with_push(seen, &push(&plan), "one");
    }
    let mut status = push(&plan(&seen));
    status.attempts.as_mut().expect("attempts").no_pod_since = Some(ago(599));
    assert!(!pushers(&plan(&with_push(asked("one"), &status, "one"))).is_empty());
    status.attempts.as_mut().expect("attempts").no_pod_since = Some(ago(600));
    let mut seen = with_push(asked("one"), &status, "one");
    let ready = json!({"type": "Ready", "status": "False", "reason": "ApplyFailed", "message": "exceeded quota: pods", "lastTransitionTime": ago(9)});
    let mut yoipod = (*seen.yoipod).clone();
    yoipod.status.as_mut().expect("a status").conditions = vec![serde_json::from_value(ready).expect("a condition")];
    seen.yoipod = Arc::new(yoipod);
    let outcome = outcome(&plan(&seen));
    assert_eq!(outcome.result, PushResult::Failed);
    assert!(outcome.message.ends_with("in 600 s no Pod was made that does it: exceeded quota: pods"), "{}", outcome.message);
}

#[test]
fn a_pod_on_a_node_that_is_gone_ends_the_push_and_another_one_after_a_time() {
    let made = plan(&asked("one"));
    for (id, words) in [("one", "it is not known whether the agent's commits were pushed"), ("two", "Pod a-push of a former push")] {
        let mut seen = asked(id);
        seen.pods = vec![going(&made, 599)];
        let waits = plan(&seen);
        assert!(push(&waits).outcome.is_none() && waits.requeue_after.is_some(), "{id}");
        assert_eq!(pushed(&waits).message, "Pod a-push of a former push is going down");
        seen.pods = vec![going(&made, 601)];
        let ends = plan(&seen);
        assert_eq!(outcome(&ends).result, PushResult::Failed);
        let message = outcome(&ends).message;
        assert!(message.contains(words) && message.contains("node n9 does not say that it has"), "{message}");
        assert!(pushers(&ends).is_empty());
    }
}

#[test]
fn a_push_under_way_goes_to_the_source_that_the_project_has_now() {
    let other = json!({"git": {"url": "https://git.example/other.git"}});
    let made = plan(&asked("one"));
    let request = json!({"push": {"request": request("one")}});
    for status in [json!({"phase": "Running"}), ended("Succeeded", 0, &format!("{} - 0", commit()))] {
        let mut moved = seen(&other, json!({}), request.clone());
        moved.pods = vec![stored(&made, 5, status.clone())];
        let next = plan(&moved);
        assert!(deletes(&next) && push(&next).outcome.is_none(), "{next:?}");
        moved.pods = Vec::new();
        let again = plan(&with_push(moved, &push(&next), "one"));
        assert!(serde_json::to_string(&made_pod(&again)).expect("JSON").contains("https://git.example/other.git"));

        let mut none = seen(&json!({"empty": {}}), json!({}), request.clone());
        none.pods = vec![stored(&made, 5, status)];
        let next = plan(&none);
        assert!(deletes(&next) && push(&next).outcome.is_none(), "its Pod goes before it is called failed: {next:?}");
        none.pods = Vec::new();
        assert!(outcome(&plan(&none)).message.contains("is no git repository"));
    }
}

#[test]
fn a_source_that_is_no_git_repository_or_a_project_that_is_gone_is_refused_with_a_sentence() {
    let plan = plan(&seen(&json!({"empty": {}}), json!({}), json!({"push": {"request": request("one")}})));
    assert!(pushers(&plan).is_empty() && outcome(&plan).message.contains("the source of YoiProject p is no git repository"));
    let gone = yoipod::Observed { project: None, ..asked("one") };
    assert!(outcome(&self::plan(&gone)).message.contains("YoiProject p does not exist"));
}

#[test]
fn a_task_that_succeeded_is_pushed_once_and_a_persons_request_does_not_push_it_again() {
    let task = names::task("a", "work");
    let own = json!({"push": {}});
    let pod = made_pod(&plan(&finished(own.clone(), json!({}))));
    let container = pod.spec.expect("a spec").containers.remove(0);
    let variable = |name: &str| container.env.iter().flatten().find(|v| v.name == name).and_then(|v| v.value.clone());
    assert_eq!((variable("BRANCH").as_deref(), variable("COMMIT").as_deref()), (Some("yoi/a"), Some("")), "what is checked out then");
    let named = made_pod(&plan(&finished(json!({"push": {"branch": "results/$(HOME)"}}), json!({}))));
    let text = serde_json::to_string(&named).expect("JSON");
    assert!(text.contains("results/$$(HOME)"), "Kubernetes would replace it: {text}");

    let done = after(finished(own.clone(), json!({})), ended("Succeeded", 0, &format!("{} - 0", commit())));
    assert_eq!((push(&done).task.as_deref(), outcome(&done).id.as_str()), (Some(&*task), &*task));
    let by_hand = with_push(finished(own.clone(), json!({})), &push(&done), "later");
    let by_hand = after(by_hand, ended("Succeeded", 0, &format!("{} - 0", commit())));
    assert_eq!((push(&by_hand).task.as_deref(), outcome(&by_hand).id.as_str()), (Some(&*task), "later"));
    let at_rest = plan(&with_push(finished(own.clone(), json!({})), &push(&by_hand), "later"));
    assert!(pushers(&at_rest).is_empty(), "both are done");

    // The other order: the request was there before the task had succeeded.
    let first = after(with_push(finished(own.clone(), json!({})), &PushStatus::default(), "first"), ended("Succeeded", 0, "- - 0"));
    let then = after(with_push(finished(own.clone(), json!({})), &push(&first), "first"), ended("Succeeded", 0, "- - 0"));
    assert_eq!((outcome(&then).id.as_str(), push(&then).ended_request.as_deref()), (&*task, Some("first")));
    let at_rest = plan(&with_push(finished(own.clone(), json!({})), &push(&then), "first"));
    assert!(pushers(&at_rest).is_empty(), "the request is not pushed again");
    assert_eq!(push(&at_rest), PushStatus { request: None, ..push(&then) });

    let failed = json!({"task": {"id": task, "state": "Failed"}});
    let failed = seen(&git(), json!({"completion": "Stop", "push": {}, "desiredState": "Running"}), failed);
    assert!(pushers(&plan(&failed)).is_empty(), "a task that failed");
    assert!(pushers(&plan(&finished(json!({}), json!({})))).is_empty(), "nobody asks");
}
