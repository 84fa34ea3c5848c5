//! Warm session claims: how many a project keeps, and which one an agent takes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, YoiPod, YoiPodStatus, YoiProject, YoiProjectStatus};
use yoi_plan::nodes::Node;
use yoi_plan::settings::Settings;
use yoi_plan::step::{Plan, Step};
use yoi_plan::warm::class::Classes;
use yoi_plan::warm::{Candidates, Made, Observed};
use yoi_plan::{project, yoipod};

use crate::nodes::agents::{agent, only_on, run};
use crate::nodes::*;

const URL: &str = "https://git.example/a";

fn warm_project(warm: Value, status: Value) -> Arc<YoiProject> {
    stored(json!({"metadata": meta("p"), "spec": {"source": {"git": {"url": URL}}, "warm": warm}, "status": status}))
}

fn classes(mode: &str) -> Classes {
    let class = json!({"metadata": {"name": "local", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
        "provisioner": "example.com/local", "volumeBindingMode": mode});
    Classes(vec![Arc::new(made(class))])
}

/// A warm claim of the project on this node, made so long ago. `more` replaces fields of its metadata.
fn claim(name: &str, node: &str, phase: &str, seconds: i64, more: Value) -> Arc<PersistentVolumeClaim> {
    let mut metadata = json!({"name": format!("warm.{name}-session"), "namespace": "ns", "uid": name, "resourceVersion": "7",
        "creationTimestamp": ago(seconds), "labels": {"yoi.dev/warm": "p"}, "ownerReferences": owner("YoiProject", "p"),
        "annotations": {"volume.kubernetes.io/selected-node": node}});
    for (key, value) in more.as_object().expect("fields") {
        metadata[key] = value.clone();
    }
    let volume = (phase == "Bound").then(|| format!("pv-{name}"));
    stored(json!({"metadata": metadata, "status": {"phase": phase},
        "spec": {"storageClassName": "local", "volumeName": volume, "resources": {"requests": {"storage": "1Gi"}}}}))
}

fn bound(name: &str, node: &str) -> Arc<PersistentVolumeClaim> {
    claim(name, node, "Bound", 100, json!({}))
}

fn listed(claims: &[(&str, &str)]) -> Value {
    let entry = |(name, node): &(&str, &str)| json!({"name": format!("warm.{name}-session"), "uid": name, "node": node});
    json!({"warm": {"claims": claims.iter().map(entry).collect::<Vec<_>>()}})
}

fn observed(claims: Vec<Arc<PersistentVolumeClaim>>) -> Observed {
    Observed { in_cluster: claims.len(), claims, classes: classes("WaitForFirstConsumer"), ..Observed::default() }
}

fn plan_of(
    project: &Arc<YoiProject>,
    sealed: &[&str],
    all: Vec<(&str, Node)>,
    warm: Observed,
    settings: &Settings,
) -> Plan<YoiProjectStatus> {
    let bases: Vec<Arc<AgentWorkspace>> = sealed.iter().map(|node| sealed_on(project, node)).collect();
    project::plan(&project::Observed { warm, ..project_with(project, &bases, &nodes(all)) }, settings, now())
}

/// The nodes that claims are made for, and the UIDs of the claims that are given back.
fn changes(steps: &[Step]) -> (Vec<String>, Vec<String>) {
    let node = |claim: &PersistentVolumeClaim| {
        claim.metadata.annotations.as_ref().expect("annotations")["volume.kubernetes.io/selected-node"].clone()
    };
    let made = steps.iter().filter_map(|step| if let Step::MakeWarmClaim(claim) = step { Some(node(claim)) } else { None });
    let gone = steps.iter().filter_map(|step| if let Step::DeleteUnchanged { of, .. } = step { Some(of.uid.clone()) } else { None });
    assert!(!steps.iter().any(|step| matches!(step, Step::Delete(target) if target.kind == yoi_plan::step::Kind::Claim)), "{steps:?}");
    (made.collect(), gone.collect())
}

fn two() -> Vec<(&'static str, Node)> {
    vec![("a", plain(1)), ("b", plain(1))]
}

fn strings(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn claims_are_spread_over_the_nodes_with_the_base_and_not_more_than_the_cluster_may_have() {
    let project = warm_project(json!({"sessions": 3}), json!(null));
    let made = |sealed: &[&str], all: Vec<(&str, Node)>, in_cluster: usize| {
        let warm = Observed { in_cluster, ..observed(vec![]) };
        changes(&plan_of(&project, sealed, all, warm, &settings()).steps).0
    };
    assert_eq!(made(&["a", "b"], two(), 0), strings(&["a", "b", "a"]));
    assert_eq!(made(&["a"], two(), 0), strings(&["a", "a", "a"]), "b has no base");
    assert_eq!(made(&["a", "b"], vec![("a", node(1, cordoned(), None)), ("b", plain(1))], 0), strings(&["b", "b", "b"]));
    assert_eq!(made(&[], two(), 0), strings(&[]), "no base is sealed");
    assert_eq!(made(&["a", "b"], two(), 49), strings(&["a"]), "50 are the most");
    let without = warm_project(json!(null), json!(null));
    assert!(changes(&plan_of(&without, &["a"], two(), observed(vec![]), &settings()).steps).0.is_empty(), "nobody asks for one");
}

#[test]
fn a_claim_that_was_made_and_is_not_seen_yet_counts() {
    let project = warm_project(json!({"sessions": 2}), json!(null));
    let made = [("c1".to_owned(), Made { node: "a".to_owned(), is_unseen: true })];
    let warm = Observed { made: made.into(), in_cluster: 1, ..observed(vec![]) };
    assert_eq!(changes(&plan_of(&project, &["a", "b"], two(), warm, &settings()).steps).0, strings(&["b"]));
}

#[test]
fn the_status_lists_what_the_operator_has_made_and_nothing_that_only_looks_so() {
    let project = warm_project(json!({"sessions": 2}), listed(&[("old", "a")]));
    let made = [("new".to_owned(), Made { node: "b".to_owned(), is_unseen: false })];
    let claims = vec![bound("old", "a"), bound("new", "b"), bound("forged", "a")];
    let plan = plan_of(&project, &["a", "b"], two(), Observed { made: made.into(), ..observed(claims) }, &settings());
    assert_eq!(changes(&plan.steps), (vec![], vec![]), "somebody's own claim stays");
    let status = status(plan);
    let names: Vec<&str> = status.warm.as_ref().expect("claims").claims.iter().map(|claim| claim.uid.as_str()).collect();
    assert_eq!(names, ["new", "old"]);
    let condition = condition(&status.conditions, "SessionsWarm");
    assert_eq!(
        (condition.reason.as_str(), condition.message.as_str()),
        ("SessionsWarm", "2 of 2 session claims stand ready: 1 on node a; 1 on node b")
    );
}

#[test]
fn a_claim_whose_node_is_cordoned_or_gone_or_whose_base_or_class_changed_is_given_back_and_a_taken_one_never() {
    let status = listed(&[("c", "a")]);
    let given_back = |warm: Value, sealed: &[&str], all: Vec<(&str, Node)>, claim: Arc<PersistentVolumeClaim>| {
        changes(&plan_of(&warm_project(warm, status.clone()), sealed, all, observed(vec![claim]), &settings()).steps).1
    };
    let one = || json!({"sessions": 1});
    let of_c = strings(&["c"]);
    assert!(given_back(one(), &["a", "b"], two(), bound("c", "a")).is_empty());
    assert_eq!(given_back(one(), &["a", "b"], vec![("a", node(1, cordoned(), None)), ("b", plain(1))], bound("c", "a")), of_c);
    assert_eq!(given_back(one(), &["b"], vec![("b", plain(1))], bound("c", "a")), of_c, "its node is gone");
    assert_eq!(given_back(one(), &["b"], two(), bound("c", "a")), of_c, "its base is gone");
    assert_eq!(given_back(json!({"sessions": 1, "claimTemplate": {"size": "2Gi"}}), &["a"], two(), bound("c", "a")), of_c);
    assert_eq!(given_back(json!({"sessions": 0}), &["a"], two(), bound("c", "a")), of_c);
    assert_eq!(given_back(json!(null), &["a"], two(), bound("c", "a")), of_c);
    let taken = claim("c", "a", "Bound", 100, json!({"annotations": {"yoi.dev/yoipod-uid": "x"}}));
    assert!(given_back(json!(null), &["a"], two(), taken).is_empty());
}

#[test]
fn a_claim_that_is_not_bound_in_time_or_lost_its_volume_is_given_back_and_told_and_another_is_tried_a_minute_later() {
    let fails = |claim: Arc<PersistentVolumeClaim>| {
        let project = warm_project(json!({"sessions": 1}), listed(&[("c", "a")]));
        let plan = plan_of(&project, &["a"], two(), observed(vec![claim]), &settings());
        let (made, gone) = changes(&plan.steps);
        let status = status(plan);
        (made, gone, condition(&status.conditions, "SessionsWarm").clone(), status.warm)
    };
    let waits = claim("c", "a", "Pending", 30, json!({}));
    let (made, gone, told, _) = fails(waits);
    assert_eq!((made.len(), gone.len(), told.reason.as_str()), (0, 0, "Warming"));
    for (failed, why) in [
        (claim("c", "a", "Pending", 100, json!({})), "was not bound within 90 s on node a"),
        (claim("c", "a", "Pending", 3, json!({"annotations": {}})), "makes no volume on node a"),
        (claim("c", "a", "Lost", 3, json!({})), "lost its volume"),
    ] {
        let (made, gone, told, kept) = fails(failed);
        assert_eq!((made.len(), gone, told.reason.as_str()), (0, strings(&["c"]), "WarmRefused"));
        assert!(told.message.contains(why), "{}", told.message);
        let failure = kept.and_then(|warm| warm.failure).expect("a failure");
        let project = |at: i64| {
            let failure = json!({"message": failure.message, "at": ago(at)});
            warm_project(json!({"sessions": 3}), json!({"warm": {"failure": failure}}))
        };
        let again = |at: i64| changes(&plan_of(&project(at), &["a"], two(), observed(vec![]), &settings()).steps).0;
        assert_eq!((again(59), again(61)), (vec![], strings(&["a"])), "one at a time, until one is had");
    }
}

#[test]
fn a_refusal_of_the_api_server_is_told_and_leaves_the_project_ready() {
    let project = warm_project(json!({"sessions": 2}), json!(null));
    let refusal = Some(("exceeded quota: claims".to_owned(), now()));
    let plan = plan_of(&project, &["a"], two(), Observed { refusal, ..observed(vec![]) }, &settings());
    assert!(changes(&plan.steps).0.is_empty());
    let status = status(plan);
    let told = condition(&status.conditions, "SessionsWarm");
    assert_eq!(told.message, "exceeded quota: claims (none stands ready, and 2 are asked for)");
    assert_eq!(condition(&status.conditions, "Ready").status, yoi_crds::ConditionStatus::True);
}

#[test]
fn none_are_made_where_the_administrator_turned_them_off_or_the_class_binds_at_once() {
    let project = warm_project(json!({"sessions": 2}), listed(&[("c", "a")]));
    let of = |warm: Observed, most: usize| {
        let settings = Settings { most_warm_sessions: most, ..settings() };
        let plan = plan_of(&project, &["a"], two(), warm, &settings);
        let changes = changes(&plan.steps);
        (changes, condition(&status(plan).conditions, "SessionsWarm").reason.clone())
    };
    let given_back = (vec![], strings(&["c"]));
    assert_eq!(of(observed(vec![bound("c", "a")]), 0), (given_back.clone(), "WarmOff".to_owned()));
    let at_once = Observed { classes: classes("Immediate"), ..observed(vec![bound("c", "a")]) };
    assert_eq!(of(at_once, 50), (given_back.clone(), "SessionsWarm".to_owned()));
    let no_class = Observed { classes: Classes::default(), ..observed(vec![bound("c", "a")]) };
    assert_eq!(of(no_class, 50), (given_back, "WarmRefused".to_owned()));
}

/// An agent of the project with these warm claims, whose status names this claim. The nodes bear their names as hostname.
fn taker(claims: Vec<Arc<PersistentVolumeClaim>>, chosen: Option<&str>, all: Vec<(&str, Node)>) -> yoipod::Observed {
    let names: Vec<(String, String)> = claims
        .iter()
        .map(|claim| (claim.metadata.uid.clone().expect("a UID"), claim.metadata.annotations.as_ref().expect("annotations")))
        .map(|(uid, annotations)| (uid, annotations.get("volume.kubernetes.io/selected-node").cloned().unwrap_or_default()))
        .collect();
    let known: Vec<(&str, &str)> =
        names.iter().filter(|(uid, _)| uid != "forged").map(|(uid, node)| (uid.as_str(), node.as_str())).collect();
    let project = warm_project(json!({"sessions": 2}), listed(&known));
    let all: Vec<(&str, Node)> = all
        .into_iter()
        .map(|(name, mut node)| {
            node.labels.insert("kubernetes.io/hostname".to_owned(), name.to_owned());
            (name, node)
        })
        .collect();
    let bases = [sealed_on(&project, "a"), sealed_on(&project, "b")];
    let mut seen = agent(&bases, nodes(all), None, "Creating");
    let agent = Arc::make_mut(&mut seen.yoipod);
    let status = agent.status.get_or_insert_default();
    status.session_claim_name = chosen.map(|name| format!("warm.{name}-session"));
    status.run_generation = Some(1);
    let volume = |(uid, node): &(String, String)| {
        let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]});
        stored::<PersistentVolume>(json!({"metadata": {"name": format!("pv-{uid}"), "uid": format!("pv-{uid}")}, "spec": {
            "claimRef": {"uid": uid}, "persistentVolumeReclaimPolicy": "Delete", "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}}))
    };
    let volumes: Vec<_> = names.iter().map(volume).collect();
    let is_chosen = |claim: &&Arc<PersistentVolumeClaim>| claim.metadata.uid.as_deref() == chosen;
    seen.session_claim = claims.iter().find(is_chosen).cloned();
    let at = claims.iter().position(|claim| claim.metadata.uid.as_deref() == chosen);
    seen.session_volume = at.map(|at| volumes[at].clone());
    seen.project = Some(project);
    seen.warm = Candidates { claims, volumes, classes: classes("WaitForFirstConsumer") };
    seen
}

/// The claim that the status names, the reason of SessionReady, and what is done to claims and Pods.
fn taken(seen: &yoipod::Observed) -> (Option<String>, String, Vec<String>) {
    let Plan { steps, status, .. } = run(seen);
    let status: YoiPodStatus = status.expect("a status");
    let done = steps.iter().filter_map(|step| match step {
        Step::EnsureClaim(claim) => Some(format!("make {}", claim.metadata.name.as_deref().unwrap_or_default())),
        Step::TakeWarmClaim { claim, resource_version, yoipod, made_for, .. } => {
            assert_eq!((resource_version.as_str(), yoipod.as_str(), made_for.as_str()), ("7", "x", "x"));
            Some(format!("take {}", claim.uid))
        }
        Step::EnsurePod(pod) => {
            let affinity = serde_json::to_string(&pod.spec.as_ref().expect("a spec").affinity).expect("JSON");
            Some(format!("Pod on {}", if affinity.contains(r#""a""#) { "a" } else { "b" }))
        }
        Step::Delete(target) => Some(format!("delete {}", target.uid)),
        Step::RetainVolume { volume } => Some(format!("retain {}", volume.uid)),
        _ => None,
    });
    (status.session_claim_name, condition(&status.conditions, "SessionReady").reason.clone(), done.collect())
}

/// The claim `c` of node `b` once the agent has taken it.
fn taken_claim() -> Arc<PersistentVolumeClaim> {
    let annotations = json!({"yoi.dev/yoipod-uid": "x", "volume.kubernetes.io/selected-node": "b"});
    claim("c", "b", "Bound", 100, json!({"labels": {"yoi.dev/yoipod": "x"}, "ownerReferences": [], "annotations": annotations}))
}

#[test]
fn an_agent_first_names_a_warm_claim_then_takes_it_and_its_pod_goes_to_that_node() {
    let (name, _, done) = taken(&taker(vec![bound("c", "b")], None, two()));
    assert_eq!((name.as_deref(), done), (Some("warm.c-session"), vec![]), "only the status");
    let (name, _, done) = taken(&taker(vec![bound("c", "b")], Some("c"), two()));
    assert_eq!((name.as_deref(), done), (Some("warm.c-session"), strings(&["take c", "Pod on b"])));
    let (name, _, done) = taken(&taker(vec![taken_claim()], Some("c"), two()));
    assert_eq!((name.as_deref(), done), (Some("warm.c-session"), strings(&["Pod on b"])), "once");
}

#[test]
fn a_claim_that_another_agent_took_is_left_and_another_is_named() {
    let others = claim("c", "b", "Bound", 100, json!({"labels": {}, "annotations": {"yoi.dev/yoipod-uid": "y"}}));
    let mut seen = taker(vec![others.clone(), bound("d", "a")], Some("c"), two());
    assert_eq!(taken(&seen).0.as_deref(), Some("warm.d-session"));
    seen.warm.claims.truncate(1);
    let (name, reason, done) = taken(&seen);
    assert_eq!((name.as_deref(), reason.as_str(), done), (Some("x-session"), "NoWarmSession", strings(&["make x-session"])));
    // A former agent of this name has left it.
    let mut seen = taker(vec![bound("d", "a")], None, two());
    seen.session_claim = Some(others);
    let (name, _, done) = taken(&seen);
    assert_eq!((name, done), (None, vec![]), "the agent is not accepted");
}

#[test]
fn an_agent_starts_cold_where_no_warm_claim_is_ours_ready_alike_or_on_a_node_that_lets_it_in() {
    let cordoned_b = || vec![("a", plain(1)), ("b", node(1, cordoned(), None))];
    let going = json!({"deletionTimestamp": ago(1)});
    let unlabelled = json!({"labels": {}});
    let cases = [
        (bound("forged", "b"), two()),
        (claim("c", "b", "Pending", 3, json!({})), two()),
        (claim("c", "b", "Lost", 3, json!({})), two()),
        (claim("c", "b", "Bound", 3, going), two()),
        (claim("c", "b", "Bound", 3, unlabelled), two()),
        (bound("c", "b"), cordoned_b()),
    ];
    for (claim, all) in cases {
        let what = format!("{claim:?}");
        let (name, reason, done) = taken(&taker(vec![claim], None, all));
        assert_eq!((name.as_deref(), reason.as_str(), done), (Some("x-session"), "NoWarmSession", strings(&["make x-session"])), "{what}");
    }
    let mut other_size = taker(vec![bound("c", "b")], None, two());
    Arc::make_mut(&mut other_size.yoipod).spec.session.claim_template = Some(made(json!({"size": "2Gi"})));
    assert_eq!(taken(&other_size).1, "NoWarmSession");
    let mut chosen = taker(vec![bound("c", "b")], Some("c"), cordoned_b());
    assert_eq!(taken(&chosen).0.as_deref(), Some("x-session"), "it was cordoned before it was taken");
    chosen = taker(vec![bound("c", "b")], None, two());
    chosen.workspace = None;
    let (name, _, done) = taken(&chosen);
    assert_eq!((name, done), (None, vec![]), "which nodes it may go to is not known");
}

#[test]
fn a_warm_claim_whose_node_has_no_room_is_given_back_with_the_pod_unless_the_agent_has_run() {
    let with_pod = |spec: Value, pod_status: Value| {
        let mut seen = taker(vec![taken_claim()], Some("c"), two());
        let bases = seen.bases.clone();
        let of_pod = agent(&bases, seen.nodes.clone(), Some((spec, pod_status)), "Creating");
        seen.pods = of_pod.pods;
        Arc::make_mut(&mut seen.yoipod).status.get_or_insert_default().pod = Some(made(json!({"name": "x-1", "uid": "pod"})));
        seen
    };
    let full = with_pod(only_on("b"), unschedulable(0));
    let (name, reason, done) = taken(&full);
    assert_eq!((name.as_deref(), reason.as_str(), done), (Some("x-session"), "NoWarmSession", strings(&["delete pod", "delete c"])));
    let mut ran = full.clone();
    let session = json!({"id": "i", "segment": "s"});
    Arc::make_mut(&mut ran.yoipod).status.get_or_insert_default().session = Some(made(session));
    let (name, _, done) = taken(&ran);
    assert_eq!((name.as_deref(), done), (Some("warm.c-session"), strings(&["retain pv-c"])));
    let scheduled = with_pod(json!({"nodeName": "b"}), json!({"phase": "Pending"}));
    assert_eq!(taken(&scheduled).2, strings(&["retain pv-c"]), "its volume outlives the claim from now on");
    let mut goes_along = scheduled;
    let agent: &mut YoiPod = Arc::make_mut(&mut goes_along.yoipod);
    agent.spec.session.retain = yoi_crds::pod::SessionRetain::Delete;
    assert_eq!(taken(&goes_along).2, strings(&[]));
}

#[test]
fn a_warm_claim_that_somebody_wrote_into_is_left_and_the_agent_gets_one_of_its_own() {
    let mut seen = taker(vec![taken_claim()], Some("c"), two());
    let bases = seen.bases.clone();
    let running = json!({"phase": "Running", "containerStatuses": [{"name": "agent", "state": {"running": {}}, "image": "i", "imageID": "", "ready": true, "restartCount": 0}]});
    seen.pods = agent(&bases, seen.nodes.clone(), Some((json!({"nodeName": "b"}), running)), "Creating").pods;
    let status = Arc::make_mut(&mut seen.yoipod).status.get_or_insert_default();
    status.pod = Some(made(json!({"name": "x-1", "uid": "pod"})));
    status.report = Some(made(
        json!({"podUID": "pod", "runGeneration": 1, "ready": false, "reason": "SessionNotEmpty", "message": "notes.txt is on it"}),
    ));
    let (name, reason, done) = taken(&seen);
    assert_eq!((name.as_deref(), reason.as_str(), done), (Some("x-session"), "NoWarmSession", strings(&["delete pod"])));
    let status = Arc::make_mut(&mut seen.yoipod).status.get_or_insert_default();
    status.report.as_mut().expect("a report").pod_uid = "former".to_owned();
    assert_eq!(taken(&seen).0.as_deref(), Some("warm.c-session"), "a former Pod said so");
}
