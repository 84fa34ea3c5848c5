//! Who may see whom.
//!
//! An agent sees itself, and the agents with which a YoiPeer joins it. A YoiPeer counts when it is Ready, names both by the UIDs that they
//! have now, and is not on its way out. Names alone prove nothing: a YoiPod of the same name is a stranger.

use std::collections::BTreeMap;
use std::ops::Deref;

use yoi_crds::reason::condition;
use yoi_crds::{YoiPeer, YoiPod, condition as conditions};
use yoi_wire::entry::AgentName;
use yoi_wire::hub::{RefusalReason, SightReason};

use crate::manage::{deleting, name, namespace, uid};

/// A YoiPod that the caller may see.
#[derive(Clone, Debug)]
pub struct Visible<P> {
    pub yoipod: P,
    /// Why, without repetition: itself first.
    pub reasons: Vec<SightReason>,
}

/// Name and identity of a YoiPod.
#[must_use]
pub fn agent_name(yoipod: &YoiPod) -> AgentName {
    let meta = &yoipod.metadata;
    AgentName { namespace: namespace(meta).to_owned(), name: name(meta).to_owned(), uid: uid(meta).to_owned() }
}

/// Every YoiPod that `caller` may see, sorted by name. Empty when the caller's own identity is not among `yoipods`.
/// Objects may be of any namespace; only the caller's counts.
pub fn visible<P, Q>(caller: &AgentName, yoipods: impl IntoIterator<Item = P>, peers: impl IntoIterator<Item = Q>) -> Vec<Visible<P>>
where
    P: Deref<Target = YoiPod>,
    Q: Deref<Target = YoiPeer>,
{
    let here: BTreeMap<String, P> =
        yoipods.into_iter().filter(|p| namespace(&p.metadata) == caller.namespace).map(|p| (name(&p.metadata).to_owned(), p)).collect();
    if here.get(&caller.name).is_none_or(|me| uid(&me.metadata) != caller.uid) {
        return Vec::new();
    }
    let mut reasons: BTreeMap<String, Vec<SightReason>> = BTreeMap::from([(caller.name.clone(), vec![SightReason::Itself])]);
    for peer in peers {
        let Some(other) = joined(&caller.name, &caller.uid, &peer).filter(|_| namespace(&peer.metadata) == caller.namespace) else {
            continue;
        };
        let present = here.get(&other.name).is_some_and(|p| uid(&p.metadata) == other.uid);
        if present {
            let why = reasons.entry(other.name).or_default();
            if !why.contains(&SightReason::Peer) {
                why.push(SightReason::Peer);
            }
        }
    }
    here.into_iter().filter_map(|(name, yoipod)| Some(Visible { yoipod, reasons: reasons.remove(&name)? })).collect()
}

/// Whether `from` may send to the YoiPod called `to`: it must be a peer. Otherwise why not, without telling more than `from` may see.
pub fn may_send<P, Q>(
    from: &AgentName,
    to: &str,
    yoipods: impl IntoIterator<Item = P>,
    peers: impl IntoIterator<Item = Q>,
) -> Result<P, RefusalReason>
where
    P: Deref<Target = YoiPod>,
    Q: Deref<Target = YoiPeer>,
{
    let found = visible(from, yoipods, peers).into_iter().find(|v| name(&v.yoipod.metadata) == to).ok_or(RefusalReason::NotVisible)?;
    if found.reasons.contains(&SightReason::Peer) { Ok(found.yoipod) } else { Err(RefusalReason::NotAPeer) }
}

struct Joined {
    name: String,
    uid: String,
}

/// The other member of a YoiPeer that holds, when one is exactly `me`.
fn joined(me: &str, my_uid: &str, peer: &YoiPeer) -> Option<Joined> {
    let status = peer.status.as_ref()?;
    if deleting(&peer.metadata) || !conditions::is_true(&status.conditions, condition::READY) {
        return None;
    }
    let [a, b] = status.members.as_slice() else { return None };
    // The spec is what was asked for; a status that says otherwise is not believed.
    if a.name == b.name || !peer.spec.members.contains(&a.name) || !peer.spec.members.contains(&b.name) {
        return None;
    }
    let other = if a.name == me && a.uid == my_uid {
        b
    } else if b.name == me && b.uid == my_uid {
        a
    } else {
        return None;
    };
    Some(Joined { name: other.name.clone(), uid: other.uid.clone() })
}
