//! `peer`: lets two agents see and message each other, or ends that.

use yoi_crds::{YoiPeer, YoiPeerSpec, YoiPod};

use crate::args::{OutputFormat, PeerOptions};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show;

pub async fn peer(cluster: &Cluster, output: Option<OutputFormat>, args: &PeerOptions) -> Result<(), Error> {
    let mut members = [args.a.clone(), args.b.clone()];
    members.sort();
    let [a, b] = members.clone();
    if a == b {
        let next = format!("name another agent beside it: {}", cluster.list_command::<YoiPod>());
        return Err(cluster.refused_error::<YoiPod>("give a peer to", &a, "an agent cannot be its own peer", next));
    }
    let name = format!("{a}.{b}");
    if args.rm {
        let peer: YoiPeer = cluster.get(&name).await?;
        cluster.delete(&peer).await?;
        return show::object(output, &peer, &format!("yoipeer.yoi.dev/{name}"), &format!("{a} and {b} no longer see each other"));
    }
    // Both have to exist: a missing one is most likely a typing mistake.
    for member in &members {
        cluster.get::<YoiPod>(member).await?;
    }
    let peer = YoiPeer::new(&name, YoiPeerSpec { members: members.to_vec() });
    let made = match cluster.api::<YoiPeer>().get_opt(&name).await {
        Ok(Some(there)) => there,
        _ => cluster.create(&peer).await?,
    };
    show::object(output, &made, &format!("yoipeer.yoi.dev/{name}"), &format!("{a} and {b} see each other and may send messages"))
}
