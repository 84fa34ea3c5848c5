//! Deletions that do not end, volumes that are left over, and sessions that are kept on purpose.

mod kept_sessions;
mod warm_sessions;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolume};
use kube::ResourceExt;
use yoi_crds::AgentWorkspace;
use yoi_crds::condition::find;
use yoi_crds::name::{annotation, finalizer};
use yoi_crds::reason::condition;
use yoi_crds::workspace::ClaimState;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed, replicas};
use super::or_ok;

/// A deletion usually takes seconds, and a Pod's grace period is half a minute.
const GRACE_SECONDS: i64 = 60;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    found.extend(listed(&observed.projects).iter().filter_map(|o| stuck_deletion(observed, o, None)));
    found.extend(listed(&observed.yoipods).iter().filter_map(|o| stuck_deletion(observed, o, pod_not_ended(observed, o))));
    found.extend(listed(&observed.peers).iter().filter_map(|o| stuck_deletion(observed, o, None)));
    found.extend(listed(&observed.workspaces).iter().filter_map(|o| stuck_deletion(observed, o, tree_not_destroyed(observed, o))));
    found.extend(listed(&observed.pods).iter().filter_map(|o| stuck_deletion(observed, o, None)));
    found.extend(listed(&observed.claims).iter().filter_map(|o| stuck_deletion(observed, o, None)));
    found.extend(listed(&observed.namespaces).iter().filter_map(|n| stuck_namespace(observed, n)));
    found.extend(listed(&observed.volumes).iter().filter_map(|v| left_over_volume(observed, v)));
    found.extend(kept_sessions::check(observed));
    found.extend(warm_sessions::check(observed));
    let complete = observed.yoipods.is_ok()
        && observed.workspaces.is_ok()
        && observed.projects.is_ok()
        && observed.peers.is_ok()
        && observed.namespaces.is_ok()
        && observed.claims.is_ok()
        && observed.volumes.is_ok();
    or_ok(found, complete, "deletions", || "nothing is held, and no volume of ours is left over".to_owned())
}

fn stuck_deletion<K>(observed: &ObservedCluster, object: &K, held: Option<(String, String)>) -> Option<Finding>
where
    K: kube::Resource<DynamicType = ()>,
{
    let age = observed.age(object.meta().deletion_timestamp.as_ref()?.0);
    if age < observed.patience(GRACE_SECONDS) {
        return None;
    }
    let since = format!("being deleted for {}", crate::show::duration(age));
    let kind = K::plural(&());
    let namespace_flag = object.namespace().map(|n| format!(" -n {n}")).unwrap_or_default();
    let name = object.name_any();
    let ours = [finalizer::OPERATOR, finalizer::NODE_DATA];
    // Kubernetes takes off its own finalizers as soon as nothing uses the object.
    let foreign = |f: &String| !ours.contains(&f.as_str()) && !f.starts_with("kubernetes.io/") && !f.starts_with("foregroundDeletion");
    let finalizers = object.finalizers();
    if let Some((n, foreign)) = finalizers.iter().enumerate().find(|(_, f)| foreign(f)) {
        // The `test` makes sure that no other finalizer is removed than this one.
        let command = format!(
            "kubectl patch {kind} {name}{namespace_flag} --type=json -p '[{{\"op\":\"test\",\"path\":\"/metadata/finalizers/{n}\",\"value\":\"{foreign}\"}},\
             {{\"op\":\"remove\",\"path\":\"/metadata/finalizers/{n}\"}}]'"
        );
        let what = format!("{since}: held by finalizer {foreign}, which is none of ours; if whoever set it is gone, take it off");
        return Some(Finding::error(display_name(object), what, command));
    }
    if let Some((why, command)) = held {
        return Some(Finding::error(display_name(object), format!("{since}: {why}"), command));
    }
    let command = format!("kubectl describe {kind} {name}{namespace_flag}");
    if finalizers.iter().any(|f| f == finalizer::OPERATOR) {
        let idle = observed.deployment("yoi-operator").is_some_and(|d| replicas(d) == 0);
        let (what, command) = if idle {
            (
                "the operator, which must let it go, is scaled to 0",
                format!("kubectl scale deployment yoi-operator -n {} --replicas=1", observed.operator_namespace),
            )
        } else {
            ("the operator has not let it go", command)
        };
        return Some(Finding::error(display_name(object), format!("{since}: {what}"), command));
    }
    let held =
        if finalizers.is_empty() { "its Pod or node has not let it go".to_owned() } else { format!("held by {}", finalizers.join(", ")) };
    Some(Finding::warning(display_name(object), format!("{since}: {held}"), command))
}

/// An agent is deleted after its Pod. Returns the Pod that has not ended, and the command that shows it.
fn pod_not_ended(observed: &ObservedCluster, yoipod: &yoi_crds::YoiPod) -> Option<(String, String)> {
    if let Some(held) = loan_not_back(observed, yoipod) {
        return Some(held);
    }
    let current = yoipod.status.as_ref()?.pod.as_ref()?;
    let pod = listed(&observed.pods).iter().find(|p| p.uid().as_deref() == Some(&current.uid))?;
    let namespace = yoipod.namespace().unwrap_or_default();
    let node = pod.spec.as_ref().and_then(|s| s.node_name.clone()).unwrap_or_else(|| "none".to_owned());
    let command = format!("kubectl describe pod {} -n {namespace}", current.name);
    Some((format!("its Pod {} on node {node} has not ended", current.name), command))
}

/// An agent that works in its parent's tree is deleted once what it was lent is back.
fn loan_not_back(observed: &ObservedCluster, yoipod: &yoi_crds::YoiPod) -> Option<(String, String)> {
    let by = yoipod.spec.spawned_by.as_ref()?;
    let (loan, namespace) = (by.loan.as_ref()?, yoipod.namespace().unwrap_or_default());
    let is_here = |tree: &&AgentWorkspace| tree.namespace().as_deref() == Some(namespace.as_str());
    let claims =
        listed(&observed.workspaces).iter().filter(is_here).filter_map(|tree| tree.status.as_ref()).flat_map(|status| &status.claims);
    let claim = claims.into_iter().find(|claim| claim.loan == *loan).filter(|claim| claim.state != ClaimState::Released)?;
    let command = format!("kubectl yoi scope {} -n {namespace}", by.name);
    Some((format!("what {} has lent it is not back yet: loan {loan} is {}", by.name, claim.state), command))
}

/// The shim of a node destroys a tree once nothing uses it. Returns why it has not, and the command that shows more.
fn tree_not_destroyed(observed: &ObservedCluster, workspace: &AgentWorkspace) -> Option<(String, String)> {
    if !workspace.finalizers().iter().any(|f| f == finalizer::NODE_DATA) {
        return None;
    }
    let status = workspace.status.clone().unwrap_or_default();
    let node = status.node_name?;
    let pods = listed(&observed.our_pods);
    let on_node = |p: &&k8s_openapi::api::core::v1::Pod| {
        p.labels().get("app.kubernetes.io/name").is_some_and(|n| n == "yoi-agent-shim")
            && p.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(&node)
    };
    if observed.our_pods.is_ok() && !pods.iter().any(|p| on_node(&p)) {
        let command = "kubectl get daemonset yoi-agent-shim -A".to_owned();
        return Some((format!("no shim runs on node {node}, which must destroy the tree"), command));
    }
    let condition = find(&status.conditions, condition::CLEANED_UP)?;
    let command = format!("kubectl get pods -n {} -o wide", workspace.namespace().unwrap_or_default());
    Some((format!("{}: {}", condition.reason, condition.message), command))
}

fn stuck_namespace(observed: &ObservedCluster, namespace: &Namespace) -> Option<Finding> {
    let age = observed.age(namespace.metadata.deletion_timestamp.as_ref()?.0);
    let conditions = namespace.status.as_ref()?.conditions.as_ref()?;
    let message_of = |type_: &str| conditions.iter().find(|c| c.type_ == type_ && c.status == "True").and_then(|c| c.message.clone());
    if let Some(message) = message_of("NamespaceDeletionDiscoveryFailure").filter(|message| message.contains("runtime.yoi.dev")) {
        let what = format!(
            "being deleted for {}: it cannot end while the aggregated API runtime.yoi.dev does not answer: {message}",
            crate::show::duration(age)
        );
        return Some(Finding::error(display_name(namespace), what, observed.fix_gateway_command()));
    }
    if age < observed.patience(GRACE_SECONDS) {
        return None;
    }
    // Only what our own objects and finalizers hold is a finding.
    let finalizers = message_of("NamespaceFinalizersRemaining").filter(|message| message.contains("yoi.dev/"));
    let content = message_of("NamespaceContentRemaining").filter(|message| message.contains("yoi.dev"));
    let message = finalizers.or(content)?;
    let command = format!("kubectl yoi doctor -n {}", namespace.name_any());
    Some(Finding::error(display_name(namespace), format!("being deleted for {}: {message}", crate::show::duration(age)), command))
}

/// A volume of ours outlives its claim for moments only.
fn left_over_volume(observed: &ObservedCluster, volume: &PersistentVolume) -> Option<Finding> {
    let (namespace, name) = released_claim(observed, volume)?;
    let since = volume.status.as_ref()?.last_phase_transition_time.as_ref().map_or(i64::MAX, |t| observed.age(t.0));
    (is_ours(volume) && since >= observed.patience(GRACE_SECONDS)).then(|| {
        // Nothing is behind it: the tree goes with its AgentWorkspace.
        let command = format!("kubectl delete pv {}", volume.name_any());
        Finding::warning(display_name(volume), format!("its claim {namespace}/{name} is gone, and it was left behind"), command)
    })
}

/// Namespace and name of the claim that a released volume was for.
fn released_claim(observed: &ObservedCluster, volume: &PersistentVolume) -> Option<(String, String)> {
    if volume.status.as_ref()?.phase.as_deref() != Some("Released") || volume.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let claim = volume.spec.as_ref()?.claim_ref.as_ref()?;
    let namespace = claim.namespace.clone().unwrap_or_default();
    observed.scope.as_ref().is_none_or(|scope| *scope == namespace).then(|| (namespace, claim.name.clone().unwrap_or_default()))
}

/// Whether a volume is of a tree.
fn is_ours(volume: &PersistentVolume) -> bool {
    volume.annotations().get(annotation::PROVISIONED_BY).is_some_and(|by| by == "csi.yoi.dev")
        || volume.spec.as_ref().and_then(|s| s.csi.as_ref()).is_some_and(|csi| csi.driver == "csi.yoi.dev")
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy};
    use super::super::{Severity, check_named};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use serde_json::json;

    #[test]
    fn a_foreign_finalizer_is_named_and_taken_off_by_a_patch_that_tests_it() {
        let mut observed = healthy();
        let then = observed.now - jiff::SignedDuration::from_secs(61);
        let workspace = &mut observed.workspaces.as_mut().unwrap()[0];
        workspace.metadata.deletion_timestamp = Some(Time(then));
        workspace.metadata.finalizers = Some(vec!["yoi.dev/operator".to_owned(), "a.b/c".to_owned()]);
        let command = expect_finding(&observed, "stuck", "held by finalizer a.b/c").command.unwrap();
        assert!(command.contains(r#"{"op":"test","path":"/metadata/finalizers/1","value":"a.b/c"}"#), "{command}");
        observed.now = then;
        assert_eq!(check_named(&observed, "stuck")[0].severity, Severity::Ok, "a young deletion is none");
    }

    #[test]
    fn a_deletion_of_each_kind_is_named_when_it_takes_a_minute_and_not_before() {
        for (age, percent, named) in
            [(0, 100, false), (59, 100, false), (60, 100, true), (86_400, 100, true), (5, 10, false), (6, 10, true)]
        {
            let mut observed = healthy();
            observed.patience_percent = percent;
            let then = Some(Time(observed.now - jiff::SignedDuration::from_secs(age)));
            let deleted = [
                observed.projects.as_mut().unwrap().iter_mut().map(|object| &mut object.metadata).next().unwrap(),
                observed.yoipods.as_mut().unwrap().iter_mut().map(|object| &mut object.metadata).next().unwrap(),
                observed.workspaces.as_mut().unwrap().iter_mut().map(|object| &mut object.metadata).next().unwrap(),
                observed.pods.as_mut().unwrap().iter_mut().map(|object| &mut object.metadata).next().unwrap(),
                observed.claims.as_mut().unwrap().iter_mut().map(|object| &mut object.metadata).next().unwrap(),
            ];
            let count = deleted.len();
            for metadata in deleted {
                metadata.deletion_timestamp.clone_from(&then);
                metadata.finalizers = Some(vec!["example.com/backup".to_owned()]);
            }
            let namespace = json!({ "metadata": { "name": "x", "deletionTimestamp": then }, "status": { "conditions": [
                { "type": "NamespaceContentRemaining", "status": "True", "reason": "SomeResourcesRemain",
                  "message": "Some resources are remaining: yoipods.yoi.dev has 1 resource instances" }] } });
            observed.namespaces.as_mut().unwrap().push(serde_json::from_value(namespace).unwrap());
            let findings = check_named(&observed, "stuck");
            let named_now = findings.iter().filter(|finding| finding.message.contains("being deleted for")).count();
            assert_eq!(named_now, if named { count + 1 } else { 0 }, "{age} s at {percent} percent: {findings:?}");
        }
    }

    #[test]
    fn a_deletion_names_the_pod_the_shim_or_the_operator_that_holds_it() {
        let mut observed = healthy();
        let then = Some(Time(observed.now - jiff::SignedDuration::from_secs(61)));
        observed.yoipods.as_mut().unwrap()[0].metadata.deletion_timestamp.clone_from(&then);
        expect_finding(&observed, "stuck", "its Pod a-1 on node n has not ended");
        let workspace = &mut observed.workspaces.as_mut().unwrap()[0];
        workspace.metadata.deletion_timestamp.clone_from(&then);
        workspace.metadata.finalizers = Some(vec!["yoi.dev/node-data".to_owned()]);
        observed.our_pods.as_mut().unwrap().clear();
        expect_finding(&observed, "stuck", "no shim runs on node n");
        let project = &mut observed.projects.as_mut().unwrap()[0];
        project.metadata.deletion_timestamp = then;
        project.metadata.finalizers = Some(vec!["yoi.dev/operator".to_owned()]);
        expect_finding(&observed, "stuck", "the operator has not let it go");
    }

    #[test]
    fn a_namespace_that_cannot_end_because_of_our_api_names_the_cause_at_once() {
        let mut observed = healthy();
        let stuck = json!({ "metadata": { "name": "x", "deletionTimestamp": "2026-11-21T12:00:00Z" }, "status": { "conditions": [
            { "type": "NamespaceDeletionDiscoveryFailure", "status": "True", "reason": "DiscoveryFailed",
              "message": "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: runtime.yoi.dev/v1alpha1" }
        ] } });
        observed.namespaces.as_mut().unwrap().push(serde_json::from_value(stuck).unwrap());
        let finding = expect_finding(&observed, "stuck", "cannot end while the aggregated API");
        assert_eq!(finding.object, "Namespace x");
    }

    #[test]
    fn a_volume_of_ours_that_was_left_behind_is_a_warning() {
        let mut observed = healthy();
        let volume = |name: &str, by: &str, claim: &str| {
            serde_json::from_value(json!({ "metadata": { "name": name, "annotations": { "pv.kubernetes.io/provisioned-by": by } },
                "spec": { "persistentVolumeReclaimPolicy": "Retain", "claimRef": { "namespace": "ns", "name": claim } },
                "status": { "phase": "Released", "lastPhaseTransitionTime": "2026-11-20T12:00:00Z" } }))
            .unwrap()
        };
        *observed.volumes.as_mut().unwrap() = vec![volume("v", "csi.yoi.dev", "w")];
        assert_eq!(expect_finding(&observed, "stuck", "left behind").severity, Severity::Warning);
    }
}
