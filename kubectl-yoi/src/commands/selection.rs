//! Which agents a verb is for.

use kube::ResourceExt;
use yoi_crds::YoiPod;

use crate::args::AgentSelection;
use crate::cluster::Cluster;
use crate::error::Error;

/// Returns the names of the agents: those that were named, or those that exist and match.
///
/// # Errors
/// When nothing matches: most likely the labels or the namespace are wrong.
pub async fn agent_names(cluster: &Cluster, selection: &AgentSelection) -> Result<Vec<String>, Error> {
    if !selection.all && selection.selector.is_none() {
        return Ok(selection.names.clone());
    }
    let selector = selection.selector.as_deref();
    let agents: Vec<YoiPod> = cluster.list(false, selector).await?;
    if agents.is_empty() {
        let labels = selector.map(|labels| format!(" with the labels {labels}")).unwrap_or_default();
        let what = format!("an agent{labels} in namespace {}", cluster.namespace);
        return Err(Error::Missing { what, next: cluster.list_command::<YoiPod>() });
    }
    Ok(agents.iter().map(ResourceExt::name_any).collect())
}
