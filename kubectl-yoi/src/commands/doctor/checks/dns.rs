//! Name resolution: the cluster's DNS, and what agents and projects report.

use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::reason::condition;

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed};
use super::or_ok;

/// Texts of resolution errors: of our runtime, of git over git:// and https://, and of the resolvers of libc and Rust.
const RESOLUTION_ERRORS: &[&str] = &[
    "has a name that cannot be resolved",
    "unable to look up",
    "dns error",
    "failed to lookup address",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Could not resolve host",
];

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    let mut found = Vec::new();
    let command = "kubectl get pods,services -n kube-system -l k8s-app=kube-dns";
    if let (Ok(services), Ok(slices)) = (&observed.dns_services, &observed.dns_slices) {
        let ready = slices.iter().flat_map(|s| &s.endpoints).filter(|e| e.conditions.as_ref().is_none_or(|c| c.ready != Some(false)));
        match (services.first(), ready.count()) {
            // A cluster may resolve names by other means. Whether it does, the agents' conditions say below.
            (None, 0) => found.push(Finding::note("cluster DNS", "no Service in kube-system bears k8s-app=kube-dns", command)),
            (Some(service), 0) => found.push(Finding::error(display_name(service), "no Pod of the cluster's DNS is ready", command)),
            (_, _) => {}
        }
    }
    for yoipod in listed(&observed.yoipods) {
        let conditions = yoipod.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        found.extend(unresolved_name(&display_name(yoipod), find(conditions, condition::READY)));
    }
    for project in listed(&observed.projects) {
        let conditions = project.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        found.extend(unresolved_name(&display_name(project), find(conditions, condition::SOURCE_READY)));
    }
    let complete = observed.dns_services.is_ok() && observed.dns_slices.is_ok() && observed.yoipods.is_ok() && observed.projects.is_ok();
    or_ok(found, complete, "cluster DNS", || "it is ready, and no agent says that a name cannot be resolved".to_owned())
}

fn unresolved_name(object: &str, condition: Option<&yoi_crds::Condition>) -> Option<Finding> {
    let condition =
        condition.filter(|c| c.status != ConditionStatus::True && RESOLUTION_ERRORS.iter().any(|words| c.message.contains(words)))?;
    let command = "kubectl get networkpolicies,pods -A -l 'yoi.dev/role in (agent,populator,prepare,reader)'";
    Some(Finding::error(object, format!("it cannot resolve a name: {}", condition.message), command))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{expect_finding, healthy, set_condition};
    use super::super::{Severity, check_named};

    #[test]
    fn a_dns_without_a_ready_pod_is_told() {
        let mut observed = healthy();
        observed.dns_slices.as_mut().unwrap().clear();
        expect_finding(&observed, "dns", "no Pod of the cluster's DNS");
    }

    #[test]
    fn an_agent_or_a_project_that_cannot_resolve_a_name_is_told_however_that_is_worded() {
        // The first two are from the runtime and from git on a cluster, the others from resolvers.
        for words in [
            "the model endpoint late-model.ns.svc:8080 has a name that cannot be resolved; check the model's baseUrl, and the cluster's DNS",
            "fatal: unable to look up absent.ns.svc (port 9418) (Name or service not known)",
            "fatal: unable to look up absent.ns.svc (port 9418) (No address associated with hostname)",
            "fatal: unable to access 'https://absent/': Could not resolve host: absent",
            "ssh: Could not resolve hostname absent: Temporary failure in name resolution",
            "error sending request: dns error: failed to lookup address information",
        ] {
            let mut observed = healthy();
            set_condition(&mut observed, "Ready", "ModelUnreachable", words);
            let finding = expect_finding(&observed, "dns", words);
            assert_eq!((finding.object.as_str(), finding.severity), ("YoiPod ns/a", Severity::Error), "{words}");
            let mut observed = healthy();
            let mut condition =
                yoi_crds::Condition { type_: "SourceReady".to_owned(), reason: "PopulateFailed".to_owned(), ..met(&observed) };
            (condition.status, condition.message) = (yoi_crds::ConditionStatus::False, words.to_owned());
            observed.projects.as_mut().unwrap()[0].status.as_mut().unwrap().conditions.push(condition);
            assert_eq!(expect_finding(&observed, "dns", words).object, "YoiProject ns/p");
        }
        let mut observed = healthy();
        set_condition(&mut observed, "Ready", "ModelUnreachable", "nobody listens at the model endpoint m:8080 (connection refused)");
        assert_eq!(check_named(&observed, "dns")[0].severity, Severity::Ok, "another error is no resolution error");
    }

    fn met(observed: &super::ObservedCluster) -> yoi_crds::Condition {
        observed.projects.as_ref().unwrap()[0].status.as_ref().unwrap().conditions[0].clone()
    }
}
