//! The names of objects, for completion: asked of the cluster that the line names, with a short patience, because a person waits with a finger on the
//! key. Whatever fails offers nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim};
use kube::api::{Api, ListParams};
use kube::core::PartialObjectMeta;
use kube::{Resource, ResourceExt};
use yoi_crds::reason::ALL;
use yoi_crds::{AgentWorkspace, WorkspaceNode, YoiPod, YoiProject};
use yoi_wire::engine_api::{OUTSIDE_TYPES, PROJECTIONS};

use crate::args::ClusterOptions;
use crate::cluster::Cluster;
use crate::commands::approvals::numbers;

/// The presets of the chart of this version. People may not read the chart's ConfigMap.
const PRESETS: [&str; 6] = ["claude", "codex", "copilot", "gemini", "goose", "opencode"];
const PATIENCE: Duration = Duration::from_secs(3);

/// Returns the candidates for a value that the help calls `value_name`, each with its description. `agent` is the one that the line names, if it does.
pub async fn names_of(value_name: &str, agent: Option<&str>, options: &ClusterOptions) -> Vec<(String, Option<String>)> {
    match value_name {
        "REASON" => return ALL.iter().map(|reason| (reason.as_str().to_owned(), Some(reason.meaning().to_owned()))).collect(),
        "PRESET" => return PRESETS.map(|name| (name.to_owned(), None)).into(),
        "KEY" => return PROJECTIONS.map(|key| (key.to_owned(), None)).into(),
        "TYPE" => return OUTSIDE_TYPES.map(|kind| (kind.to_owned(), None)).into(),
        "CALL" => {
            let Some(agent) = agent else { return Vec::new() };
            let asked = tokio::time::timeout(patience(options), calls(agent, options)).await;
            let calls = asked.ok().flatten().unwrap_or_default();
            return calls.into_iter().map(|(number, about)| (number, Some(about))).collect();
        }
        "AGENT" | "PROJECT" | "WORKSPACE" | "CLAIM" | "NAMESPACE" | "NODE" => {}
        _ => return Vec::new(),
    }
    let asked = tokio::time::timeout(patience(options), ask(value_name, options)).await;
    let mut names = asked.ok().flatten().unwrap_or_default();
    names.sort();
    names.into_iter().map(|name| (name, None)).collect()
}

fn patience(options: &ClusterOptions) -> Duration {
    PATIENCE * options.patience_percent() / 100
}

/// The calls of an agent that wait for a person.
async fn calls(agent: &str, options: &ClusterOptions) -> Option<Vec<(String, String)>> {
    let cluster = Cluster::connect(options).await.ok()?;
    numbers(&cluster, agent).await
}

async fn ask(value_name: &str, options: &ClusterOptions) -> Option<Vec<String>> {
    let cluster = Cluster::connect(options).await.ok()?;
    match value_name {
        "AGENT" => names(cluster.api::<YoiPod>()).await,
        "PROJECT" => names(cluster.api::<YoiProject>()).await,
        // The bases of projects are nothing to choose.
        "WORKSPACE" => {
            let workspaces: Vec<AgentWorkspace> = cluster.list(false, None).await.ok()?;
            Some(workspaces.iter().filter(|w| w.spec.base.is_none()).map(ResourceExt::name_any).collect())
        }
        "CLAIM" => names(cluster.api::<PersistentVolumeClaim>()).await,
        "NODE" => names(Api::<WorkspaceNode>::all(cluster.client)).await,
        "NAMESPACE" => names(Api::<Namespace>::all(cluster.client)).await,
        _ => None,
    }
}

async fn names<K>(api: Api<K>) -> Option<Vec<String>>
where
    K: Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let listed = api.list_metadata(&ListParams::default()).await.ok()?;
    Some(listed.items.iter().map(|item: &PartialObjectMeta<K>| item.name_any()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_presets_that_are_offered_are_those_of_the_chart() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../charts/yoi-operator/files/presets");
        let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = files.filter_map(|name| name.strip_suffix(".yaml").map(str::to_owned)).collect();
        names.sort();
        assert_eq!(names, PRESETS);
    }
}
