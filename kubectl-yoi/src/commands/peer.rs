//! `peer`: lets two agents see and message each other, or ends that.

use yoi_crds::condition::{find, is_true};
use yoi_crds::reason::condition;
use yoi_crds::{YoiPeer, YoiPeerSpec, YoiPod};
use yoi_plan::visibility::yoipeer_name;

use crate::args::{OutputFormat, PeerOptions};
use crate::cluster::{Cluster, Wait, blocked};
use crate::error::Error;
use crate::show;

pub async fn peer(cluster: &Cluster, output: Option<OutputFormat>, args: &PeerOptions) -> Result<(), Error> {
    let (a, b) = if args.a <= args.b { (&args.a, &args.b) } else { (&args.b, &args.a) };
    if a == b {
        let next = format!("name another agent beside it: {}", cluster.list_command::<YoiPod>());
        return Err(cluster.refused_error::<YoiPod>("give a peer to", a, "an agent cannot be its own peer", next));
    }
    let name = yoipeer_name(a, b);
    let title = format!("yoipeer.yoi.dev/{name}");
    if args.rm {
        let peer: YoiPeer = cluster.get(&name).await?;
        cluster.delete(&peer).await?;
        return show::object(output, &peer, &title, &format!("{a} and {b} no longer see each other{}", cluster.dry_run_mark()));
    }
    let made = join(cluster, a, b, args.timeout).await?;
    if cluster.dry_run.is_some() {
        return show::object(output, &made, &title, &format!("{title} created{}", cluster.dry_run_mark()));
    }
    let ready = wait(cluster, &name, args.timeout).await?;
    show::object(output, &ready, &title, &format!("{a} and {b} see each other and may send messages"))
}

/// Makes the YoiPeer of two agents that exist, unless it is there. One that joined a former agent of either name is made anew.
pub async fn join(cluster: &Cluster, a: &str, b: &str, timeout: std::time::Duration) -> Result<YoiPeer, Error> {
    // Both have to exist: a missing one is most likely a typing mistake.
    let (first, second): (YoiPod, YoiPod) = (cluster.get(a).await?, cluster.get(b).await?);
    let name = yoipeer_name(a, b);
    if let Some(there) = cluster.get_opt::<YoiPeer>(&name).await? {
        let is_current = |name: &str, uid: &str| {
            [&first, &second].iter().any(|pod| pod.metadata.name.as_deref() == Some(name) && pod.metadata.uid.as_deref() == Some(uid))
        };
        let bound = there.status.iter().flat_map(|status| &status.members);
        let former = bound.filter(|member| !is_current(&member.name, &member.uid)).count() > 0;
        if !former && there.metadata.deletion_timestamp.is_none() {
            return Ok(there);
        }
        cluster.delete(&there).await?;
        if cluster.dry_run.is_some() {
            return Ok(there);
        }
        cluster.wait_gone::<YoiPeer>(&name, there.metadata.uid.as_deref(), timeout).await?;
    }
    let members = if a <= b { [a, b] } else { [b, a] };
    cluster.create(&YoiPeer::new(&name, YoiPeerSpec { members: members.map(str::to_owned).to_vec() })).await
}

async fn wait(cluster: &Cluster, name: &str, timeout: std::time::Duration) -> Result<YoiPeer, Error> {
    cluster
        .wait(name, timeout, "ready", |peer: Option<&YoiPeer>| {
            let Some(peer) = peer else { return Err(cluster.gone_error::<YoiPeer>(name)) };
            let conditions = peer.status.as_ref().map(|s| s.conditions.as_slice()).unwrap_or_default();
            if is_true(conditions, condition::READY) {
                return Ok(Wait::Done(peer.clone()));
            }
            Ok(blocked(cluster, peer, "ready", find(conditions, condition::READY), |_| None))
        })
        .await
}
