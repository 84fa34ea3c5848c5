//! What must exist before a plan makes a Pod: its network policies, and the hostname of its node.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde_json::{Value, json};
use yoi_crds::AgentWorkspace;
use yoi_plan::network::{ensure, with_network_policies};
use yoi_plan::nodes::{Node, Nodes};
use yoi_plan::settings::Network;
use yoi_plan::step::Step;
use yoi_plan::workspace;

use crate::samples::{now, settings, workspace_with};

fn made<T: serde::de::DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).expect("an object of the kind")
}

#[test]
fn the_policies_come_right_before_the_first_pod_and_nowhere_without_one() {
    let rules = Network::default();
    let none: [Arc<NetworkPolicy>; 0] = [];
    let map = || Step::EnsureConfigMap(Box::<ConfigMap>::default());
    let pod = || Step::EnsurePod(Box::<Pod>::default());
    let with = |steps, existing: &[Arc<NetworkPolicy>]| with_network_policies(steps, "ns", Some(&rules), existing);
    assert_eq!(with(vec![map()], &none), [map()]);
    let steps = with(vec![map(), pod(), pod()], &none);
    let [agents, populators, readers, pushers] = &ensure("ns", &rules, &none)[..] else { panic!("four policies") };
    assert_eq!(steps, [map(), agents.clone(), populators.clone(), readers.clone(), pushers.clone(), pod(), pod()]);

    let there = [agents, populators, readers, pushers]
        .map(|s| if let Step::EnsureNetworkPolicy(p) = s { Arc::new((**p).clone()) } else { panic!("{s:?}") });
    assert_eq!(with(vec![pod()], &there), [pod()]);
    assert_eq!(with_network_policies(vec![pod()], "ns", None, &none), [pod()], "without settings there is no policy to make");
}

/// A node's name is not its hostname label on every cluster.
#[test]
fn no_pod_fills_a_base_while_the_hostname_of_its_node_is_unknown() {
    let conditions =
        json!([{"type": "Provisioned", "status": "True", "reason": "Is", "message": "", "lastTransitionTime": "2023-01-01T00:00:00Z"}]);
    let base: Arc<AgentWorkspace> = Arc::new(made(json!({
        "metadata": {
            "name": "base", "namespace": "ns", "uid": "base", "resourceVersion": "1", "generation": 1,
            "finalizers": ["yoi.dev/operator", "yoi.dev/node-data"],
        },
        "spec": {"source": {"git": {"url": "https://example.invalid/a"}}, "base": {"generation": "g", "node": "n1"}},
        "status": {"nodeName": "n1", "origin": {"kind": "Empty"}, "conditions": conditions},
    })));
    let pods = |nodes: Nodes| {
        let seen = workspace_with(base.clone(), Arc::new(nodes));
        let plan = workspace::plan(&seen, &settings(), now());
        let pod = |s: Step| if let Step::EnsurePod(p) = s { Some(serde_json::to_string(&p).expect("JSON")) } else { None };
        plan.steps.into_iter().filter_map(pod).collect::<Vec<_>>()
    };
    assert_eq!(pods(Nodes::default()), Vec::<String>::new(), "its node is gone, and may come back");
    // Another node's hostname label says nothing: the Pod goes to the node of this name.
    let labels = BTreeMap::from([("kubernetes.io/hostname".to_owned(), "n2".to_owned())]);
    let back = pods(Nodes(BTreeMap::from([("n1".to_owned(), Node { labels, ..Node::default() })])));
    let named = r#""matchFields":[{"key":"metadata.name","operator":"In","values":["n1"]}]"#;
    assert!(back.len() == 1 && back[0].contains(named), "{back:?}");
}
