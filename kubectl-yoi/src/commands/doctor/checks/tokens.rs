//! Whether the gateway can authenticate agents: its permissions at the API server, and running agents that have not reported.

use kube::ResourceExt;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed};
use super::or_ok;

/// Within this time a runtime that can connects and reports. In seconds.
const GRACE_SECONDS: i64 = 60;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    for permission in listed(&observed.permissions).iter().filter(|r| !r.allowed) {
        let what = format!("it may not {} {}", permission.verb, permission.resource);
        found.push(Finding::error(format!("User {}", permission.account), what, observed.reapply_command("yoi-operator")));
    }
    let mut reported = 0;
    for yoipod in listed(&observed.yoipods) {
        let status = yoipod.status.clone().unwrap_or_default();
        let Some(current) = &status.pod else { continue };
        let Some(pod) = listed(&observed.pods).iter().find(|p| p.uid().as_deref() == Some(&current.uid)) else { continue };
        let containers = pod.status.iter().flat_map(|s| s.container_statuses.iter().flatten());
        let since = containers.filter_map(|c| c.state.as_ref()?.running.as_ref()?.started_at.as_ref()).map(|t| observed.age(t.0)).min();
        let has_reported = status.report.as_ref().is_some_and(|r| r.pod_uid == current.uid);
        match since {
            Some(_) if has_reported => reported += 1,
            Some(seconds) if seconds >= observed.patience(GRACE_SECONDS) => {
                let what =
                    format!("Pod {} has run for {seconds} s, and its runtime has not reported: no gateway knows its token", current.name);
                let command = format!("kubectl logs {} -n {} --tail=20", current.name, yoipod.namespace().unwrap_or_default());
                found.push(Finding::error(display_name(yoipod), what, command));
            }
            Some(_) | None => {}
        }
    }
    let complete = observed.permissions.is_ok() && observed.yoipods.is_ok() && observed.pods.is_ok();
    or_ok(found, complete, "tokens", || format!("gateway and operator have their rights; {reported} running agents have reported"))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy};

    #[test]
    fn a_gateway_that_may_not_review_tokens_is_told() {
        let mut observed = healthy();
        observed.permissions.as_mut().unwrap()[0].allowed = false;
        assert!(expect_finding(&observed, "tokens", "may not create tokenreviews").command.unwrap().contains("helm get manifest"));
    }

    #[test]
    fn an_agent_that_runs_and_was_never_heard_is_told() {
        let mut observed = healthy();
        observed.yoipods.as_mut().unwrap()[0].status.as_mut().unwrap().report = None;
        observed.now += jiff::SignedDuration::from_secs(61);
        assert_eq!(expect_finding(&observed, "tokens", "has not reported").command.unwrap(), "kubectl logs a-1 -n ns --tail=20");
    }
}
