//! Deletes a session: the claim, the volume behind it and the data on that. The operator sets the volumes of sessions to Retain, so that deleting the
//! claim alone would leave the data on the disk.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use yoi_crds::YoiPod;
use yoi_crds::name::label;
use yoi_plan::names;
use yoi_plan::nodes::Nodes;
use yoi_plan::yoipod::MADE_FOR;

use crate::args::DryRun;
use crate::cluster::Cluster;
use crate::error::{Error, ErrorTarget};
use crate::remedy;

/// A claim with a session, and the volume behind it.
pub struct Session {
    pub claim: PersistentVolumeClaim,
    volume: Option<String>,
    /// The agent that it is deleted with.
    agent: Option<String>,
}

/// The claim with the session that an agent of this name has left: one of its own name, or one that was warm.
pub async fn left_by(cluster: &Cluster, agent: &str) -> Result<Option<PersistentVolumeClaim>, Error> {
    let is_session = |claim: &PersistentVolumeClaim| claim.annotations().contains_key(MADE_FOR);
    let own: Option<PersistentVolumeClaim> = cluster.get_opt(&names::session_claim(agent)).await?;
    if let Some(own) = own.filter(is_session) {
        return Ok(Some(own));
    }
    let labelled: Vec<PersistentVolumeClaim> = cluster.list(false, Some(&format!("{}={agent}", label::YOIPOD))).await?;
    Ok(labelled.into_iter().find(|claim| is_session(claim) && names::is_warm_claim(&claim.name_any())))
}

impl Session {
    fn new(claim: PersistentVolumeClaim, agent: Option<String>) -> Self {
        let volume = claim.spec.as_ref().and_then(|spec| spec.volume_name.clone()).filter(|name| !name.is_empty());
        Session { claim, volume, agent }
    }

    /// The session of an agent.
    pub async fn of(cluster: &Cluster, pod: &YoiPod) -> Result<Option<Self>, Error> {
        let named = pod.status.as_ref().and_then(|status| status.session_claim_name.clone());
        let name = named.unwrap_or_else(|| yoi_plan::yoipod::session_claim_name(pod));
        let claim: Option<PersistentVolumeClaim> = cluster.get_opt(&name).await?;
        Ok(claim.map(|claim| Session::new(claim, pod.metadata.name.clone())))
    }

    /// The session that an agent of this name has left.
    pub async fn left_by(cluster: &Cluster, agent: &str) -> Result<Option<Self>, Error> {
        Ok(left_by(cluster, agent).await?.map(Session::of_nobody))
    }

    /// A session that no agent names.
    pub fn of_nobody(claim: PersistentVolumeClaim) -> Self {
        Session::new(claim, None)
    }

    pub fn name(&self) -> String {
        format!("persistentvolumeclaim/{}", self.claim.name_any())
    }

    /// What is deleted, for a sentence.
    pub fn title(&self) -> String {
        let volume = self.volume.as_ref().map(|volume| format!(" with volume {volume} and its data")).unwrap_or_default();
        format!("session claim {}{volume}", self.claim.name_any())
    }

    /// Checks that all of it may be deleted, before anything is.
    ///
    /// # Errors
    /// Another agent uses the claim, or the user may not change its volume.
    pub async fn check(&self, cluster: &Cluster) -> Result<(), Error> {
        let claim = self.claim.name_any();
        let agents: Vec<YoiPod> = cluster.list(false, None).await?;
        let uses = |pod: &&YoiPod| {
            let held = pod.status.as_ref().and_then(|status| status.session_claim_name.as_ref());
            pod.metadata.name != self.agent && (held == Some(&claim) || pod.spec.session.claim_name.as_ref() == Some(&claim))
        };
        if let Some(user) = agents.iter().find(uses) {
            let message = format!("YoiPod {} uses it", user.name_any());
            let next = cluster.plugin_command(&format!("rm {}", user.name_any()));
            return Err(cluster.refused_error::<PersistentVolumeClaim>("delete", &claim, message, next));
        }
        match &self.volume {
            Some(volume) if cluster.dry_run != Some(DryRun::Client) => self.release_data(cluster, volume, true).await,
            Some(_) | None => Ok(()),
        }
    }

    /// Deletes the claim, and waits until its volume is gone with its data.
    ///
    /// # Errors
    /// The API server refuses, or the volume is still there after `timeout`.
    pub async fn delete(&self, cluster: &Cluster, timeout: Duration) -> Result<(), Error> {
        if cluster.dry_run.is_some() {
            return Ok(());
        }
        if let Some(volume) = &self.volume {
            self.release_data(cluster, volume, false).await?;
        }
        cluster.delete(&self.claim).await?;
        let name = self.claim.name_any();
        cluster.wait_gone::<PersistentVolumeClaim>(&name, self.claim.metadata.uid.as_deref(), timeout).await?;
        match &self.volume {
            Some(volume) => self.wait_volume_gone(cluster, volume, timeout).await,
            None => Ok(()),
        }
    }

    /// Sets the volume's reclaim policy to Delete.
    async fn release_data(&self, cluster: &Cluster, volume: &str, dry_run: bool) -> Result<(), Error> {
        let api: Api<PersistentVolume> = Api::all(cluster.client.clone());
        let patch = json!({ "spec": { "persistentVolumeReclaimPolicy": "Delete" } });
        let params = PatchParams { dry_run, ..PatchParams::default() };
        match api.patch(volume, &params, &Patch::Merge(&patch)).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            Err(kube::Error::Api(status)) if status.code == 403 => {
                let operation = format!("delete the data of {}", cluster.display_name::<PersistentVolumeClaim>(&self.claim.name_any()));
                let message = format!("you may not change its volume {volume}, which would stay with the data; nothing was deleted");
                let next =
                    format!("ask an administrator of the cluster for it, then run this again: {}", remedy::delete_data_command(&[volume]));
                Err(Error::refused_error(operation, message, next, crate::error::RefusalKind::Forbidden))
            }
            Err(error) => Err(Error::api(format!("change PersistentVolume {volume}"), &volume_target(cluster, volume), error)),
        }
    }

    async fn wait_volume_gone(&self, cluster: &Cluster, volume: &str, timeout: Duration) -> Result<(), Error> {
        let api: Api<PersistentVolume> = Api::all(cluster.client.clone());
        if is_out_of_reach(cluster, &api, volume).await {
            eprintln!(
                "the volume {volume} can only be used on a node that does not exist any more, so nobody deletes its data; its object stays\n  next: \
                 kubectl delete pv {volume}"
            );
            return Ok(());
        }
        let gone = kube::runtime::wait::await_condition(api, volume, |volume: Option<&PersistentVolume>| volume.is_none());
        match tokio::time::timeout(timeout, gone).await {
            Ok(Ok(_)) => Ok(()),
            // Who may patch a volume may not always watch it: then this is not known, and the claim is gone in any case.
            Ok(Err(_)) => {
                eprintln!("the volume {volume} was told to go with its data; whether it has gone could not be looked at");
                Ok(())
            }
            Err(_) => Err(Error::TimedOut {
                what: format!("PersistentVolume {volume}: gone"),
                seconds: timeout.as_secs(),
                why: "its provisioner has not deleted it".to_owned(),
                next: format!("kubectl describe pv {volume}"),
            }),
        }
    }
}

/// Whether no node of the cluster can use the volume. Who may not read that waits for it.
async fn is_out_of_reach(cluster: &Cluster, volumes: &Api<PersistentVolume>, volume: &str) -> bool {
    let Ok(volume) = volumes.get(volume).await else { return false };
    let Ok(nodes) = Api::<Node>::all(cluster.client.clone()).list(&ListParams::default()).await else { return false };
    let nodes = nodes.items.into_iter().map(|node| (node.name_any(), yoi_plan::nodes::Node::new(&node, None)));
    Nodes(nodes.collect()).reaching(&volume).is_empty()
}

fn volume_target(cluster: &Cluster, volume: &str) -> ErrorTarget {
    ErrorTarget {
        name: format!("PersistentVolume {volume}"),
        list_command: "kubectl get pv".to_owned(),
        doctor_command: cluster.doctor_command(false),
    }
}
