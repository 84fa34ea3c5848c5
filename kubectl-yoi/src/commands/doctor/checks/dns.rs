//! Name resolution: the cluster's own, and what agents say of theirs.

use yoi_crds::condition::{ConditionStatus, find};
use yoi_crds::reason::condition;

use super::super::finding::Finding;
use super::super::world::{World, called, seen};
use super::or_ok;

/// How the resolvers of libc, Rust and git word it.
const WORDS: &[&str] = &[
    "dns error",
    "failed to lookup address",
    "Name or service not known",
    "Temporary failure in name resolution",
    "Could not resolve host",
];

pub fn check(world: &World) -> Vec<Finding> {
    let mut found = Vec::new();
    let look = "kubectl get pods,services -n kube-system -l k8s-app=kube-dns";
    if let (Ok(services), Ok(slices)) = (&world.dns_services, &world.dns_slices) {
        let ready = slices.iter().flat_map(|s| &s.endpoints).filter(|e| e.conditions.as_ref().is_none_or(|c| c.ready != Some(false)));
        match (services.first(), ready.count()) {
            // A cluster may resolve names by other means; whether it does, agents say below.
            (None, 0) => found.push(Finding::note("cluster DNS", "no Service in kube-system bears k8s-app=kube-dns", look)),
            (Some(service), 0) => found.push(Finding::error(called(service), "no Pod of the cluster's DNS is ready", look)),
            (_, _) => {}
        }
    }
    for yoipod in seen(&world.yoipods) {
        let conditions = yoipod.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        found.extend(told(&called(yoipod), find(conditions, condition::READY)));
    }
    for project in seen(&world.projects) {
        let conditions = project.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
        found.extend(told(&called(project), find(conditions, condition::SOURCE_READY)));
    }
    let complete = world.dns_services.is_ok() && world.dns_slices.is_ok() && world.yoipods.is_ok() && world.projects.is_ok();
    or_ok(found, complete, "cluster DNS", || "it is ready, and no agent says that a name cannot be resolved".to_owned())
}

fn told(object: &str, said: Option<&yoi_crds::Condition>) -> Option<Finding> {
    let said = said.filter(|c| c.status != ConditionStatus::True && WORDS.iter().any(|words| c.message.contains(words)))?;
    let command = "kubectl get networkpolicies,pods -A -l 'yoi.dev/role in (agent,populator)'";
    Some(Finding::error(object, format!("it cannot resolve a name: {}", said.message), command))
}

#[cfg(test)]
mod tests {
    use super::super::sample::{found, healthy};

    #[test]
    fn a_dns_without_a_ready_pod_and_an_agent_that_cannot_resolve_are_told() {
        let mut world = healthy();
        world.dns_slices.as_mut().unwrap().clear();
        found(&world, "dns", "no Pod of the cluster's DNS");
        let mut world = healthy();
        let ready = &mut world.yoipods.as_mut().unwrap()[0].status.as_mut().unwrap().conditions[0];
        ready.status = yoi_crds::ConditionStatus::False;
        ready.message = "error sending request: dns error: no such host".to_owned();
        found(&world, "dns", "cannot resolve a name");
    }
}
