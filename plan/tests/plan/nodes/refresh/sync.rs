//! A project that takes the working trees that people send: which generation trees are made from, and which bundles stay.

use super::*;

const LATER: &str = "3333333333333333333333333333333333333333";

fn takes_trees() -> YoiProject {
    project(json!({"url": "https://git.example/a", "sync": {}}))
}

fn bundle(commit: &str, names: &[&str]) -> Value {
    let parts: Vec<Value> = names.iter().map(|name| json!({"name": name, "uid": format!("uid-{name}")})).collect();
    json!({"commit": commit, "sha256": "ab".repeat(32), "bytes": 5, "parts": parts})
}

fn synced(project: &YoiProject, commit: &str, bundles: &[Value]) -> YoiProject {
    let last = json!({"machine": "laptop", "commit": commit, "capturedAt": ago(60), "receivedAt": ago(50), "person": "jane"});
    let mut status = serde_json::to_value(project.status.clone().unwrap_or_default()).expect("JSON");
    status["sync"]["last"] = last;
    status["sync"]["bundles"] = json!(bundles);
    YoiProject { status: Some(made(status)), ..project.clone() }
}

/// The base that a plan makes, as its node and its Pod have finished it.
fn sealed_next(plan: &Plan<YoiProjectStatus>, commit: &str) -> Arc<AgentWorkspace> {
    let mut next = base_made(plan).expect("the next generation");
    next.metadata.uid = Some(format!("next-{commit}"));
    next.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "volume": {"revision": commit},
        "conditions": [is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]})));
    Arc::new(next)
}

fn look(project: &YoiProject, bases: &[Arc<AgentWorkspace>]) -> Plan<YoiProjectStatus> {
    Look { project: project.clone(), bases: bases.to_vec(), pods: Vec::new() }.plan()
}

/// The operator's fields of a status, beside what the gateway has written.
fn after_report(project: &YoiProject, plan: Plan<YoiProjectStatus>) -> YoiProject {
    let gateway = project.status.clone().and_then(|status| status.sync);
    let mut status = status(plan);
    let operators = status.sync.take().map(|sync| *sync).unwrap_or_default();
    let deleted = operators.deleted.clone();
    assert_eq!(operators, yoi_crds::sync::SyncStatus { deleted: deleted.clone(), ..Default::default() }, "the rest is the gateway's");
    status.sync = gateway.map(|sync| Box::new(yoi_crds::sync::SyncStatus { deleted, ..*sync }));
    with_status(project, &status)
}

#[test]
fn w46_trees_are_made_from_what_was_synced_last_once_it_is_sealed_and_never_from_an_older_one_after_that() {
    let project = takes_trees();
    let first = sealed_at(&project, OLD);
    let quiet = look(&project, std::slice::from_ref(&first));
    assert!(base_made(&quiet).is_none() && looked(&quiet).is_none(), "nothing was synced yet");

    let project = synced(&after_report(&project, quiet), NEW, &[bundle(NEW, &["p.sync-1-0", "p.sync-1-1"])]);
    let moving = look(&project, std::slice::from_ref(&first));
    let base = base_made(&moving).expect("the next generation").spec.base.expect("a base");
    let parts = base.bundle.expect("a bundle");
    assert_eq!((base.revision.as_deref(), parts.parts), (Some(NEW), vec!["p.sync-1-0".to_owned(), "p.sync-1-1".to_owned()]));
    let second = sealed_next(&moving, NEW);
    let before = status(moving);
    let refreshed = condition(&before.conditions, "Refreshed");
    assert!(refreshed.message.contains("laptop") && refreshed.message.contains("jane"), "{refreshed:?}");
    assert_eq!(before.generation.and_then(|generation| generation.revision).as_deref(), Some(OLD), "trees are made from it meanwhile");

    let bases = [first.clone(), second.clone()];
    let project = after_report(&project, look(&project, &bases));
    let in_use = look(&project, &bases);
    assert_eq!(outcome(&in_use.steps, Kind::Workspace).1, [first.metadata.name.as_deref().expect("a name")]);
    let project = after_report(&project, in_use);
    let state = project.status.clone().expect("a status");
    assert_eq!(state.generation.and_then(|generation| generation.revision).as_deref(), Some(NEW));
    assert_eq!(condition(&state.conditions, "Refreshed").status, yoi_crds::condition::ConditionStatus::True);

    // A branch that a look finds does not take its place.
    let mut looked_at = project.clone();
    let refresh = looked_at.status.as_mut().and_then(|status| status.refresh.as_mut()).expect("a refresh");
    refresh.revision = Some(OLD.to_owned());
    assert!(base_made(&look(&looked_at, std::slice::from_ref(&second))).is_none());
}

#[test]
fn a_bundle_is_deleted_once_when_no_tree_is_made_from_it_any_more_and_no_configmap_of_others_is() {
    let deleted =
        |plan: &Plan<YoiProjectStatus>| -> Vec<String> { outcome(&plan.steps, Kind::ConfigMap).1.into_iter().map(str::to_owned).collect() };
    let project = takes_trees();
    let first = sealed_at(&project, OLD);
    let of_new = bundle(NEW, &["p.sync-1-0", "p.sync-1-1", "coredns", "p"]);
    let of_later = bundle(LATER, &["p.sync-2-0"]);
    let project = synced(&after_report(&project, look(&project, std::slice::from_ref(&first))), NEW, std::slice::from_ref(&of_new));
    let moving = look(&project, std::slice::from_ref(&first));
    assert!(base_made(&moving).expect("a base").spec.base.expect("a base").bundle.is_none(), "a name that is none of the project's");
    let second = sealed_next(&moving, NEW);
    let project = after_report(&project, look(&project, &[first, second.clone()]));
    assert!(deleted(&look(&project, std::slice::from_ref(&second))).is_empty());

    let project = synced(&project, LATER, &[of_new, of_later]);
    let moving = look(&project, std::slice::from_ref(&second));
    assert!(deleted(&moving).is_empty(), "trees are made from the former one until the next is sealed");
    let third = sealed_next(&moving, LATER);
    let bases = [second, third];
    let project = after_report(&project, look(&project, &bases));
    let after = look(&project, &bases);
    assert_eq!(deleted(&after), ["p.sync-1-0", "p.sync-1-1"]);
    let project = after_report(&project, after);
    assert_eq!(project.status.clone().and_then(|status| status.sync).expect("sync").deleted, [NEW]);
    assert!(deleted(&look(&project, &bases)).is_empty(), "it was deleted already");
}

#[test]
fn what_the_gateway_says_is_in_no_write_of_the_operator_however_the_project_ends() {
    let project = synced(&takes_trees(), NEW, &[bundle(NEW, &["p.sync-1-0"])]);
    let mut unknown = project.clone();
    unknown.spec.provider = yoi_crds::source::ProviderName::Unknown;
    for (project, terminating) in [(project, true), (unknown, false)] {
        let seen = project_with(&Arc::new(project), &[], &nodes(vec![("a", plain(1))]));
        let plan = project::plan(&Observed { terminating, ..seen }, &settings(), now());
        assert_eq!(status(plan).sync, None);
    }
}

#[test]
fn a_project_without_a_server_begins_empty_and_its_trees_are_then_made_from_what_was_synced_alone() {
    let spec = json!({"source": {"empty": {"sync": {}}}, "prepare": {"image": "i", "command": ["make"]}});
    let project: YoiProject = made(json!({"metadata": meta("p"), "spec": spec}));
    let began = base_made(&look(&project, &[])).expect("the first generation");
    assert!(began.spec.base.as_ref().expect("a base").prepare.is_none(), "there is nothing to prepare yet");
    let mut first = began;
    first.metadata.uid = Some("first".to_owned());
    first.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"},
        "conditions": [is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]})));
    let first = Arc::new(first);
    let quiet = look(&project, std::slice::from_ref(&first));
    assert!(base_made(&quiet).is_none() && status(quiet.clone()).refresh.is_none());

    let project = synced(&after_report(&project, quiet), NEW, &[bundle(NEW, &["p.sync-1-0"])]);
    let moving = look(&project, std::slice::from_ref(&first));
    let made_base = base_made(&moving).expect("the next generation");
    let base = made_base.spec.base.clone().expect("a base");
    assert_eq!((base.revision.as_deref(), base.bundle.expect("a bundle").parts.len()), (Some(NEW), 1));
    assert!(base.prepare.is_some());

    // The Pod that fills it has no address, and what was sent.
    let mut provisioned = made_base;
    provisioned.metadata.uid = Some("second".to_owned());
    provisioned.status = Some(made(json!({"nodeName": "a", "origin": {"kind": "Empty"}, "conditions": [is_true("Provisioned")]})));
    let seen = workspace_with(Arc::new(provisioned), nodes(vec![("a", plain(1))]));
    let plan = yoi_plan::workspace::plan(&seen, &settings(), now());
    let pod = plan.steps.iter().find_map(|step| if let Step::EnsurePod(pod) = step { Some((**pod).clone()) } else { None });
    let spec = pod.expect("a populator").spec.expect("a spec");
    let value =
        |name: &str| spec.containers[0].env.iter().flatten().find(|v| v.name == name).and_then(|v| v.value.clone()).expect("a variable");
    assert_eq!((value("URL"), value("REVISION"), value("BUNDLE_PARTS"), value("FORMER")), ("".into(), NEW.into(), "1".into(), "".into()));
    assert_eq!((value("SUBMODULES"), value("LFS")), ("Skip".to_owned(), "Skip".to_owned()));
    assert!(spec.volumes.iter().flatten().any(|volume| volume.name == "bundle"));

    let second = sealed_next(&moving, NEW);
    let bases = [first, second.clone()];
    let project = after_report(&project, look(&project, &bases));
    let project = after_report(&project, look(&project, &bases));
    let state = project.status.clone().expect("a status");
    assert_eq!(state.generation.and_then(|generation| generation.revision).as_deref(), Some(NEW));
    assert_eq!(condition(&state.conditions, "Refreshed").status, yoi_crds::condition::ConditionStatus::True);
    let still = look(&project, &[second]);
    assert!(base_made(&still).is_none() && looked(&still).is_none());
}
