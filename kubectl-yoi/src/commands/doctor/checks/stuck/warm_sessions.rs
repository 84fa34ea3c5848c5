//! Warm session claims: those that cannot be had, and claims that look like one and are none.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::ResourceExt;
use yoi_crds::YoiProject;
use yoi_crds::condition::find;
use yoi_crds::name::label;
use yoi_crds::reason::{self, condition};

use super::super::super::finding::Finding;
use super::super::super::observed::{ObservedCluster, display_name, listed};

/// The operator lists a claim in the project's status a moment after it made it.
const GRACE_SECONDS: i64 = 60;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found: Vec<Finding> = listed(&observed.projects).iter().filter_map(refused).collect();
    // Without the projects nothing is known of their claims.
    if observed.projects.is_ok() {
        found.extend(listed(&observed.claims).iter().filter_map(|claim| not_ours(observed, claim)));
    }
    found
}

/// Agents start all the same, some seconds later.
fn refused(project: &YoiProject) -> Option<Finding> {
    let conditions = &project.status.as_ref()?.conditions;
    let told = find(conditions, condition::SESSIONS_WARM).filter(|told| told.reason == reason::WARM_REFUSED)?;
    let namespace = project.namespace().unwrap_or_default();
    let command = format!("kubectl describe yoiproject {} -n {namespace}", project.name_any());
    Some(Finding::note(display_name(project), format!("its agents wait for their session volumes: {}", told.message), command))
}

fn not_ours(observed: &ObservedCluster, claim: &PersistentVolumeClaim) -> Option<Finding> {
    let project = claim.labels().get(label::WARM)?;
    let age = observed.age(claim.metadata.creation_timestamp.as_ref()?.0);
    let is_of = |other: &&YoiProject| other.name_any() == *project && other.namespace() == claim.namespace();
    let project = listed(&observed.projects).iter().find(is_of);
    let warm = project.and_then(|project| project.status.as_ref()?.warm.as_deref());
    let is_listed = warm.is_some_and(|warm| warm.claims.iter().any(|known| Some(&known.uid) == claim.metadata.uid.as_ref()));
    if is_listed || claim.metadata.deletion_timestamp.is_some() || age < observed.patience(GRACE_SECONDS) {
        return None;
    }
    let command = format!("kubectl delete pvc {} -n {}", claim.name_any(), claim.namespace().unwrap_or_default());
    let what = "it is labelled as a warm session claim, and no project lists it: the operator did not make it, or was killed while it did. No agent takes \
                it. When nobody needs what is in it, this deletes it";
    Some(Finding::note(display_name(claim), what.to_owned(), command))
}

#[cfg(test)]
mod tests {
    use super::super::super::check_named;
    use super::super::super::sample::{expect_finding, healthy};
    use super::*;
    use serde_json::json;

    #[test]
    fn a_warm_claim_is_told_only_when_its_project_does_not_list_it() {
        let mut observed = healthy();
        let is_told =
            |observed: &ObservedCluster| check_named(observed, "stuck").iter().any(|finding| finding.message.contains("warm session"));
        let claim = json!({ "metadata": { "name": "warm.c-session", "namespace": "ns", "uid": "c", "creationTimestamp": "2020-01-01T00:00:00Z",
            "labels": { "yoi.dev/warm": "p" } } });
        observed.claims.as_mut().unwrap().push(serde_json::from_value(claim).unwrap());
        let project = |warm: serde_json::Value| -> YoiProject {
            serde_json::from_value(json!({ "metadata": { "name": "p", "namespace": "ns", "uid": "p" },
                "spec": { "source": { "empty": {} }, "warm": { "sessions": 1 } }, "status": warm }))
            .unwrap()
        };
        let listed = json!({ "warm": { "claims": [{ "name": "warm.c-session", "uid": "c", "node": "n" }] } });
        *observed.projects.as_mut().unwrap() = vec![project(listed)];
        assert!(!is_told(&observed));
        *observed.projects.as_mut().unwrap() = vec![project(json!(null))];
        let finding = expect_finding(&observed, "stuck", "labelled as a warm session claim");
        assert_eq!(finding.command.unwrap(), "kubectl delete pvc warm.c-session -n ns");
        let refused = json!({ "conditions": [{ "type": "SessionsWarm", "status": "False", "reason": "WarmRefused", "message": "exceeded quota",
            "lastTransitionTime": "2026-01-01T00:00:00Z" }] });
        *observed.projects.as_mut().unwrap() = vec![project(refused)];
        expect_finding(&observed, "stuck", "wait for their session volumes: exceeded quota");
    }
}
