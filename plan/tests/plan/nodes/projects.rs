//! Where the bases of a project are made, and when they go.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use yoi_crds::{AgentWorkspace, YoiProject};
use yoi_plan::project;
use yoi_plan::step::{Kind, Step};
use yoi_plan::tree::base_set::FOLLOWS_CONSUMER;

use crate::nodes::*;

fn tainted() -> Value {
    json!({"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]})
}

#[test]
fn the_first_base_goes_where_its_populator_can_start_though_another_node_has_more_room() {
    let project = git_project("https://git.example/a");
    let cases = [
        ("is cordoned", node(900, cordoned(), None)),
        ("has the taint gpu=yes:NoSchedule", node(900, tainted(), None)),
        ("is not ready", node(900, json!({}), Some(1))),
    ];
    for (why, roomier) in cases {
        let both = nodes(vec![("a", roomier.clone()), ("b", plain(10))]);
        let plan = project::plan(&project_with(&project, &[], &both), &settings(), now());
        assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["b"], "a {why}");
        // Nothing is left but to say why.
        let alone = nodes(vec![("a", roomier)]);
        let plan = project::plan(&project_with(&project, &[], &alone), &settings(), now());
        assert_eq!(plan.steps, Vec::new(), "a {why}");
        let ready = condition(&plan.status.expect("a status").conditions, "Ready").clone();
        assert_eq!(ready.reason, "NoEligibleNode");
        assert!(ready.message.ends_with(&format!("node a {why}")), "{}", ready.message);
    }
    let mild = json!({"taints": [{"key": "gpu", "effect": "PreferNoSchedule"}]});
    let both = nodes(vec![("a", node(900, mild, None)), ("b", plain(10))]);
    let plan = project::plan(&project_with(&project, &[], &both), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["a"], "a preference forbids nothing");
}

#[test]
fn the_first_base_prefers_the_nodes_that_the_projects_agents_select() {
    let mut project = (*git_project("https://git.example/a")).clone();
    project.spec.defaults = made(json!({"pod": {"nodeSelector": {"disk": "fast"}}}));
    let mut fast = plain(10);
    fast.labels.insert("disk".to_owned(), "fast".to_owned());
    let both = nodes(vec![("a", plain(900)), ("b", fast)]);
    let plan = project::plan(&project_with(&Arc::new(project), &[], &both), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["b"]);
}

#[test]
fn the_first_base_goes_to_a_tainted_node_that_the_projects_agents_tolerate_and_its_populator_too() {
    let tolerations = json!([{"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}]);
    let mut project = (*git_project("https://git.example/a")).clone();
    project.spec.defaults = made(json!({"pod": {"tolerations": tolerations}}));
    let project = Arc::new(project);
    let only = nodes(vec![("a", node(900, tainted(), None))]);
    let plan = project::plan(&project_with(&project, &[], &only), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["a"]);
    for other in [json!([{"key": "gpu", "value": "no"}]), json!([{"operator": "Exists", "effect": "NoExecute"}]), json!([])] {
        let mut wrong = (*project).clone();
        wrong.spec.defaults = made(json!({"pod": {"tolerations": other}}));
        let plan = project::plan(&project_with(&Arc::new(wrong), &[], &only), &settings(), now());
        assert_eq!(plan.steps, Vec::new());
    }

    let base = base_on(&project, "a", 5, json!([is_true("Provisioned")]));
    let seen = yoi_plan::workspace::Observed { project: Some(project), ..crate::nodes::workspace_with(base, only) };
    let plan = yoi_plan::workspace::plan(&seen, &settings(), now());
    let pod = plan.steps.iter().find_map(|s| if let Step::EnsurePod(p) = s { Some(p) } else { None }).expect("a populator");
    assert_eq!(serde_json::to_value(&pod.spec.as_ref().expect("a spec").tolerations).expect("JSON"), tolerations);
}

#[test]
fn a_populator_that_no_node_takes_is_a_warning_of_its_base_and_of_the_project() {
    let project = git_project("https://git.example/a");
    let stuck = is("Populated", "False", "PopulatorNotRunning", "Pod p cannot fill the base: ErrImagePull: no such tag");
    let base = base_on(&project, "a", 900, json!([is_true("Provisioned"), stuck]));
    let after = status(project::plan(&project_with(&project, &[base], &nodes(vec![("a", plain(1))])), &settings(), now())).conditions;
    let warnings = |before: &[yoi_crds::Condition]| -> Vec<String> {
        let events = yoi_plan::conditions::condition_events(before, &after);
        events.into_iter().filter(|e| e.warning).map(|e| format!("{}: {}", e.reason, e.note)).collect()
    };
    let first = warnings(&[]);
    assert!(first.len() == 1 && first[0].starts_with("PopulatorNotRunning") && first[0].contains("no such tag"), "{first:?}");
    assert_eq!(warnings(&after), Vec::<String>::new());
}

#[test]
fn a_stuck_base_gives_way_to_one_on_the_next_node_and_goes_when_that_is_sealed() {
    let project = git_project("https://git.example/a");
    let dead = |seconds| nodes(vec![("a", node(900, json!({}), Some(seconds))), ("b", plain(10)), ("c", plain(5))]);
    let alive = nodes(vec![("a", plain(900)), ("b", plain(10)), ("c", plain(5))]);
    let cloning = || base_on(&project, "a", 900, json!([is_true("Provisioned"), is("Populated", "False", "Populating", "")]));
    let plan = |bases: &[Arc<AgentWorkspace>], nodes: &Arc<Nodes>| project::plan(&project_with(&project, bases, nodes), &settings(), now());

    let early = plan(&[cloning()], &dead(59));
    assert_eq!((early.steps, early.requeue_after), (Vec::new(), Some(Duration::from_secs(1))), "a node may come back");
    for (stuck, nodes, why) in
        [(stuck_on(&project, "a"), alive.clone(), "its populator cannot run"), (cloning(), dead(60), "its node died while it cloned")]
    {
        let name = stuck.metadata.name.clone().expect("a name");
        assert_eq!(outcome(&plan(std::slice::from_ref(&stuck), &nodes).steps, Kind::Workspace), (vec!["b"], vec![]), "{why}");
        // One at a time: while the next one gets on, there is no third.
        let next = base_on(&project, "b", 5, json!([]));
        assert_eq!(plan(&[stuck.clone(), next], &nodes).steps, Vec::new(), "{why}");
        let done = plan(&[stuck.clone(), sealed_on(&project, "b")], &nodes);
        assert_eq!(outcome(&done.steps, Kind::Workspace), (vec![], vec![name.as_str()]), "{why}");
        assert_eq!(condition(&status(done).conditions, "Ready").status, yoi_crds::ConditionStatus::True);
        // A base that a tree was made from, or that a consumer waits for, stays.
        let mut used = project_with(&project, &[stuck.clone(), sealed_on(&project, "b")], &nodes);
        used.origins.insert("base-a".to_owned());
        assert_eq!(project::plan(&used, &settings(), now()).steps, Vec::new(), "{why}");
        let mut awaited = (*stuck).clone();
        awaited.metadata.annotations = Some([(FOLLOWS_CONSUMER.to_owned(), "true".to_owned())].into());
        assert_eq!(plan(&[Arc::new(awaited), sealed_on(&project, "b")], &nodes).steps, Vec::new(), "{why}");
    }
}

#[test]
fn there_are_at_most_as_many_bases_as_nodes_and_the_project_says_why_none_gets_on() {
    let project = git_project("https://git.example/a");
    let both = nodes(vec![("a", plain(900)), ("b", plain(10))]);
    let plan = project::plan(&project_with(&project, &[stuck_on(&project, "a"), stuck_on(&project, "b")], &both), &settings(), now());
    assert_eq!(plan.steps, Vec::new());
    let ready = condition(&status(plan).conditions, "Ready").clone();
    assert_eq!(ready.reason, "PopulatorNotRunning");
    assert!(ready.message.contains("node a: no such image; node b: no such image"), "{}", ready.message);
    // A node that joins is tried.
    let three = nodes(vec![("a", plain(900)), ("b", plain(10)), ("c", plain(1))]);
    let plan = project::plan(&project_with(&project, &[stuck_on(&project, "a"), stuck_on(&project, "b")], &three), &settings(), now());
    assert_eq!(outcome(&plan.steps, Kind::Workspace).0, ["c"]);
}

#[test]
fn bases_of_former_generations_go_although_the_new_one_is_not_sealed_yet() {
    let sources = ["https://git.example/1", "https://git.example/2", "https://git.example/3"].map(git_project);
    let of = |source: &Arc<YoiProject>, name: &str, seconds: i64, conditions: Value| {
        let mut base = (*base_on(source, "a", seconds, conditions)).clone();
        base.metadata.uid = Some(name.to_owned());
        Arc::new(base)
    };
    let sealed = || json!([is_true("Provisioned"), is_true("Populated"), is_true("Sealed")]);
    let bases = [
        of(&sources[0], "oldest", 900, sealed()),
        of(&sources[1], "old", 800, sealed()),
        of(&sources[2], "current", 10, json!([is_true("Provisioned")])),
        of(&git_project("https://git.example/4"), "never-sealed", 700, json!([is_true("Provisioned")])),
    ];
    let seen = |bases: &[Arc<AgentWorkspace>]| project_with(&sources[2], bases, &nodes(vec![("a", plain(1))]));
    let deleted = |seen: &project::Observed| -> Vec<String> {
        let steps = project::plan(seen, &settings(), now()).steps;
        steps.into_iter().filter_map(|s| if let Step::Delete(t) = s { Some(t.uid) } else { None }).collect()
    };
    assert_eq!(deleted(&seen(&bases)), ["oldest", "never-sealed"], "the last sealed one stays until the new one is sealed");
    let mut used = seen(&bases);
    used.origins.insert("oldest".to_owned());
    assert_eq!(deleted(&used), ["never-sealed"]);
    let mut done = bases.clone();
    done[2] = of(&sources[2], "current", 10, sealed());
    assert_eq!(deleted(&seen(&done)), ["oldest", "old", "never-sealed"]);
}

#[test]
fn the_projects_condition_says_why_its_base_was_refused() {
    let project = git_project("https://git.example/a");
    let refused = "failed to create Pod base-1: pods is forbidden: failed quota: must specify limits.memory";
    let base = base_on(&project, "a", 900, json!([is_true("Provisioned"), is("Ready", "False", "ApplyFailed", refused)]));
    let plan = project::plan(&project_with(&project, &[base], &nodes(vec![("a", plain(1))])), &settings(), now());
    let ready = condition(&status(plan).conditions, "Ready").clone();
    assert_eq!(ready.reason, "ApplyFailed");
    assert!(ready.message.contains(refused), "{}", ready.message);
}

#[test]
fn w13_a_named_provider_that_no_node_offers_is_refused_with_the_reason_of_each_node() {
    let overlay = json!({"metadata": {"name": "n"}, "spec": {}, "status": {"runtimeDigests": ["d"], "capacity": {"totalBytes": 9, "freeBytes": 9},
        "providers": [{"name": "Btrfs", "available": false, "reason": "the data root is not on Btrfs"},
            {"name": "Overlay", "available": true, "reason": "instant overlays"}]}});
    let only_overlay = nodes(vec![("a", Node { offer: Some(Arc::new(made(overlay))), ..plain(9) }), ("b", without_shim())]);
    let plan_for = |provider: &str| {
        let project: Arc<YoiProject> =
            stored(json!({"metadata": meta("p"), "spec": {"source": {"git": {"url": "https://git.example/a"}}, "provider": provider}}));
        project::plan(&project_with(&project, &[], &only_overlay), &settings(), now())
    };
    for (provider, why) in
        [("Zfs", "node a: not offered"), ("Btrfs", "node a: the data root is not on Btrfs"), ("Reflink", "node a: not offered")]
    {
        let plan = plan_for(provider);
        assert_eq!(plan.steps, Vec::new(), "{provider}");
        let ready = condition(&plan.status.expect("a status").conditions, "Ready").clone();
        assert_eq!(ready.reason, "NoEligibleNode");
        assert!(ready.message.contains(provider) && ready.message.ends_with(why), "{}", ready.message);
    }
    for provider in ["Auto", "Overlay"] {
        assert_eq!(outcome(&plan_for(provider).steps, Kind::Workspace).0, ["a"], "{provider}");
    }
}

#[test]
fn w11_a_project_keeps_the_provider_of_its_base_and_says_so_when_its_node_offers_a_better_one() {
    let sentence = |asked: &str, made_by: &str| {
        let project: Arc<YoiProject> =
            stored(json!({"metadata": meta("p"), "spec": {"source": {"git": {"url": "https://git.example/a"}}, "provider": asked}}));
        let mut base = (*sealed_on(&project, "a")).clone();
        let mut status = base.status.take().expect("a status");
        status.provider = Some(made(json!({"selected": made_by, "reason": "as it was then"})));
        base.status = Some(status);
        let plan = project::plan(&project_with(&project, &[Arc::new(base)], &nodes(vec![("a", plain(9))])), &settings(), now());
        assert!(plan.steps.iter().all(|step| !matches!(step, Step::EnsureWorkspace(_))), "another base: {:?}", plan.steps);
        condition(&plan.status.expect("a status").conditions, "Sealed").message.clone()
    };
    let kept = "sealed on 1 node; node a offers Btrfs by now, and keeps Copy until the project's generation changes";
    assert_eq!(sentence("Auto", "Copy"), kept);
    assert_eq!(sentence("Auto", "Btrfs"), "sealed on 1 node");
    assert_eq!(sentence("Auto", "Zfs"), "sealed on 1 node", "a worse offer is no reason to change");
}
