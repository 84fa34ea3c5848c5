//! Everything on the node and at the API server that must belong to an object. A thing whose name holds a UID must belong to an object that
//! exists. Any other thing must have existed before the workload.

use std::collections::BTreeSet;

use anyhow::Result;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::api::{Api, ListParams, LogParams};
use kube::{Client, ResourceExt};
use yoi_crds::name::annotation;
use yoi_crds::{AgentWorkspace, YoiPod, YoiProject};
use yoi_wire::identity::CSI_DRIVER;

use crate::node::{Component, Node};

/// Prints one line for each thing. The last word of a line is its name.
const LIST: &str = r#"
awk '$5 ~ "^/var/lib/kubelet/" || index($5, ENVIRON["ROOT"]) == 1 { print "mount", $5 }' /proc/self/mountinfo
for base in "$ROOT" "$ROOT/pool"; do
  [ -d "$base/trees" ] || continue
  find "$base/trees" -mindepth 2 -maxdepth 2 -printf 'tree %f\n'
  find "$base/trash" -mindepth 1 -maxdepth 1 -printf 'trash %f\n'
  find "$base" -mindepth 4 -maxdepth 4 -inum 256 -printf 'subvolume %P\n'
  find "$base" -mindepth 1 -maxdepth 1 -printf 'data-root %f\n'
done
cd /var/lib/kubelet
find plugins/csi.yoi.dev/journal plugins/csi.yoi.dev/publish -type f -printf 'record %p\n'
find plugins/csi.yoi.dev/pods -mindepth 1 -maxdepth 1 -printf 'socket-folder %f\n'
find pods -mindepth 1 -maxdepth 1 -printf 'pod-folder %f\n'
find "${ROOT%/*}/local-path" -mindepth 1 -maxdepth 1 -printf 'local-volume %f\n' 2>/dev/null
# By the file and not by its name: a container attached it, under whatever name it saw.
for file in "$ROOT"/*.btrfs "${ROOT%/*}"/*.img; do
  [ -e "$file" ] && losetup --noheadings --output NAME --associated "$file" | awk -v file="$file" 'END { print "loop-devices", file, NR }'
done
true
"#;

/// Prefix of the lines of the storage provisioner's folders.
pub const LOCAL_VOLUME: &str = "local-volume ";

pub struct NodeInventory {
    things: BTreeSet<String>,
}

/// UIDs of the claims whose volume is released and is to be deleted by another provisioner. Our part is done then. That provisioner can be six
/// minutes late after the API server was killed.
fn released_claims(volumes: &[PersistentVolume]) -> impl Iterator<Item = String> {
    let of_others = |volume: &&PersistentVolume| {
        let (spec, by) = (volume.spec.as_ref(), volume.annotations().get(annotation::PROVISIONED_BY));
        let delete = spec.and_then(|s| s.persistent_volume_reclaim_policy.as_deref()) == Some("Delete");
        let released = volume.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Released");
        delete && released && by.is_some_and(|by| by != CSI_DRIVER)
    };
    volumes.iter().filter(of_others).filter_map(|volume| volume.spec.as_ref()?.claim_ref.as_ref()?.uid.clone())
}

/// UIDs of claims that the storage provisioner gave up, from its log: the API server was killed while it made the folder, and the claim was gone
/// when it tried again. It never deletes such a folder.
async fn abandoned_claims(client: &Client) -> Result<BTreeSet<String>> {
    let pods = Api::<Pod>::namespaced(client.clone(), "local-path-storage");
    let mut uids = BTreeSet::new();
    for pod in pods.list(&ListParams::default().labels("app=local-path-provisioner")).await? {
        let log = pods.logs(&pod.name_any(), &LogParams::default()).await?;
        let failed: BTreeSet<&str> = log.lines().filter(|line| line.contains("error syncing claim")).flat_map(uuids).collect();
        let gone = log.lines().filter(|line| line.contains("in work queue no longer exists")).flat_map(uuids);
        uids.extend(gone.filter(|uid| failed.contains(uid)).map(str::to_owned));
    }
    Ok(uids)
}

/// UIDs of all objects that exist.
async fn live_uids(client: &Client) -> Result<BTreeSet<String>> {
    let all = ListParams::default();
    let mut uids: BTreeSet<String> = BTreeSet::new();
    uids.extend(Api::<Pod>::all(client.clone()).list(&all).await?.items.iter().filter_map(ResourceExt::uid));
    uids.extend(Api::<AgentWorkspace>::all(client.clone()).list(&all).await?.items.iter().filter_map(ResourceExt::uid));
    uids.extend(Api::<PersistentVolumeClaim>::all(client.clone()).list(&all).await?.items.iter().filter_map(ResourceExt::uid));
    uids.extend(released_claims(&Api::<PersistentVolume>::all(client.clone()).list(&all).await?.items));
    Ok(uids)
}

/// Returns whether this word is a UUID.
fn is_uuid(word: &str) -> bool {
    word.len() == 36 && word.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && word.chars().all(|c| c.is_ascii_hexdigit() || c == '-')
}

/// Returns all UUIDs in a line.
fn uuids(line: &str) -> Vec<&str> {
    (0..line.len().saturating_sub(35)).filter_map(|at| line.get(at..at + 36)).filter(|word| is_uuid(word)).collect()
}

impl NodeInventory {
    pub async fn collect(client: &Client, node: &Node) -> Result<NodeInventory> {
        let mut things: BTreeSet<String> = node.sh(LIST).await?.lines().map(str::to_owned).collect();
        let volumes = Api::<PersistentVolume>::all(client.clone()).list(&ListParams::default()).await?.items;
        things.extend(volumes.iter().map(|volume| {
            let claim = volume.spec.as_ref().and_then(|s| s.claim_ref.as_ref()).and_then(|c| c.uid.clone()).unwrap_or_default();
            format!("volume {} of the claim {claim}", volume.name_any())
        }));
        Ok(NodeInventory { things })
    }

    /// Returns the things that belong to no object.
    pub async fn orphans(client: &Client, node: &Node, before: &NodeInventory) -> Result<Vec<String>> {
        // Things are listed before objects, because an object exists before anything is made for it on the disk.
        let now = NodeInventory::collect(client, node).await?;
        let alive = live_uids(client).await?;
        let mut orphans: Vec<String> = now
            .things
            .iter()
            .filter(|thing| !before.things.contains(*thing))
            .filter(|thing| {
                let owners = uuids(thing);
                owners.is_empty() || !owners.iter().any(|uid| alive.contains(*uid))
            })
            .cloned()
            .collect();
        orphans.extend(now.things.iter().filter(|thing| thing.starts_with("trash ")).cloned());
        orphans.extend(now.things.iter().filter(|thing| thing.starts_with("tree ") && thing.ends_with(".tmp")).cloned());
        if orphans.iter().any(|thing| thing.starts_with(LOCAL_VOLUME)) {
            let abandoned = abandoned_claims(client).await?;
            orphans.retain(|thing| !thing.starts_with(LOCAL_VOLUME) || !uuids(thing).iter().any(|uid| abandoned.contains(*uid)));
        }
        orphans.sort();
        orphans.dedup();
        Ok(orphans)
    }

    /// Returns the lines that contain this word.
    pub fn matching<'a>(&'a self, word: &'a str) -> impl Iterator<Item = String> + 'a {
        self.things.iter().filter(move |thing| thing.contains(word)).cloned()
    }

    /// Adds things that belong to the workload itself.
    pub fn with(mut self, things: impl IntoIterator<Item = String>) -> NodeInventory {
        self.things.extend(things);
        self
    }
}

/// Returns a sentence for each object in deletion, with the finalizers that hold it.
pub async fn stuck_deletions(client: &Client, namespace: &str) -> Result<Vec<String>> {
    fn stuck<K: kube::Resource<DynamicType = ()>>(list: &[K], found: &mut Vec<String>) {
        for object in list {
            let meta = object.meta();
            if meta.deletion_timestamp.is_some() {
                let (name, by) = (meta.name.as_deref().unwrap_or_default(), meta.finalizers.clone().unwrap_or_default());
                found.push(format!("{} {name} is being deleted, held by {by:?}", K::kind(&())));
            }
        }
    }
    let all = ListParams::default();
    let mut found = Vec::new();
    stuck(&Api::<YoiPod>::namespaced(client.clone(), namespace).list(&all).await?.items, &mut found);
    stuck(&Api::<AgentWorkspace>::namespaced(client.clone(), namespace).list(&all).await?.items, &mut found);
    stuck(&Api::<YoiProject>::namespaced(client.clone(), namespace).list(&all).await?.items, &mut found);
    stuck(&Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace).list(&all).await?.items, &mut found);
    stuck(&Api::<Pod>::namespaced(client.clone(), namespace).list(&all).await?.items, &mut found);
    Ok(found)
}

/// Counts processes, session locks, lines at each gateway and sockets there. Returns a sentence for each count that does not fit `agents`.
pub async fn connection_problems(client: &Client, node: &Node, agents: usize) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let runtimes = node.pids(Component::Runtime).await?;
    if runtimes.len() != agents {
        found.push(format!("{} runtimes for {agents} agents", runtimes.len()));
    }
    let locks = node.sh("awk '$2 == \"FLOCK\" { print $5 }' /proc/locks").await?;
    let locked = locks.lines().filter_map(|pid| pid.parse::<u32>().ok()).filter(|pid| runtimes.contains(pid)).count();
    if locked != agents {
        found.push(format!("{locked} session locks for {agents} agents"));
    }
    for gateway in Api::<Pod>::namespaced(client.clone(), "yoi-system")
        .list(&ListParams::default().labels("app.kubernetes.io/name=yoi-gateway"))
        .await?
    {
        let path = format!("/api/v1/namespaces/yoi-system/pods/{}:8080/proxy/metrics", gateway.name_any());
        let text = client.request_text(axum::http::Request::get(path).body(Vec::new())?).await?;
        let lines = text.lines().find_map(|line| line.strip_prefix("yoi_gateway_lines ")).unwrap_or("no count of");
        if lines != agents.to_string() {
            found.push(format!("{lines} lines at {} for {agents} agents", gateway.name_any()));
        }
    }
    for pid in node.pids(Component::Gateway).await? {
        // Established connections at port 8443: for each agent one line, and at most one connection for its own requests.
        let open = node.sh(&format!("cat /proc/{pid}/net/tcp /proc/{pid}/net/tcp6 | awk '$2 ~ /:20FB$/ && $4 == \"01\"' | wc -l")).await?;
        let open: usize = open.trim().parse().unwrap_or(usize::MAX);
        if open > 2 * agents {
            found.push(format!("{open} connections at a gateway for {agents} agents"));
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uids_in_a_name_are_found() {
        let line =
            "mount /var/lib/kubelet/pods/b13ad869-3c71-4e16-b8f8-7191f0184a06/volumes/x/yoi-a11144d4-1458-4018-8618-a702ea17faf5/mount";
        assert_eq!(uuids(line), ["b13ad869-3c71-4e16-b8f8-7191f0184a06", "a11144d4-1458-4018-8618-a702ea17faf5"]);
        assert!(uuids("trash x").is_empty());
    }
}
