//! Our own processes, as the chart installs them.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;

use super::super::finding::Finding;
use super::super::world::{World, called, replicas, seen};
use super::{or_ok, pod};

/// Far beyond the Lease's term, because the holder's clock is not ours.
const STALE: i64 = 60;

pub fn check(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    if world.deployments.is_ok() {
        found.extend(operator(world));
        found.extend(gateway(world));
    }
    if world.daemon_sets.is_ok() {
        found.extend(shim(world));
    }
    let complete = world.deployments.is_ok() && world.daemon_sets.is_ok() && world.leases.is_ok() && world.nodes.is_ok();
    or_ok(found, complete, "charts", || "operator, gateway and shim are up, and one operator leads".to_owned())
}

fn install(world: &World) -> String {
    format!("helm upgrade --install yoi-operator charts/yoi-operator -n {} --create-namespace", world.home)
}

fn unavailable(world: &World, deployment: &Deployment) -> Option<String> {
    let (name, wanted) = (deployment.name_any(), replicas(deployment));
    let available = deployment.status.as_ref().and_then(|s| s.available_replicas).unwrap_or(0);
    (available < wanted).then(|| {
        let why = pod::of_app(seen(&world.our_pods), &name).map(|why| format!(": {why}")).unwrap_or_default();
        format!("{available} of {wanted} replicas are available{why}")
    })
}

fn describe(world: &World, app: &str) -> String {
    format!("kubectl describe pods -n {} -l app.kubernetes.io/name={app}", world.home)
}

fn operator(world: &World) -> Vec<Finding> {
    let Some(operator) = world.deployment("yoi-operator") else {
        return vec![Finding::error("Deployment yoi-operator", "the chart yoi-operator is not installed", install(world))];
    };
    if replicas(operator) == 0 {
        let command = format!("kubectl scale deployment yoi-operator -n {} --replicas=1", world.home);
        return vec![Finding::error(called(operator), "it is scaled to 0: no object of ours is acted on", command)];
    }
    if let Some(why) = unavailable(world, operator) {
        return vec![Finding::error(called(operator), why, describe(world, "yoi-operator"))];
    }
    lease(world).into_iter().collect()
}

fn lease(world: &World) -> Option<Finding> {
    let leases = world.leases.as_ref().ok()?;
    let restart = format!("kubectl rollout restart deployment yoi-operator -n {}", world.home);
    let Some(lease) = leases.iter().find(|l| l.name_any() == "yoi-operator") else {
        return Some(Finding::error(format!("Lease {}/yoi-operator", world.home), "no operator has ever led", restart));
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    let age = spec.renew_time.map_or(i64::MAX, |t| world.age(t.0));
    if age > STALE {
        return Some(Finding::error(called(lease), format!("{holder} has not renewed it for {age} s (by this machine's clock)"), restart));
    }
    let pods = world.our_pods.as_ref().ok()?;
    let alive = holder.is_empty() || pods.iter().any(|p| holder.contains(&p.name_any()));
    (!alive).then(|| Finding::warning(called(lease), format!("{holder} holds it, and is no Pod of the operator"), restart))
}

fn gateway(world: &World) -> Vec<Finding> {
    let Some(gateway) = world.deployment("yoi-gateway") else {
        return vec![Finding::error("Deployment yoi-gateway", "the chart yoi-operator is not installed", install(world))];
    };
    let mut found = Vec::new();
    let scale = format!("kubectl scale deployment yoi-gateway -n {} --replicas=2", world.home);
    match replicas(gateway) {
        0 => {
            let what = "it is scaled to 0: no agent can be reached, and no namespace of the cluster can be deleted";
            return vec![Finding::error(called(gateway), what, scale)];
        }
        1 => found.push(Finding::note(called(gateway), "one replica: while it is replaced, no namespace can be deleted", scale)),
        _ => {}
    }
    if let Some(why) = unavailable(world, gateway) {
        found.push(Finding::error(called(gateway), why, describe(world, "yoi-gateway")));
    }
    if world.budgets.as_ref().is_ok_and(|budgets| !budgets.iter().any(|b| b.name_any() == "yoi-gateway")) {
        let what = "it is missing: a drain may take all gateways at once";
        found.push(Finding::warning(format!("PodDisruptionBudget {}/yoi-gateway", world.home), what, world.reapply("yoi-operator")));
    }
    found
}

fn shim(world: &World) -> Vec<Finding> {
    let Some(shim) = seen(&world.daemon_sets).iter().find(|d| d.name_any() == "yoi-agent-shim") else {
        return vec![Finding::error("DaemonSet yoi-agent-shim", "the chart yoi-operator is not installed", install(world))];
    };
    let mut found = Vec::new();
    let Ok(nodes) = &world.nodes else { return found };
    let (mut covered, mut left_out) = (0, Vec::new());
    for node in nodes.iter().filter(|n| schedulable(n)) {
        match outside(shim, node) {
            None => covered += 1,
            Some(label) => left_out.push((node.name_any(), label)),
        }
    }
    for (node, label) in left_out {
        let what = format!("its nodeSelector asks for {}={}, which node {node} does not bear: agents cannot run there", label.0, label.1);
        let place = shim.namespace().unwrap_or_default();
        if covered == 0 {
            // Removing what the chart did not ask for; the chart's own values come back with the next `helm upgrade`.
            let path = label.0.replace('~', "~0").replace('/', "~1");
            let command = format!(
                "kubectl patch daemonset {} -n {place} --type=json -p '[{{\"op\":\"remove\",\"path\":\"/spec/template/spec/nodeSelector/{path}\"}}]'",
                shim.name_any()
            );
            found.push(Finding::error(called(shim), what, command));
        } else {
            found.push(Finding::note(called(shim), what, format!("kubectl label node {node} {}={}", label.0, label.1)));
        }
    }
    let status = shim.status.clone().unwrap_or_default();
    if covered > 0 && status.number_ready < status.desired_number_scheduled {
        let why = pod::of_app(seen(&world.our_pods), "yoi-agent-shim").map(|why| format!(": {why}")).unwrap_or_default();
        let what = format!("{} of {} nodes have it ready{why}", status.number_ready, status.desired_number_scheduled);
        let command = format!("kubectl describe pods -n {} -l app.kubernetes.io/name=yoi-agent-shim", shim.namespace().unwrap_or_default());
        found.push(Finding::error(called(shim), what, command));
    }
    found
}

fn schedulable(node: &Node) -> bool {
    !node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false)
}

/// The label that the DaemonSet asks for and the node has not got.
fn outside(shim: &DaemonSet, node: &Node) -> Option<(String, String)> {
    let selector = shim.spec.as_ref()?.template.spec.as_ref()?.node_selector.as_ref()?;
    selector.iter().find(|(key, value)| node.labels().get(*key) != Some(value)).map(|(k, v)| (k.clone(), v.clone()))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{found, healthy};
    use serde_json::json;

    #[test]
    fn processes_that_are_scaled_to_nothing_are_scaled_up_again() {
        for (name, replicas) in [("yoi-operator", 1), ("yoi-gateway", 2)] {
            let mut world = healthy();
            for d in world.deployments.as_mut().unwrap().iter_mut().filter(|d| d.metadata.name.as_deref() == Some(name)) {
                d.spec.as_mut().unwrap().replicas = Some(0);
            }
            let finding = found(&world, "charts", "scaled to 0");
            assert_eq!(finding.command.unwrap(), format!("kubectl scale deployment {name} -n yoi-system --replicas={replicas}"));
        }
    }

    #[test]
    fn a_shim_that_no_node_matches_is_an_error_and_one_node_without_it_a_note() {
        let mut world = healthy();
        let shim = &mut world.daemon_sets.as_mut().unwrap()[0];
        shim.spec.as_mut().unwrap().template.spec.as_mut().unwrap().node_selector = Some([("a.b/c".to_owned(), "d".to_owned())].into());
        let finding = found(&world, "charts", "a.b/c=d");
        assert_eq!(finding.severity, super::super::Severity::Error);
        assert!(finding.command.unwrap().contains("/nodeSelector/a.b~1c"), "the key is escaped");
        let other = serde_json::from_value(json!({ "metadata": { "name": "m", "labels": { "a.b/c": "d" } } })).unwrap();
        world.nodes.as_mut().unwrap().push(other);
        assert_eq!(found(&world, "charts", "a.b/c=d").severity, super::super::Severity::Note);
    }

    #[test]
    fn a_lease_that_nobody_renews_and_a_lease_of_a_dead_pod_are_told() {
        let mut world = healthy();
        world.now += jiff::SignedDuration::from_secs(90);
        assert!(found(&world, "charts", "not renewed").message.contains("92 s"));
        let mut world = healthy();
        world.our_pods.as_mut().unwrap().clear();
        found(&world, "charts", "is no Pod");
    }

    #[test]
    fn a_chart_that_is_not_there_and_a_missing_budget_are_told() {
        let mut world = healthy();
        world.deployments.as_mut().unwrap().clear();
        assert!(found(&world, "charts", "not installed").command.unwrap().starts_with("helm upgrade --install"));
        let mut world = healthy();
        world.budgets.as_mut().unwrap().clear();
        assert!(found(&world, "charts", "is missing").command.unwrap().contains("helm get manifest"));
    }
}
