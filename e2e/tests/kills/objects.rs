//! Finds objects in the workload's namespace that nobody requested.

use std::collections::BTreeSet;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::ResourceExt;
use kube::api::ListParams;
use yoi_crds::{YoiPeer, YoiProject};
use yoi_e2e::test_namespace::{TestNamespace, TestObject};

use crate::churn::Churn;
use crate::workload::AGENTS;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    kind: String,
    name: String,
    /// The YoiPod that its label names.
    agent: Option<String>,
}

/// Lists all objects of the namespace but workspaces and YoiPods, which [`Churn::pending`] checks, and warm session claims.
pub async fn list(ns: &TestNamespace) -> Result<BTreeSet<ObjectName>> {
    async fn add<K: TestObject>(ns: &TestNamespace, all: &mut BTreeSet<ObjectName>) -> Result<()> {
        let listed = ns.api::<K>().list(&ListParams::default()).await?.items;
        all.extend(listed.iter().map(|object| ObjectName {
            kind: K::kind(&()).into_owned(),
            name: object.name_any(),
            agent: object.labels().get("yoi.dev/yoipod").cloned(),
        }));
        Ok(())
    }
    let mut all = BTreeSet::new();
    add::<Pod>(ns, &mut all).await?;
    add::<PersistentVolumeClaim>(ns, &mut all).await?;
    add::<ConfigMap>(ns, &mut all).await?;
    add::<Secret>(ns, &mut all).await?;
    add::<NetworkPolicy>(ns, &mut all).await?;
    add::<YoiPeer>(ns, &mut all).await?;
    let projects = ns.api::<YoiProject>().list(&ListParams::default()).await?.items;
    let warm: BTreeSet<String> = projects.iter().flat_map(warm_claims).collect();
    all.retain(|object| object.kind != "PersistentVolumeClaim" || !warm.contains(&object.name));
    Ok(all)
}

/// The claims that stand ready for the project's next agents. They come and go; one that its project does not list is nobody's.
fn warm_claims(project: &YoiProject) -> Vec<String> {
    let warm = project.status.as_ref().and_then(|status| status.warm.as_deref());
    warm.into_iter().flat_map(|warm| &warm.claims).map(|claim| claim.name.clone()).collect()
}

/// Returns a sentence for each object that was not there at the beginning, is not this round's, and is not the only Pod of an agent.
pub fn unexpected(now: &BTreeSet<ObjectName>, first: &BTreeSet<ObjectName>, round: &Churn) -> Vec<String> {
    let (mut pods, mut found) = (BTreeSet::new(), Vec::new());
    for one in now {
        let expected = match one.agent.as_deref().filter(|agent| one.kind == "Pod" && AGENTS.contains(agent)) {
            // The name of an agent's Pod changes with each run, so agents are compared; a second Pod is unexpected.
            Some(agent) => pods.insert(agent),
            None => first.contains(one) || round.owns(&one.kind, &one.name),
        };
        if !expected {
            found.push(format!("{} {} belongs to no existing object", one.kind, one.name));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(kind: &str, name: &str, agent: Option<&str>) -> ObjectName {
        ObjectName { kind: kind.into(), name: name.into(), agent: agent.map(str::to_owned) }
    }

    #[test]
    fn a_leaked_object_is_unexpected_and_nothing_else_is() {
        let claim = |name: &str| one("PersistentVolumeClaim", name, None);
        let first = BTreeSet::from([claim("a-session"), one("Pod", "a-1", Some("a")), one("Pod", "scripted-model", None)]);
        let mut now = BTreeSet::from([
            claim("a-session"),
            claim("claim-3"),
            one("Pod", "a-7", Some("a")),
            one("Pod", "foreign-3", None),
            one("Pod", "scripted-model", None),
        ]);
        let round = Churn::new(3, yoi_crds::source::ProviderName::Btrfs);
        assert!(unexpected(&now, &first, &round).is_empty());
        let leaks = [
            claim("brief-3-session"),
            claim("claim-2"),
            one("Pod", "a-8", Some("a")),
            one("Pod", "brief-3", Some("brief-3")),
            one("Secret", "s", None),
        ];
        now.extend(leaks.clone());
        let found = unexpected(&now, &first, &round);
        assert_eq!(found.len(), leaks.len(), "{found:?}");
    }
}
