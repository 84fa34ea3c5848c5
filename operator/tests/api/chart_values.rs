//! The values of the chart say what the operator takes without them, and two of each run on a cluster.

use std::path::Path;

use k8s_openapi::api::core::v1::ResourceRequirements;
use serde_yaml::Value;
use yoi_plan::settings::{MOST_WARM_SESSIONS, SCRATCH_LIMIT, agent_resources, populator_resources};

fn chart(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../charts/yoi-operator").join(name);
    std::fs::read_to_string(path).expect("the chart lies beside this crate")
}

#[test]
fn the_values_are_the_defaults_of_the_operator() {
    let values: Value = serde_yaml::from_str(&chart("values.yaml")).expect("YAML");
    let agents = &values["agents"];
    let resources = |name: &str| serde_yaml::from_value::<ResourceRequirements>(agents[name].clone()).expect("resources");
    assert_eq!(resources("resources"), agent_resources());
    assert_eq!(resources("populatorResources"), populator_resources());
    assert_eq!(agents["scratchLimit"].as_str(), Some(SCRATCH_LIMIT));
    assert_eq!(agents["warmSessions"].as_u64(), u64::try_from(MOST_WARM_SESSIONS).ok());
    assert_eq!(agents["assetsFrom"].as_sequence().map(Vec::len), Some(0));
    // Kubernetes takes a limit for the request where there is none, and a node would hold few agents.
    let requests = agent_resources().requests.unwrap_or_default();
    assert!(agent_resources().limits.unwrap_or_default().keys().all(|name| requests.contains_key(name)));
}

#[test]
fn operator_and_gateway_outlive_a_node() {
    let values: Value = serde_yaml::from_str(&chart("values.yaml")).expect("YAML");
    for (name, template) in [("operator", chart("templates/operator.yaml")), ("gateway", chart("templates/gateway.yaml"))] {
        let value = |key: &str| values[name][key].as_u64().unwrap_or_default();
        assert!(value("replicas") >= 2, "{name}");
        assert!((1..=60).contains(&value("lostNodeSeconds")), "{name}");
        for words in ["include \"yoi.tolerations\"", "topologySpreadConstraints:", "kind: PodDisruptionBudget", "maxUnavailable: 1"] {
            assert!(template.contains(words), "{name}: {words}");
        }
    }
}
