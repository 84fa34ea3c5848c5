//! A disk whose power can be cut: session volumes on a loop-backed ext4 in the node. After a kill the page cache still reaches the disk; after a
//! power cut it does not.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node as KubeNode, PersistentVolume};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use yoi_e2e::poll_seen;

use crate::node::Node;

pub struct Disk {
    /// Name of the disk and of the StorageClass of its volumes.
    pub name: String,
    node: Node,
    client: Client,
    volumes: Vec<String>,
}

impl Disk {
    fn image(name: &str) -> String {
        format!("\"${{ROOT%/*}}/{name}.img\"")
    }

    fn mount(name: &str) -> String {
        format!("\"${{ROOT%/*}}/{name}\"")
    }

    /// Creates the file system with one folder for each volume, and the PersistentVolumes.
    pub async fn create(client: &Client, node: &Node, name: &str, volumes: usize) -> Result<Disk> {
        let (image, mount) = (Self::image(name), Self::mount(name));
        node.sh(&format!(
            "set -e; truncate -s 96M {image}; mkfs.ext4 -q -F {image}; mkdir -p {mount}; mount -o loop {image} {mount}
             for i in $(seq 0 {}); do mkdir {mount}/$i; chown 1000:1000 {mount}/$i; done; sync -f {mount}",
            volumes - 1
        ))
        .await?;
        let place = node.sh(&format!("echo {mount}")).await?;
        let nodes = Api::<KubeNode>::all(client.clone()).list(&ListParams::default()).await?.items;
        let hostname = nodes.first().and_then(|n| n.labels().get("kubernetes.io/hostname").cloned()).unwrap_or_default();
        let mut disk = Disk { name: name.to_owned(), node: node.clone(), client: client.clone(), volumes: Vec::new() };
        let api: Api<PersistentVolume> = Api::all(client.clone());
        for number in 0..volumes {
            let volume = format!("{name}-{number}");
            let object = json!({ "metadata": { "name": volume }, "spec": {
                "capacity": { "storage": "16Mi" }, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": name, "local": { "path": format!("{}/{number}", place.trim()) },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [
                    { "key": "kubernetes.io/hostname", "operator": "In", "values": [hostname] }] }] } } } });
            api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
            disk.volumes.push(volume);
        }
        Ok(disk)
    }

    /// Cuts the power: nothing that is not on the disk yet gets there, not even ext4's journal (FS_IOC_SHUTDOWN with NOLOGFLUSH). Kills the
    /// processes that have files open there.
    pub async fn cut(&self, kill: &[u32]) -> Result<()> {
        let mount = Self::mount(&self.name);
        let kill: Vec<_> = kill.iter().map(u32::to_string).collect();
        self.node
            .sh(&format!(
                "perl -e 'open(F, \"<\", $ARGV[0]) or die \"$!\"; my $f = pack(\"L\", 2); ioctl(F, 0x8004587d, $f) or die \"shutdown: $!\"' {mount} \
                 || exit 1; kill -KILL {} 2>/dev/null; umount -l {mount}",
                kill.join(" ")
            ))
            .await
            .map(drop)
    }

    /// Mounts the file system again, which replays its journal. Waits before that until nothing uses the dead file system.
    pub async fn restore(&self) -> Result<()> {
        let (image, mount) = (Self::image(&self.name), Self::mount(&self.name));
        // The loop device is detached with its last mount.
        poll_seen(Duration::from_secs(120), "the dead file system is attached no more", async || {
            let attached = self.node.sh(&format!("losetup --noheadings --output NAME --associated {image}")).await?;
            Ok(if attached.trim().is_empty() { Ok(()) } else { Err(attached) })
        })
        .await?;
        self.node.sh(&format!("mount -o loop {image} {mount}")).await.map(drop)
    }

    pub async fn remove(self) -> Result<()> {
        let api: Api<PersistentVolume> = Api::all(self.client.clone());
        for volume in &self.volumes {
            let _ = api.delete(volume, &DeleteParams::default()).await;
        }
        let (image, mount) = (Self::image(&self.name), Self::mount(&self.name));
        self.node.sh(&format!("set -e; umount {mount}; rmdir {mount}; rm {image}")).await.map(drop)
    }
}
