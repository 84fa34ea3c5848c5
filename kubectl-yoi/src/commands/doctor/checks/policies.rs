//! Network policies that nothing enforces. No API tells whether a network plugin enforces them, so the check knows the plugins that do.

use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use yoi_crds::name::label;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, listed};
use super::or_ok;

/// Prefixes of the names of DaemonSets, or of their containers, that enforce NetworkPolicies.
const ENFORCERS: &[&str] = &[
    "calico-node",
    "canal",
    "cilium",
    "anetd",
    "kube-router",
    "antrea-agent",
    "weave-net",
    "ovnkube-node",
    "ovn-kubernetes",
    "kube-ovn-cni",
    "kube-network-policies",
    "azure-npm",
    "aws-network-policy-agent",
    "aws-node-network-policy",
];
/// Since this image, of kind 0.24, kindnet enforces them. Its tags are dates.
const KINDNET: &str = "v20240813";

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let (Ok(sets), Ok(policies)) = (&observed.daemon_sets, &observed.policies) else { return Vec::new() };
    if let Some(by) = sets.iter().find_map(enforcer) {
        return vec![Finding::ok("NetworkPolicies", format!("{} of agents; {by} is known to enforce them", policies.len()))];
    }
    if let Some(by) = enforcer_by_label(listed(&observed.nodes)) {
        return vec![Finding::ok(
            "NetworkPolicies",
            format!("{} of agents; {by} enforces them, as a label of the Nodes says", policies.len()),
        )];
    }
    if policies.is_empty() {
        let what = "no agent has needed one yet; nothing here is known to enforce them (judged by the names of DaemonSets)";
        return or_ok(vec![Finding::note("NetworkPolicies", what, COMMAND)], true, "NetworkPolicies", || "none to enforce".to_owned());
    }
    let places: std::collections::BTreeSet<_> = policies.iter().filter_map(ResourceExt::namespace).collect();
    let what = format!(
        "{} of agents in {} exist, and nothing here is known to enforce them (judged by the names of {} DaemonSets): agents can reach every address",
        policies.len(),
        places.into_iter().collect::<Vec<_>>().join(", "),
        listed(&observed.daemon_sets).len()
    );
    vec![Finding::warning("NetworkPolicies", what, COMMAND)]
}

/// Installs a plugin that only enforces policies and works beside any network plugin.
const COMMAND: &str = "kubectl apply -f https://raw.githubusercontent.com/kubernetes-sigs/kube-network-policies/main/install.yaml";

/// What administrators say of every Node: some clusters enforce policies in a process that no Pod shows.
fn enforcer_by_label(nodes: &[Node]) -> Option<&str> {
    let said: Option<Vec<&str>> =
        nodes.iter().map(|node| node.labels().get(label::POLICIES_ENFORCED_BY).filter(|by| !by.is_empty()).map(String::as_str)).collect();
    said?.first().copied()
}

fn enforcer(set: &DaemonSet) -> Option<String> {
    let name = set.name_any();
    let containers = set.spec.as_ref().and_then(|s| s.template.spec.as_ref()).map(|p| p.containers.as_slice()).unwrap_or_default();
    let known = |name: &str| ENFORCERS.iter().any(|known| name.starts_with(known));
    let kindnet = |c: &k8s_openapi::api::core::v1::Container| {
        let tag = c.image.as_deref().and_then(|image| image.split_once("kindnetd:")).map(|(_, tag)| tag);
        tag.is_some_and(|tag| tag.get(..KINDNET.len()).is_some_and(|date| date >= KINDNET))
    };
    (known(&name) || containers.iter().any(|c| known(&c.name) || kindnet(c))).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy};
    use super::super::{Severity, check_named};
    use serde_json::json;

    fn with(name: &str, image: &str) -> Vec<super::Finding> {
        let mut observed = healthy();
        let set = json!({ "metadata": { "name": name, "namespace": "kube-system" }, "spec": { "selector": {}, "template": {
            "spec": { "containers": [{ "name": "c", "image": image }] } } } });
        *observed.daemon_sets.as_mut().unwrap() = vec![serde_json::from_value(set).unwrap()];
        check_named(&observed, "policies")
    }

    #[test]
    fn a_known_plugin_enforces_policies_and_an_old_kindnet_does_not() {
        for (name, image) in [("cilium", "x"), ("calico-node", "x"), ("kindnet", "docker.io/kindest/kindnetd:v20250512-df8de77b")] {
            assert_eq!(with(name, image)[0].severity, Severity::Ok, "{name}");
        }
        for (name, image) in [("kindnet", "docker.io/kindest/kindnetd:v20240202-8f1494ea"), ("kube-flannel-ds", "x")] {
            assert_eq!(with(name, image)[0].severity, Severity::Warning, "{name}");
        }
    }

    #[test]
    fn a_label_of_every_node_says_what_enforces_them_and_one_of_some_nodes_does_not() {
        let mut observed = healthy();
        observed.daemon_sets.as_mut().unwrap().retain(|d| d.metadata.name.as_deref() == Some("yoi-agent-shim"));
        let nodes = observed.nodes.as_mut().unwrap();
        nodes.push(nodes[0].clone());
        let mut label = |node: usize, value: &str| {
            let labels = observed.nodes.as_mut().unwrap()[node].metadata.labels.get_or_insert_default();
            labels.insert("yoi.dev/network-policies-enforced-by".to_owned(), value.to_owned());
            check_named(&observed, "policies")[0].clone()
        };
        assert_eq!(label(0, "k3s").severity, Severity::Warning);
        assert_eq!(label(1, "").severity, Severity::Warning);
        let said = label(1, "k3s");
        assert!(said.severity == Severity::Ok && said.message.contains("k3s enforces them"), "{said:?}");
    }

    #[test]
    fn where_nothing_enforces_it_says_that_this_is_a_judgement() {
        let mut observed = healthy();
        observed.daemon_sets.as_mut().unwrap().retain(|d| d.metadata.name.as_deref() == Some("yoi-agent-shim"));
        assert!(expect_finding(&observed, "policies", "nothing here is known").message.contains("judged by the names of 1 DaemonSets"));
    }
}
