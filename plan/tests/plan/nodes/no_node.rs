//! Agents whose Pod no node takes: when it stays, and when another one follows.

use std::sync::Arc;

use yoi_plan::nodes::Node;
use yoi_plan::step::{Kind, Step};
use yoi_plan::yoipod;

use crate::nodes::agents::{agent, not_on, only_on, run};
use crate::nodes::*;

/// The agent asks for nodes of this planet.
fn selecting(mut seen: yoipod::Observed, planet: &str) -> yoipod::Observed {
    let yoipod = Arc::make_mut(&mut seen.yoipod);
    yoipod.spec.pod.node_selector.insert("planet".to_owned(), planet.to_owned());
    seen.users = vec![seen.yoipod.clone()];
    seen
}

fn on_planet(planet: &str, mut node: Node) -> Node {
    node.labels.insert("planet".to_owned(), planet.to_owned());
    node
}

#[test]
fn an_agent_whose_own_settings_allow_no_node_keeps_its_first_pod() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    let two = || nodes(vec![("a", plain(3)), ("b", plain(2))]);
    // The first Pod is not bound to the nodes with the base, so that it need not make way for one that is not.
    let first = run(&selecting(agent(&bases, two(), None, "Creating"), "mars"));
    let pod = first.steps.iter().find_map(|s| if let Step::EnsurePod(p) = s { Some(p) } else { None }).expect("a Pod");
    let affinity = serde_json::to_value(&pod.spec.as_ref().expect("a spec").affinity).expect("JSON");
    assert_eq!(affinity["nodeAffinity"].get("requiredDuringSchedulingIgnoredDuringExecution"), None, "{affinity}");
    // A node with the base that it may go to gets it first.
    let near = nodes(vec![("a", on_planet("mars", plain(3))), ("b", plain(2))]);
    let first = run(&selecting(agent(&bases, near, None, "Creating"), "mars"));
    let pod = first.steps.iter().find_map(|s| if let Step::EnsurePod(p) = s { Some(p) } else { None }).expect("a Pod");
    let affinity = serde_json::to_value(&pod.spec.as_ref().expect("a spec").affinity).expect("JSON");
    assert_eq!(affinity, only_on("a")["affinity"]);
}

#[test]
fn a_pod_that_waits_is_kept_when_a_node_that_it_avoids_would_not_take_it() {
    let project = git_project("https://git.example/a");
    let bases = [sealed_on(&project, "a")];
    // The shim of b was not there when the Pod was made, and is back.
    let waits = |b: Node| {
        let seen = agent(&bases, nodes(vec![("a", plain(1)), ("b", b)]), Some((not_on("b"), unschedulable(100))), "NoRoom");
        let plan = run(&selecting(seen, "mars"));
        let ready = condition(&plan.status.as_ref().expect("a status").conditions, "Ready").reason.clone();
        (outcome(&plan.steps, Kind::Pod).1.len(), ready)
    };
    assert_eq!(waits(plain(1)), (0, "Unschedulable".to_owned()), "another planet");
    let cordoned = on_planet("mars", node(1, cordoned(), None));
    assert_eq!(waits(cordoned), (0, "Unschedulable".to_owned()), "it takes no Pod");
    assert_eq!(waits(on_planet("mars", plain(1))).0, 1, "what it depends on has changed");
}
