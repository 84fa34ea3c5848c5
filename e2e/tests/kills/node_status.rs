//! Checks what the API server says about nodes.

use anyhow::Result;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

#[derive(Debug, Default, PartialEq, Eq)]
pub struct Nodes {
    /// Names of those that are not Ready.
    pub not_ready: Vec<String>,
    /// One of them is only waiting for its kubelet's next look at its own object.
    pub unseen: bool,
}

/// Looks at all nodes and their Leases.
pub async fn look(client: &Client) -> Result<Nodes> {
    let all = ListParams::default();
    let nodes = Api::<Node>::all(client.clone()).list(&all).await?.items;
    let leases = Api::<Lease>::namespaced(client.clone(), "kube-node-lease").list(&all).await?.items;
    Ok(judge(&nodes, &leases))
}

fn judge(nodes: &[Node], leases: &[Lease]) -> Nodes {
    let mut judged = Nodes::default();
    for node in nodes {
        let ready = ready(node);
        if ready.is_some_and(|ready| ready.status == "True") {
            continue;
        }
        let name = node.name_any();
        judged.unseen |= ready.is_some_and(|ready| leases.iter().any(|lease| lease.name_any() == name && renewed_since(lease, ready)));
        judged.not_ready.push(name);
    }
    judged
}

fn ready(node: &Node) -> Option<&NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == "Ready")
}

/// Returns whether the kubelet lives and reaches the API server, and has not yet seen that the node controller wrote `Unknown`: it compares its
/// status with what it watched of its node, and that watch backs off by up to a minute when the API server was killed twice in a short time. The
/// node controller, whose watch of Leases backs off like that, writes `Unknown` of a node whose Lease was renewed in time.
fn renewed_since(lease: &Lease, ready: &NodeCondition) -> bool {
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    let since = ready.last_transition_time.as_ref();
    ready.status == "Unknown" && renewed.zip(since).is_some_and(|(renewed, since)| renewed.0 > since.0)
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn only_an_unknown_node_whose_lease_was_renewed_since_is_unseen() {
        let node = |status: &str| -> Node {
            let ready = json!({ "type": "Ready", "status": status, "lastTransitionTime": "2026-11-27T02:22:43Z" });
            from_value(json!({ "metadata": { "name": "n" }, "status": { "conditions": [ready] } })).unwrap()
        };
        let lease = |name: &str, time: &str| -> Lease {
            from_value(json!({ "metadata": { "name": name }, "spec": { "renewTime": time } })).unwrap()
        };
        let later = lease("n", "2026-11-27T02:22:48.572907Z");
        let judged = |status: &str, lease: &Lease| judge(&[node(status)], std::slice::from_ref(lease));
        assert_eq!(judged("True", &later), Nodes::default());
        assert_eq!(judged("Unknown", &later), Nodes { not_ready: vec!["n".to_owned()], unseen: true });
        for (status, lease) in [
            ("False", &later),
            ("Unknown", &lease("n", "2026-11-27T02:22:38.439887Z")),
            ("Unknown", &lease("other", "2026-11-27T02:22:48.572907Z")),
        ] {
            assert_eq!(judged(status, lease), Nodes { not_ready: vec!["n".to_owned()], unseen: false });
        }
    }
}
