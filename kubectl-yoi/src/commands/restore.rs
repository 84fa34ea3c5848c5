//! `restore`: starts stopped agents again on their sessions and trees, each only if there is something to go on with.

use yoi_crds::YoiPod;
use yoi_crds::pod::DesiredState;
use yoi_plan::restore::check;
use yoi_wire::hub::RefusalReason;

use super::selection::agent_names;
use super::stop_start::{print, wait_ready, wake};
use crate::args::{DesiredStateOptions, OutputFormat};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn restore(cluster: &Cluster, output: Option<OutputFormat>, args: &DesiredStateOptions) -> Result<(), Error> {
    let (mut started, mut refused) = (Vec::new(), None);
    for name in agent_names(cluster, &args.agents).await? {
        // The others are restored all the same.
        match start(cluster, &name).await {
            Ok(pod) => started.push((pod, name)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    for (pod, name) in started {
        let pod = if args.wait { wait_ready(cluster, &name, args.timeout).await? } else { pod };
        print(cluster, output, &pod, &name, if args.wait { "restored" } else { "being restored" })?;
    }
    refused.map_or(Ok(()), Err)
}

async fn start(cluster: &Cluster, name: &str) -> Result<YoiPod, Error> {
    let pod: YoiPod = cluster.get(name).await?;
    // The hint is of one Pod, and means nothing for another.
    let status = pod.status.as_ref();
    let current = status.and_then(|status| status.pod.as_ref()).map(|pod| pod.uid.as_str());
    let live = status.and_then(|status| status.live.as_ref()).filter(|live| Some(live.pod_uid.as_str()) == current);
    check(&pod, live.map(|live| live.activity.as_str())).map_err(|refusal| {
        let next = match refusal.reason {
            RefusalReason::AlreadyLive => format!("see what it does: {}", cluster.plugin_command(&format!("top {name}"))),
            _ => format!("read what is left of it: {}", cluster.plugin_command(&format!("log {name}"))),
        };
        let message = refusal.message.strip_prefix(&format!("{name} ")).unwrap_or(&refusal.message).to_owned();
        cluster.refused_error::<YoiPod>("restore", name, show::one_line(&message), next)
    })?;
    if yoi_plan::yoipod::may_be_woken(&pod) {
        // It goes on as it is meant to, and rests again when it has nothing to do.
        wake(cluster, name, &pod).await;
        return Ok(pod);
    }
    // With the version that was judged, so that of two who restore it one does.
    let metadata = serde_json::json!({ "resourceVersion": pod.metadata.resource_version });
    cluster.patch(name, &serde_json::json!({ "metadata": metadata, "spec": { "desiredState": DesiredState::Running } })).await
}
