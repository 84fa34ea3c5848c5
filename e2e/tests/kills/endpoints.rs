//! Checks that the Services of the gateway and of DNS list their Pods again.

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::churn::pod_ready;

/// Namespaces of the gateway and of the cluster's DNS.
const NAMESPACES: [&str; 2] = ["yoi-system", "kube-system"];

/// Returns a sentence for each ready Pod that the endpoints of its Service leave out. After the API server was killed, Kubernetes' endpoint
/// controller can be 70 s late, and nobody reaches the Service meanwhile.
pub async fn missing_pods(client: &Client) -> Result<Vec<String>> {
    let (all, mut missing) = (ListParams::default(), Vec::new());
    for namespace in NAMESPACES {
        let slices = Api::<EndpointSlice>::namespaced(client.clone(), namespace).list(&all).await?;
        let pods = Api::<Pod>::namespaced(client.clone(), namespace).list(&all).await?.items;
        missing.extend(slices.iter().flat_map(|slice| missing_from(slice, &pods)));
    }
    Ok(missing)
}

fn missing_from(slice: &EndpointSlice, pods: &[Pod]) -> Vec<String> {
    let not_ready = slice.endpoints.iter().filter(|endpoint| endpoint.conditions.as_ref().and_then(|c| c.ready) == Some(false));
    let names = not_ready.filter_map(|endpoint| endpoint.target_ref.as_ref()?.name.clone());
    let ready = names.filter(|name| pods.iter().any(|pod| pod.name_any() == *name && pod_ready(pod)));
    ready.map(|name| format!("the endpoints {} leave out {name}, which is ready", slice.name_any())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn only_a_ready_pod_is_left_out() {
        let slice = |ready: bool| -> EndpointSlice {
            let endpoint = |name: &str| json!({ "addresses": ["198.18.0.6"], "conditions": { "ready": ready }, "targetRef": { "kind": "Pod", "name": name } });
            from_value(json!({ "metadata": { "name": "s" }, "addressType": "IPv4", "endpoints": [endpoint("a"), endpoint("b"), endpoint("gone")] })).unwrap()
        };
        let pod = |name: &str, ready: &str| -> Pod {
            from_value(json!({ "metadata": { "name": name }, "status": { "conditions": [{ "type": "Ready", "status": ready }] } })).unwrap()
        };
        let pods = [pod("a", "True"), pod("b", "False")];
        assert_eq!(missing_from(&slice(false), &pods), ["the endpoints s leave out a, which is ready"]);
        assert!(missing_from(&slice(true), &pods).is_empty());
    }
}
