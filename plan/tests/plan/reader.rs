//! The Pod that reads a stopped agent: when there is one, what it may do, and when it goes.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use yoi_crds::condition::ConditionStatus;
use yoi_crds::{AgentWorkspace, Condition, YoiPodStatus};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::settings::Settings;
use yoi_plan::step::{Kind, Plan, Step};
use yoi_plan::{ObservedPod, workspace, yoipod};

use crate::samples::{now, settings, workspace_with, yoipod_with};

pub fn made<T: serde::de::DeserializeOwned>(object: Value) -> Arc<T> {
    Arc::new(serde_json::from_value(object).expect("an object of the kind"))
}

pub fn ago(seconds: i64) -> String {
    (now() - jiff::SignedDuration::from_secs(seconds)).to_string()
}

fn nodes() -> Arc<Nodes> {
    let offer = json!({
        "metadata": {"name": "n"}, "spec": {},
        "status": {"providers": [{"name": "Btrfs", "available": true, "reason": "here"}], "runtimeDigests": ["d"]},
    });
    let node = || Node { offer: Some(made(offer.clone())), ..Node::default() };
    Arc::new(Nodes(["n1", "n2"].iter().map(|n| ((*n).to_owned(), node())).collect()))
}

fn tree() -> Arc<AgentWorkspace> {
    let provisioned = json!({"type": "Provisioned", "status": "True", "reason": "Is", "message": "", "lastTransitionTime": ago(900)});
    made(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "tree", "resourceVersion": "1", "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"],
            "ownerReferences": [{"apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "name": "a", "uid": "a", "controller": true}]},
        "spec": {"source": {"empty": {}}, "path": "/workspace"},
        "status": {"nodeName": "n1", "origin": {"kind": "Empty"}, "owner": {"uid": 2000, "gid": 2000}, "conditions": [provisioned]},
    }))
}

/// The agent `a`, stopped after its third run, and asked for so many seconds ago.
fn stopped(asked: i64) -> yoipod::Observed {
    of_agent(json!({"desiredState": "Stopped"}), json!({"runGeneration": 3, "reader": {"requestedAt": ago(asked)}}))
}

pub fn of_agent(spec: Value, status: Value) -> yoipod::Observed {
    let mut whole = json!({
        "projectRef": {"name": "p"}, "agent": {"builtin": {}},
        "model": {"provider": "OpenAI", "name": "m", "authSecretRef": {"name": "key", "key": "apiKey"}},
    });
    whole.as_object_mut().expect("a spec").extend(spec.as_object().cloned().unwrap_or_default());
    let yoipod = made(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": "a", "resourceVersion": "1", "generation": 1, "finalizers": ["yoi.dev/operator"]},
        "spec": whole, "status": status,
    }));
    let claim = json!({"metadata": {"name": "a-session", "namespace": "ns", "uid": "c", "annotations": {"yoi.dev/yoipod-uid": "a"}},
        "spec": {"volumeName": "v"}, "status": {"phase": "Bound"}});
    yoipod::Observed {
        users: vec![Arc::clone(&yoipod)],
        project: Some(made(
            json!({"metadata": {"name": "p", "namespace": "ns", "uid": "p"}, "spec": {"source": {"empty": {}}, "path": "/workspace"}}),
        )),
        workspace: Some(tree()),
        session_claim: Some(made(claim)),
        ..yoipod_with(yoipod, nodes())
    }
}

fn plan(seen: &yoipod::Observed) -> Plan<YoiPodStatus> {
    yoipod::plan(seen, &settings(), now())
}

/// The Pod that the plan makes, if it makes one.
fn made_pod(plan: &Plan<YoiPodStatus>) -> Option<Pod> {
    plan.steps.iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some((**pod).clone()) } else { None })
}

/// The reader as the API server has stored it, `seconds` ago.
fn stored(seen: &yoipod::Observed, seconds: i64, status: Value) -> Arc<ObservedPod> {
    let mut pod = serde_json::to_value(made_pod(&plan(seen)).expect("a reader")).expect("JSON");
    pod["metadata"]["uid"] = json!("reader");
    pod["metadata"]["creationTimestamp"] = json!(ago(seconds));
    pod["status"] = status;
    Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod)).into())
}

fn running() -> Value {
    json!({"phase": "Running", "containerStatuses": [{"name": "reader", "image": "", "imageID": "", "ready": true, "restartCount": 0, "state": {"running": {}}}]})
}

fn reader_ready(plan: &Plan<YoiPodStatus>) -> Option<&Condition> {
    plan.status.as_ref()?.conditions.iter().find(|c| c.type_ == "ReaderReady")
}

fn deletes(plan: &Plan<YoiPodStatus>, pod: &str) -> bool {
    plan.steps.iter().any(|step| matches!(step, Step::Delete(target) if target.kind == Kind::Pod && target.name == pod))
}

#[test]
fn a_stopped_agent_that_somebody_reads_gets_a_pod_that_writes_nothing_and_holds_no_secret() {
    let plan = plan(&stopped(5));
    let pod = made_pod(&plan).expect("a reader");
    assert_eq!(pod.metadata.name.as_deref(), Some("a-reader"));
    assert_eq!(pod.metadata.labels.as_ref().and_then(|labels| labels.get("yoi.dev/role")).map(String::as_str), Some("reader"));
    let text = serde_json::to_string(&pod).expect("JSON");
    assert!(text.contains(r#"{"name":"session","persistentVolumeClaim":{"claimName":"a-session","readOnly":true}}"#), "{text}");
    assert!(text.contains(r#""readOnly":true,"volumeAttributes":{"yoi.dev/volume":"tree","yoi.dev/workspace-uid":"tree"}"#), "{text}");
    assert!(text.contains(r#""command":["/yoi/bin/yoi-runtime","read"]"#) && text.contains(r#""values":["n1"]"#), "{text}");
    assert!(!text.contains("secretKeyRef") && !text.contains("configMap") && !text.contains("YOI_RUN_GENERATION"), "{text}");
    let mounts = pod.spec.expect("a spec").containers.remove(0).volume_mounts.expect("mounts");
    let writable: Vec<_> = mounts.iter().filter(|mount| mount.read_only != Some(true)).map(|mount| mount.mount_path.as_str()).collect();
    assert_eq!(writable, ["/tmp", "/home/agent"], "and these end with the Pod");
    let status = plan.status.expect("a status");
    assert_eq!((status.run_generation, status.pod), (Some(3), None), "a reader is no run");
    assert!(plan.steps.iter().all(|step| matches!(step, Step::EnsurePod(_))), "nothing else is made");
}

#[test]
fn a_reader_fetches_no_set_holds_no_credentials_of_one_and_knows_its_name() {
    let set = json!({"name": "team", "git": {"url": "https://git.example/team.git", "credentialsSecretRef": {"name": "clone-key"}}});
    let mut seen = stopped(5);
    let project = Arc::make_mut(seen.project.as_mut().expect("a project"));
    project.spec.assets = serde_json::from_value(json!({"strict": true, "from": [{"configMap": {"name": "map"}}, set]})).expect("assets");
    let spec = made_pod(&plan(&seen)).expect("a reader").spec.expect("a spec");
    assert_eq!(spec.init_containers, None);
    let text = serde_json::to_string(&spec).expect("JSON");
    assert!(!text.contains("clone-key") && !text.contains("git.example"), "{text}");
    let mounts = spec.containers[0].volume_mounts.iter().flatten().filter(|mount| mount.name.starts_with("yoi-assets"));
    assert_eq!(mounts.map(|mount| mount.mount_path.as_str()).collect::<Vec<_>>(), ["/etc/yoi-assets/0"]);
    let manifest = spec.containers[0].env.iter().flatten().find(|variable| variable.name == "YOI_READER");
    let manifest: Value = serde_json::from_str(manifest.and_then(|variable| variable.value.as_deref()).expect("a manifest")).expect("JSON");
    assert_eq!(manifest["assets"]["sets"][1], json!({"name": "git/team", "folder": "", "fetched": true}));
}

#[test]
fn an_agent_whose_image_has_no_git_is_read_with_the_image_that_fetches_sources() {
    let spec = json!({"desiredState": "Stopped", "pod": {"image": "no-git"}});
    let seen = of_agent(spec, json!({"runGeneration": 3, "reader": {"requestedAt": ago(5)}}));
    let settings = Settings { populator_image: "with-git".to_owned(), ..settings() };
    let steps = yoipod::plan(&seen, &settings, now()).steps;
    let pod = steps.into_iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some(*pod) } else { None }).expect("a reader");
    assert_eq!(pod.spec.expect("a spec").containers[0].image.as_deref(), Some("with-git"));
}

#[test]
fn an_agent_that_has_done_its_task_and_stops_then_is_read_too() {
    let task = json!({"task": "do", "completion": "Stop"});
    let fresh = of_agent(task.clone(), json!({}));
    let id = yoipod::manifest::task(&fresh.yoipod).expect("a task").id;
    let finished = |state: &str| {
        let status = json!({"runGeneration": 1, "task": {"id": id, "state": state}, "reader": {"requestedAt": ago(5)}});
        of_agent(task.clone(), status)
    };
    let reads = |seen: &yoipod::Observed| made_pod(&plan(seen)).is_some_and(|pod| pod.metadata.name.as_deref() == Some("a-reader"));
    assert!(reads(&finished("Succeeded")) && reads(&finished("Failed")));
    assert!(!reads(&finished("Running")), "its own Pod answers");
}

#[test]
fn a_reader_goes_two_minutes_after_the_last_request() {
    let with_reader = |asked: i64| {
        let seen = stopped(asked);
        let pod = stored(&stopped(5), 300, running());
        plan(&yoipod::Observed { pods: vec![pod], ..seen })
    };
    let early = with_reader(100);
    assert!(early.steps.is_empty() && early.requeue_after == Some(Duration::from_secs(20)), "{early:?}");
    assert_eq!(reader_ready(&early).map(|c| c.reason.as_str()), Some("AllMet"));
    let reader = early.status.and_then(|status| status.reader).and_then(|reader| reader.pod).expect("the Pod");
    assert_eq!((reader.name.as_str(), reader.uid.as_str()), ("a-reader", "reader"));
    let late = with_reader(121);
    assert!(deletes(&late, "a-reader") && reader_ready(&late).is_none(), "{late:?}");
    assert_eq!(late.status.expect("a status").reader, None);
    assert!(deletes(&with_reader(-86_400), "a-reader"), "a clock that is a day ahead keeps no Pod for a day");
}

#[test]
fn a_start_ends_the_reader_before_the_agent_has_a_pod() {
    let starting = || {
        of_agent(json!({}), json!({"runGeneration": 3, "reader": {"requestedAt": ago(5), "pod": {"name": "a-reader", "uid": "reader"}}}))
    };
    let reader = stored(&stopped(5), 30, running());
    let with_reader = plan(&yoipod::Observed { pods: vec![reader], ..starting() });
    assert!(deletes(&with_reader, "a-reader") && made_pod(&with_reader).is_none(), "{with_reader:?}");
    // A reader that is not observed yet is looked for before the agent's Pod is made.
    let steps = plan(&starting()).steps;
    let at = |is: fn(&Step) -> bool| steps.iter().position(is);
    let confirmed = at(|step| matches!(step, Step::ConfirmGone { kind: Kind::Pod, name, .. } if name == "a-reader"));
    assert!(confirmed.is_some() && confirmed < at(|step| matches!(step, Step::EnsurePod(_))), "{steps:?}");
}

#[test]
fn an_agent_that_has_never_run_says_that_there_is_nothing_to_read() {
    let plan = plan(&yoipod::Observed { session_claim: None, workspace: None, ..stopped(5) });
    assert!(made_pod(&plan).is_none());
    assert_eq!(reader_ready(&plan).map(|c| (c.status, c.reason.as_str())), Some((yoi_crds::ConditionStatus::False, "NoSession")));
}

#[test]
fn a_reader_that_fails_is_told_and_made_again_after_a_pause() {
    let failed = json!({"phase": "Failed", "reason": "Evicted"});
    let after = |seconds: i64| plan(&yoipod::Observed { pods: vec![stored(&stopped(5), seconds, failed.clone())], ..stopped(5) });
    let early = after(4);
    let ready = reader_ready(&early).expect("ReaderReady");
    assert!(ready.reason == "ReaderFailed" && ready.message.contains("Evicted"), "{ready:?}");
    assert!(early.steps.is_empty() && early.requeue_after == Some(Duration::from_secs(6)), "{early:?}");
    assert!(deletes(&after(11), "a-reader"));
    let events = yoi_plan::conditions::condition_events(&[], &early.status.expect("a status").conditions);
    assert!(events.iter().any(|event| event.warning && event.reason == "ReaderFailed"), "{events:?}");
}

#[test]
fn what_a_reader_waits_for_stands_in_the_status() {
    let unscheduled = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
        "message": "0/2 nodes are available: Insufficient memory"}]});
    let plan = plan(&yoipod::Observed { pods: vec![stored(&stopped(5), 3, unscheduled)], ..stopped(5) });
    let ready = reader_ready(&plan).expect("ReaderReady");
    assert!(ready.reason == "PodPending" && ready.message.contains("Insufficient memory"), "{ready:?}");
}

#[test]
fn a_reader_on_a_node_without_a_frame_says_that_it_serves_the_log_alone() {
    let ready = |has_frame: Value| {
        let report =
            json!({"podUID": "former", "runGeneration": 3, "ready": false, "reason": "Stopping", "message": "", "hasFrame": has_frame});
        let mut seen =
            of_agent(json!({"desiredState": "Stopped"}), json!({"runGeneration": 3, "reader": {"requestedAt": ago(5)}, "report": report}));
        seen.pods = vec![stored(&seen, 5, running())];
        let plan = plan(&seen);
        let ready = reader_ready(&plan).expect("ReaderReady").clone();
        (ready.status, ready.reason, ready.message)
    };
    let (status, reason, message) = ready(json!(false));
    assert_eq!((status, reason.as_str()), (ConditionStatus::True, "ReaderWithoutGit"), "the log is served");
    assert!(message.contains("neither diff nor commits"), "{message}");
    for framed in [json!(true), Value::Null] {
        assert_eq!(ready(framed).1, "AllMet");
    }
}

#[test]
fn a_reader_shows_the_log_alone_when_the_tree_is_gone_or_another_agents() {
    let volumes = |seen: &yoipod::Observed| {
        let pod = made_pod(&plan(seen)).expect("a reader");
        pod.spec.expect("a spec").volumes.expect("volumes").into_iter().map(|volume| volume.name).collect::<Vec<_>>()
    };
    assert!(volumes(&stopped(5)).contains(&"tree".to_owned()));
    let gone = yoipod::Observed { workspace: None, ..stopped(5) };
    assert!(!volumes(&gone).contains(&"tree".to_owned()));
    let mut foreign = (*tree()).clone();
    foreign.metadata.owner_references.as_mut().expect("owners")[0].uid = "other".to_owned();
    let foreign = yoipod::Observed { workspace: Some(Arc::new(foreign)), ..stopped(5) };
    assert!(!volumes(&foreign).contains(&"tree".to_owned()));
    // A tree that is being deleted takes its reader with it, and one without the tree follows.
    let mut going = (*tree()).clone();
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let pods = vec![stored(&stopped(5), 30, running())];
    assert!(deletes(&plan(&yoipod::Observed { workspace: Some(Arc::new(going)), pods, ..stopped(5) }), "a-reader"));
}

#[test]
fn a_deleted_agent_goes_after_its_reader() {
    let mut seen = stopped(5);
    let mut deleted = (*seen.yoipod).clone();
    deleted.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(now()));
    let reader = stored(&seen, 30, running());
    seen.yoipod = Arc::new(deleted);
    let steps = |seen: &yoipod::Observed| plan(seen).steps;
    let with_reader = steps(&yoipod::Observed { pods: vec![reader], ..seen.clone() });
    assert!(matches!(&with_reader[..], [Step::Delete(target)] if target.name == "a-reader"), "{with_reader:?}");
    let last = steps(&seen);
    let confirms = |step: &Step| matches!(step, Step::ConfirmGone { kind: Kind::Pod, name, .. } if name == "a-reader");
    assert!(last.iter().any(confirms), "one that is not observed yet is looked for: {last:?}");
}

#[test]
fn a_tree_names_its_reader_as_reader_and_nobody_as_writer() {
    let seen = stopped(5);
    let observed = workspace::Observed {
        users: vec![seen.yoipod.clone()],
        agents: vec![stored(&seen, 30, running())],
        ..workspace_with(tree(), nodes())
    };
    let status = workspace::plan(&observed, &settings(), now()).status.expect("a status");
    assert_eq!((status.pod_uid, status.reader_pod_uid.as_deref()), (None, Some("reader")));
}

/// The node's shim waits for the tree as long as it is for this Pod, and the kubelet waits for the shim.
#[test]
fn a_tree_that_does_not_stand_is_for_no_pod_that_is_to_go() {
    for (is_going, stands, named) in [(false, false, true), (false, true, true), (true, true, true), (true, false, false)] {
        let seen = stopped(5);
        let mut pod = serde_json::to_value(made_pod(&plan(&seen)).expect("a reader")).expect("JSON");
        let metadata = pod["metadata"].as_object_mut().expect("metadata");
        metadata.insert("uid".to_owned(), json!("run"));
        metadata.get_mut("labels").and_then(Value::as_object_mut).expect("labels").remove("yoi.dev/role");
        if is_going {
            metadata.insert("deletionTimestamp".to_owned(), json!(ago(1)));
        }
        let mut tree = (*tree()).clone();
        if !stands {
            tree.status.as_mut().expect("a status").conditions.clear();
        }
        let agents = vec![Arc::new(Arc::unwrap_or_clone(made::<Pod>(pod)).into())];
        let observed = workspace::Observed { users: vec![seen.yoipod.clone()], agents, ..workspace_with(Arc::new(tree), nodes()) };
        let status = workspace::plan(&observed, &settings(), now()).status.expect("a status");
        assert_eq!(status.pod_uid.is_some(), named, "going {is_going}, stands {stands}");
    }
}

#[test]
fn a_reader_of_a_tree_on_a_node_that_is_not_ready_names_the_node_and_is_not_made() {
    let mut seen = stopped(1);
    let nodes = Arc::make_mut(&mut seen.nodes);
    nodes.0.get_mut("n1").expect("a node").not_ready_since = Some(now());
    let plan = plan(&seen);
    assert!(!plan.steps.iter().any(|step| matches!(step, Step::EnsurePod(_))), "{:?}", plan.steps);
    let conditions = &plan.status.as_ref().expect("a status").conditions;
    let ready = conditions.iter().find(|condition| condition.type_ == "ReaderReady").expect("a condition");
    assert_eq!(ready.reason, "NodeNotReady");
    assert!(ready.message.contains("the tree is on node n1, which is not ready"), "{}", ready.message);
}
