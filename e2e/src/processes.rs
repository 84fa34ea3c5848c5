//! Our own processes in the cluster: operator, gateways and shims.

use anyhow::Result;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};

use crate::poll_seen;
use crate::test_namespace::TIMEOUT;

/// Waits until each of them is as the charts say, and none of before is left: what a test that replaced some owes to the next one, which may look at each.
///
/// # Errors
/// After the limit of [`TIMEOUT`], with one that is not.
pub async fn wait_all_ready(client: &Client) -> Result<()> {
    poll_seen(TIMEOUT, "each Pod of ours is Ready, and no former one is left", async || {
        for namespace in ["yoi-system", "yoi-node"] {
            if let Some(unready) = unready(client, namespace).await? {
                return Ok(Err(unready));
            }
        }
        Ok(Ok(()))
    })
    .await
    .map(drop)
}

/// The first of this namespace that is not as the charts say.
async fn unready(client: &Client, namespace: &str) -> Result<Option<String>> {
    let ours = ListParams::default().labels("app.kubernetes.io/part-of=yoi");
    for deployment in Api::<Deployment>::namespaced(client.clone(), namespace).list(&ours).await? {
        let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
        let status = deployment.status.clone().unwrap_or_default();
        if [status.replicas, status.updated_replicas, status.ready_replicas].map(Option::unwrap_or_default) != [wanted; 3] {
            return Ok(Some(format!("Deployment {}: {status:?}", deployment.name_any())));
        }
    }
    for daemons in Api::<DaemonSet>::namespaced(client.clone(), namespace).list(&ours).await? {
        let status = daemons.status.clone().unwrap_or_default();
        let wanted = status.desired_number_scheduled;
        if [status.updated_number_scheduled.unwrap_or_default(), status.number_ready] != [wanted; 2] {
            return Ok(Some(format!("DaemonSet {}: {status:?}", daemons.name_any())));
        }
    }
    for pod in Api::<Pod>::namespaced(client.clone(), namespace).list(&ours).await? {
        let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let ready = conditions.clone().any(|condition| condition.type_ == "Ready" && condition.status == "True");
        if !ready || pod.metadata.deletion_timestamp.is_some() {
            return Ok(Some(format!("Pod {}", pod.name_any())));
        }
    }
    Ok(None)
}
