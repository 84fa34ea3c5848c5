//! Operator, gateway and shim, as the charts install them.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::ResourceExt;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed, replicas};
use super::{or_ok, pod};
use crate::show;

/// Much longer than the Lease's duration, because the clocks of the holder and of this machine differ.
const STALE_SECONDS: i64 = 60;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    if observed.deployments.is_ok() {
        found.extend(operator_findings(observed));
        found.extend(gateway_findings(observed));
    }
    if observed.daemon_sets.is_ok() {
        found.extend(shim_findings(observed));
    }
    let complete = observed.deployments.is_ok() && observed.daemon_sets.is_ok() && observed.leases.is_ok() && observed.nodes.is_ok();
    or_ok(found, complete, "charts", || format!("operator, gateway and shim are up; {}", leader_text(observed)))
}

fn install_command(observed: &ObservedCluster) -> String {
    format!("helm upgrade --install yoi-operator charts/yoi-operator -n {} --create-namespace", observed.operator_namespace)
}

fn unavailable_replicas(observed: &ObservedCluster, deployment: &Deployment) -> Option<String> {
    let (name, wanted) = (deployment.name_any(), replicas(deployment));
    let available = deployment.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0);
    (available < wanted).then(|| {
        let why = pod::app_failure(listed(&observed.our_pods), &name).map(|why| format!(": {why}")).unwrap_or_default();
        format!("{available} of {wanted} replicas are available{why}")
    })
}

fn describe_command(observed: &ObservedCluster, app: &str) -> String {
    format!("kubectl describe pods -n {} -l app.kubernetes.io/name={app}", observed.operator_namespace)
}

fn operator_findings(observed: &ObservedCluster) -> Vec<Finding> {
    let Some(operator) = observed.deployment("yoi-operator") else {
        return vec![Finding::error("Deployment yoi-operator", "the chart yoi-operator is not installed", install_command(observed))];
    };
    if replicas(operator) == 0 {
        let command = format!("kubectl scale deployment yoi-operator -n {} --replicas=1", observed.operator_namespace);
        return vec![Finding::error(display_name(operator), "it is scaled to 0: no object of ours is acted on", command)];
    }
    if let Some(why) = unavailable_replicas(observed, operator) {
        let why = format!("{why}; {}", leader_text(observed));
        return vec![Finding::error(display_name(operator), why, describe_command(observed, "yoi-operator"))];
    }
    lease_finding(observed).into_iter().collect()
}

fn operator_lease(observed: &ObservedCluster) -> Option<&Lease> {
    listed(&observed.leases).iter().find(|l| l.name_any() == "yoi-operator")
}

/// Which of the operator's replicas acts, since when, and when it was last heard of.
fn leader_text(observed: &ObservedCluster) -> String {
    let spec = operator_lease(observed).and_then(|lease| lease.spec.clone()).unwrap_or_default();
    let Some(holder) = spec.holder_identity.filter(|holder| !holder.is_empty()) else { return "no operator leads".to_owned() };
    let age = |time: Option<MicroTime>| time.map(|t| show::duration(observed.age(t.0)));
    let since = age(spec.acquire_time).map(|age| format!(" for {age}")).unwrap_or_default();
    let renewed = age(spec.renew_time).map(|age| format!(", renewed {age} ago")).unwrap_or_default();
    format!("{holder} leads{since}{renewed}")
}

/// The Pod of the operator that leads, if it can be told.
pub(super) fn leader_pod(observed: &ObservedCluster) -> Option<&Pod> {
    let holder = operator_lease(observed)?.spec.as_ref()?.holder_identity.as_deref()?;
    listed(&observed.our_pods).iter().find(|p| holder.contains(&p.name_any()))
}

fn lease_finding(observed: &ObservedCluster) -> Option<Finding> {
    let leases = observed.leases.as_ref().ok()?;
    let restart = format!("kubectl rollout restart deployment yoi-operator -n {}", observed.operator_namespace);
    let Some(lease) = leases.iter().find(|l| l.name_any() == "yoi-operator") else {
        return Some(Finding::error(format!("Lease {}/yoi-operator", observed.operator_namespace), "no operator has ever led", restart));
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    let age = spec.renew_time.map_or(i64::MAX, |t| observed.age(t.0));
    if age > STALE_SECONDS {
        return Some(Finding::error(
            display_name(lease),
            format!("{holder} has not renewed it for {age} s (by this machine's clock)"),
            restart,
        ));
    }
    let pods = observed.our_pods.as_ref().ok()?;
    let alive = holder.is_empty() || pods.iter().any(|p| holder.contains(&p.name_any()));
    (!alive).then(|| Finding::warning(display_name(lease), format!("{holder} holds it, and is no Pod of the operator"), restart))
}

fn gateway_findings(observed: &ObservedCluster) -> Vec<Finding> {
    let Some(gateway) = observed.deployment("yoi-gateway") else {
        return vec![Finding::error("Deployment yoi-gateway", "the chart yoi-operator is not installed", install_command(observed))];
    };
    let mut found = Vec::new();
    let scale = format!("kubectl scale deployment yoi-gateway -n {} --replicas=2", observed.operator_namespace);
    match replicas(gateway) {
        0 => {
            let what = "it is scaled to 0: no agent can be reached, and no namespace of the cluster can be deleted";
            return vec![Finding::error(display_name(gateway), what, scale)];
        }
        1 => found.push(Finding::note(display_name(gateway), "one replica: while it is replaced, no namespace can be deleted", scale)),
        _ => {}
    }
    if let Some(why) = unavailable_replicas(observed, gateway) {
        found.push(Finding::error(display_name(gateway), why, describe_command(observed, "yoi-gateway")));
    }
    if observed.budgets.as_ref().is_ok_and(|budgets| !budgets.iter().any(|b| b.name_any() == "yoi-gateway")) {
        let what = "it is missing: a drain may take all gateways at once";
        found.push(Finding::warning(
            format!("PodDisruptionBudget {}/yoi-gateway", observed.operator_namespace),
            what,
            observed.reapply_command("yoi-operator"),
        ));
    }
    found
}

fn shim_findings(observed: &ObservedCluster) -> Vec<Finding> {
    let Some(shim) = listed(&observed.daemon_sets).iter().find(|d| d.name_any() == "yoi-agent-shim") else {
        return vec![Finding::error("DaemonSet yoi-agent-shim", "the chart yoi-operator is not installed", install_command(observed))];
    };
    let mut found = Vec::new();
    let Ok(nodes) = &observed.nodes else { return found };
    let (mut covered, mut uncovered) = (0, Vec::new());
    for node in nodes.iter().filter(|n| schedulable(n)) {
        match unmatched_label(shim, node) {
            None => covered += 1,
            Some(label) => uncovered.push((node.name_any(), label)),
        }
    }
    for (node, label) in uncovered {
        let what = format!("its nodeSelector asks for {}={}, which node {node} does not bear: agents cannot run there", label.0, label.1);
        let namespace = shim.namespace().unwrap_or_default();
        if covered == 0 {
            // The command removes the label from the selector. The next `helm upgrade` brings the values of the chart back.
            let path = label.0.replace('~', "~0").replace('/', "~1");
            let command = format!(
                "kubectl patch daemonset {} -n {namespace} --type=json -p '[{{\"op\":\"remove\",\"path\":\"/spec/template/spec/nodeSelector/{path}\"}}]'",
                shim.name_any()
            );
            found.push(Finding::error(display_name(shim), what, command));
        } else {
            found.push(Finding::note(display_name(shim), what, format!("kubectl label node {node} {}={}", label.0, label.1)));
        }
    }
    let status = shim.status.clone().unwrap_or_default();
    if covered > 0 && status.number_ready < status.desired_number_scheduled {
        let why = pod::app_failure(listed(&observed.our_pods), "yoi-agent-shim").map(|why| format!(": {why}")).unwrap_or_default();
        let what = format!("{} of {} nodes have it ready{why}", status.number_ready, status.desired_number_scheduled);
        let command = format!("kubectl describe pods -n {} -l app.kubernetes.io/name=yoi-agent-shim", shim.namespace().unwrap_or_default());
        found.push(Finding::error(display_name(shim), what, command));
    }
    found
}

fn schedulable(node: &Node) -> bool {
    !node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false)
}

/// Returns a label that the DaemonSet selects and the node has not got.
fn unmatched_label(shim: &DaemonSet, node: &Node) -> Option<(String, String)> {
    let selector = shim.spec.as_ref()?.template.spec.as_ref()?.node_selector.as_ref()?;
    selector.iter().find(|(key, value)| node.labels().get(*key) != Some(value)).map(|(k, v)| (k.clone(), v.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy};
    use serde_json::json;

    #[test]
    fn processes_that_are_scaled_to_nothing_are_scaled_up_again() {
        for (name, replicas) in [("yoi-operator", 1), ("yoi-gateway", 2)] {
            let mut observed = healthy();
            for d in observed.deployments.as_mut().unwrap().iter_mut().filter(|d| d.metadata.name.as_deref() == Some(name)) {
                d.spec.as_mut().unwrap().replicas = Some(0);
            }
            let finding = expect_finding(&observed, "charts", "scaled to 0");
            assert_eq!(finding.command.unwrap(), format!("kubectl scale deployment {name} -n yoi-system --replicas={replicas}"));
        }
    }

    #[test]
    fn a_shim_that_no_node_matches_is_an_error_and_one_node_without_it_a_note() {
        let mut observed = healthy();
        let shim = &mut observed.daemon_sets.as_mut().unwrap()[0];
        shim.spec.as_mut().unwrap().template.spec.as_mut().unwrap().node_selector = Some([("a.b/c".to_owned(), "d".to_owned())].into());
        let finding = expect_finding(&observed, "charts", "a.b/c=d");
        assert_eq!(finding.severity, super::super::Severity::Error);
        assert!(finding.command.unwrap().contains("/nodeSelector/a.b~1c"), "the key is escaped");
        let other = serde_json::from_value(json!({ "metadata": { "name": "m", "labels": { "a.b/c": "d" } } })).unwrap();
        observed.nodes.as_mut().unwrap().push(other);
        assert_eq!(expect_finding(&observed, "charts", "a.b/c=d").severity, super::super::Severity::Note);
    }

    #[test]
    fn who_leads_is_told_with_its_age_also_while_a_replica_is_missing() {
        let mut observed = healthy();
        let spec = observed.leases.as_mut().unwrap()[0].spec.as_mut().unwrap();
        spec.acquire_time = serde_json::from_value(json!("2026-11-21T11:00:00.000000Z")).unwrap();
        let leads = "yoi-operator-1 leads for 60m, renewed 2s ago";
        expect_finding(&observed, "charts", leads);
        observed.deployments.as_mut().unwrap()[0].spec.as_mut().unwrap().replicas = Some(2);
        assert!(expect_finding(&observed, "charts", "1 of 2 replicas are available").message.contains(leads));
    }

    #[test]
    fn a_lease_that_nobody_renews_and_a_lease_of_a_dead_pod_are_told() {
        let mut observed = healthy();
        observed.now += jiff::SignedDuration::from_secs(90);
        assert!(expect_finding(&observed, "charts", "not renewed").message.contains("92 s"));
        let mut observed = healthy();
        observed.our_pods.as_mut().unwrap().clear();
        expect_finding(&observed, "charts", "is no Pod");
    }

    #[test]
    fn a_chart_that_is_not_there_and_a_missing_budget_are_told() {
        let mut observed = healthy();
        observed.deployments.as_mut().unwrap().clear();
        assert!(expect_finding(&observed, "charts", "not installed").command.unwrap().starts_with("helm upgrade --install"));
        let mut observed = healthy();
        observed.budgets.as_mut().unwrap().clear();
        assert!(expect_finding(&observed, "charts", "is missing").command.unwrap().contains("helm get manifest"));
    }
}
