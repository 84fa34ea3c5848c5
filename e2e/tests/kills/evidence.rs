//! Prints the state at the API server when a promise was broken, for readers who only have the run's output.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::churn::pod_ready;
use crate::workload::Workload;

/// At most this many Warnings are printed, the newest.
const EVENTS: usize = 12;

/// Prints the Pods that are not ready, with the reason of each container, and the newest Warnings of the workload's namespace.
pub async fn print(workload: &Workload) {
    match tokio::time::timeout(std::time::Duration::from_secs(20), gather(workload)).await {
        Ok(Ok(lines)) => lines.iter().for_each(|line| println!("  {line}")),
        Ok(Err(error)) => println!("  failed to ask the API server for its objects: {error:#}"),
        Err(_) => println!("  the API server did not answer"),
    }
}

async fn gather(workload: &Workload) -> Result<Vec<String>> {
    let pods = Api::<Pod>::all(workload.ns.client.clone()).list(&ListParams::default()).await?.items;
    let mut lines: Vec<String> = pods.iter().filter(|pod| !pod_ready(pod)).map(describe_pod).collect();
    let mut warnings = workload.ns.api::<Event>().list(&ListParams::default().fields("type=Warning")).await?.items;
    let at = |event: &Event| event.last_timestamp.as_ref().map(|time| time.0).or_else(|| event.event_time.as_ref().map(|time| time.0));
    warnings.sort_by_key(at);
    lines.extend(warnings.iter().rev().take(EVENTS).rev().map(|event| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let when = at(event).map_or_else(String::new, |time| time.to_string());
        format!("{when} {} {}: {}", text(&event.involved_object.name), text(&event.reason), text(&event.message))
    }));
    Ok(lines)
}

fn describe_pod(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let states = containers.filter(|container| !container.ready).map(|container| {
        let waiting = container.state.as_ref().and_then(|state| state.waiting.as_ref()).and_then(|waiting| waiting.reason.clone());
        let ended = container.last_state.as_ref().and_then(|state| state.terminated.as_ref()).map(|ended| ended.exit_code);
        format!("{} restarted {} times, waits for {waiting:?}, last exit code {ended:?}", container.name, container.restart_count)
    });
    let namespace = pod.namespace().unwrap_or_default();
    let deleting = if pod.metadata.deletion_timestamp.is_some() { ", being deleted" } else { "" };
    format!(
        "Pod {namespace}/{} is {}{deleting}: {}",
        pod.name_any(),
        status.phase.unwrap_or_default(),
        states.collect::<Vec<_>>().join("; ")
    )
}
