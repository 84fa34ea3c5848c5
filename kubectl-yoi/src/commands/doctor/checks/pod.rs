//! Why a Pod does not run, as the scheduler and the kubelet say it.

use k8s_openapi::api::core::v1::{ContainerStatus, Event, Pod};
use kube::ResourceExt;

/// Returns why a Pod fails, or `None` when it runs, has succeeded, or is younger than a minute. `age` is in seconds.
pub fn failure(pod: &Pod, warnings: &[Event], age: i64) -> Option<String> {
    let status = pod.status.as_ref()?;
    if let Some(why) = status.container_statuses.iter().flatten().find_map(container_failure) {
        return Some(why);
    }
    match status.phase.as_deref() {
        Some("Pending") if age >= 60 => {
            let unscheduled = status.conditions.iter().flatten().find(|c| c.type_ == "PodScheduled" && c.status == "False");
            let message = unscheduled.and_then(|c| c.message.clone()).or_else(|| last_warning(pod, warnings));
            Some(message.unwrap_or_else(|| format!("Pending for {age} s")))
        }
        Some("Failed") => Some(status.message.clone().or_else(|| status.reason.clone()).unwrap_or_else(|| "it failed".to_owned())),
        Some(_) | None => None,
    }
}

fn container_failure(container: &ContainerStatus) -> Option<String> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().unwrap_or_default();
    if matches!(reason, "" | "ContainerCreating" | "PodInitializing") {
        return None;
    }
    let last =
        container.last_state.as_ref().and_then(|s| s.terminated.as_ref()).map(|t| format!(", it ended with exit code {}", t.exit_code));
    let message = waiting.message.as_deref().unwrap_or_default();
    Some(format!("container {}: {reason} {message}{}", container.name, last.unwrap_or_default()))
}

fn last_warning(pod: &Pod, warnings: &[Event]) -> Option<String> {
    let about = |e: &&Event| e.involved_object.uid == pod.metadata.uid && e.involved_object.uid.is_some();
    let last = warnings.iter().filter(about).max_by_key(|e| e.last_timestamp.as_ref().map(|t| t.0))?;
    Some(format!("{}: {}", last.reason.as_deref().unwrap_or_default(), last.message.as_deref().unwrap_or_default()))
}

/// Returns the first of `pods` of an app that fails, and why.
pub fn app_failure(pods: &[Pod], app: &str) -> Option<String> {
    let ours = pods.iter().filter(|p| p.labels().get("app.kubernetes.io/name").is_some_and(|name| name == app));
    ours.filter_map(|p| Some(format!("Pod {}: {}", p.name_any(), failure(p, &[], 60)?))).next()
}
