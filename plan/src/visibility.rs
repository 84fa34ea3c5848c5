//! Who may see and message whom: a pure function of objects. The gateway and the plugin both decide by it alone.
//!
//! A YoiPeer joins two *identities*. A YoiPod that was deleted and made again under its name has another identity. What a caller cannot see is answered
//! exactly as what does not exist, so that asking reveals nothing.
//!
//! | The caller's YoiPeer with the other | Listed | May send |
//! |---|---|---|
//! | none, or it joined a former caller or another namespace | no | `NotVisible` |
//! | has not bound the other yet, or is being deleted | no | `NotAPeer` |
//! | the YoiPod that it joined is gone, or another one has its name | yes, as missing | `NotAPeer` |
//! | not Ready | yes | `NotAPeer` |
//! | Ready, and both are the ones that it joined | yes | yes |
//!
//! An agent also sees those that it has started and the one that has started it, as long as they are there. That lets it send nothing: what a parent may do
//! to a child, [`crate::children`] says.

use std::collections::BTreeMap;

use yoi_crds::peer::BoundMember;
use yoi_crds::reason::condition;
use yoi_crds::{YoiPeer, YoiPod, condition as conditions};
use yoi_wire::entry::AgentRef;
use yoi_wire::hub::{Refusal, RefusalReason, VisibilityReason};

use crate::meta::{deleting, name, namespace, uid};

/// The parts of a YoiPeer that visibility depends on.
#[derive(Clone, Debug, PartialEq)]
pub struct PeerLink {
    /// Namespace of the YoiPeer and of its members.
    pub namespace: String,
    /// Name of the YoiPeer.
    pub name: String,
    /// Names of the two members, as in the spec.
    pub members: Vec<String>,
    /// The identities that were joined; empty until the YoiPeer is accepted.
    pub bound: Vec<BoundMember>,
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// Whether it is being deleted.
    pub deleting: bool,
}

impl From<YoiPeer> for PeerLink {
    fn from(peer: YoiPeer) -> Self {
        let YoiPeer { metadata, spec, status } = peer;
        let status = status.unwrap_or_default();
        PeerLink {
            namespace: namespace(&metadata).to_owned(),
            name: name(&metadata).to_owned(),
            members: spec.members,
            ready: conditions::is_true(&status.conditions, condition::READY),
            bound: status.members,
            deleting: deleting(&metadata),
        }
    }
}

/// Name and identity of a YoiPod.
#[must_use]
pub fn agent_ref(yoipod: &YoiPod) -> AgentRef {
    let meta = &yoipod.metadata;
    AgentRef { namespace: namespace(meta).to_owned(), name: name(meta).to_owned(), uid: uid(meta).to_owned() }
}

/// The name of the one YoiPeer that can join two members, given in any order.
#[must_use]
pub fn yoipeer_name(a: &str, b: &str) -> String {
    if a <= b { format!("{a}.{b}") } else { format!("{b}.{a}") }
}

/// A DNS label of at most 50 characters: what a YoiPod may be named.
#[must_use]
pub fn is_agent_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    name.len() <= 50 && !name.is_empty() && name.bytes().all(inner) && !name.starts_with('-') && !name.ends_with('-')
}

/// Refuses a name before anything is looked up.
///
/// # Errors
/// `Invalid`: nothing could bear this name, or the caller itself does.
pub fn check_name(caller: &AgentRef, to: &str) -> Result<(), Refusal> {
    if !is_agent_name(to) {
        let message = format!("{to:?} is not an agent's name: lower-case letters, digits and dashes, at most 50");
        return Err(Refusal { reason: RefusalReason::Invalid, message });
    }
    if to == caller.name {
        return Err(Refusal { reason: RefusalReason::Invalid, message: format!("{to} is the caller itself") });
    }
    Ok(())
}

/// May `caller` message `to`? `link` is the YoiPeer named [`yoipeer_name`] of the two, `current` the UID of the YoiPod that has the name now.
///
/// # Errors
/// `NotVisible`, with the same message whether or not a YoiPod has the name; `NotAPeer` for one that the caller was joined with.
pub fn may_send(caller: &AgentRef, to: &str, link: Option<&PeerLink>, current: Option<&str>) -> Result<(), Refusal> {
    let Some(link) = link.filter(|link| joins_caller(caller, link) && names_member(link, to)) else {
        return Err(Refusal {
            reason: RefusalReason::NotVisible,
            message: format!("no agent named {to} is visible to {}; make a YoiPeer to introduce them", caller.name),
        });
    };
    let not_a_peer = |why: &str| Refusal {
        reason: RefusalReason::NotAPeer,
        message: format!("YoiPeer {} does not join {} and {to}: {why}", link.name, caller.name),
    };
    let Some(joined) = bound_uid(link, to) else { return Err(not_a_peer("it is not accepted yet")) };
    // Gone and replaced get one answer: the caller was joined with the former YoiPod, and does not see the new one.
    if current != Some(joined) {
        return Err(not_a_peer("the agent it joined is gone"));
    }
    if link.deleting || !link.ready {
        return Err(not_a_peer("it is not Ready"));
    }
    Ok(())
}

/// An agent that the caller sees, whether or not it still exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VisibleAgent<'a> {
    /// Name of the agent.
    pub name: &'a str,
    /// UID of the YoiPod that was joined.
    pub uid: &'a str,
    /// Why the caller sees it: each reason once, in their order.
    pub reasons: Vec<VisibilityReason>,
}

impl VisibleAgent<'_> {
    /// Whether the YoiPod that has the name now is the one that the caller sees. If not, that one is missing, and the caller learns nothing of the new
    /// one.
    #[must_use]
    pub fn is(&self, current: &AgentRef) -> bool {
        self.uid == current.uid
    }
}

/// An agent, and who has started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kin<'a> {
    /// The agent.
    pub agent: &'a AgentRef,
    /// UID of the YoiPod that has started it.
    pub parent_uid: Option<&'a str>,
}

/// Whom `caller` sees: itself, then the other members of its YoiPeers, its children and its parent, sorted by name. `links` may be any YoiPeers, of any
/// namespace, and `agents` any agents; `parent_uid` is who has started the caller.
#[must_use]
pub fn visible_agents<'a>(
    caller: &'a AgentRef,
    parent_uid: Option<&str>,
    links: impl IntoIterator<Item = &'a PeerLink>,
    agents: impl IntoIterator<Item = Kin<'a>>,
) -> Vec<VisibleAgent<'a>> {
    let itself = VisibleAgent { name: &caller.name, uid: &caller.uid, reasons: vec![VisibilityReason::Itself] };
    let peers = links.into_iter().filter_map(|link| other_member(caller, link));
    let family = agents.into_iter().filter_map(|kin| {
        let reason = relation(caller, parent_uid, kin)?;
        Some(VisibleAgent { name: &kin.agent.name, uid: &kin.agent.uid, reasons: vec![reason] })
    });
    let mut others: BTreeMap<&str, VisibleAgent<'a>> = BTreeMap::new();
    for seen in peers.chain(family) {
        match others.get_mut(seen.name) {
            Some(known) if known.uid == seen.uid => known.reasons.extend(seen.reasons),
            // The YoiPeer joined a former agent of the name, which is missing: the one that is there is its child.
            Some(_) | None => drop(others.insert(seen.name, seen)),
        }
    }
    std::iter::once(itself).chain(others.into_values()).collect()
}

/// Whether the agent is a child or the parent of the caller.
fn relation(caller: &AgentRef, parent_uid: Option<&str>, kin: Kin<'_>) -> Option<VisibilityReason> {
    let Kin { agent, parent_uid: of_kin } = kin;
    if agent.namespace != caller.namespace {
        return None;
    }
    if of_kin == Some(&caller.uid) {
        return Some(VisibilityReason::Child);
    }
    (parent_uid == Some(&agent.uid)).then_some(VisibilityReason::Parent)
}

/// The other member of a YoiPeer, if `caller` sees it by that.
fn other_member<'a>(caller: &AgentRef, link: &'a PeerLink) -> Option<VisibleAgent<'a>> {
    if link.deleting || !joins_caller(caller, link) {
        return None;
    }
    let other = link.members.iter().find(|member| **member != caller.name)?;
    Some(VisibleAgent { name: other, uid: bound_uid(link, other)?, reasons: vec![VisibilityReason::Peer] })
}

/// The YoiPeer joined *this* caller, not a former YoiPod of its name.
fn joins_caller(caller: &AgentRef, link: &PeerLink) -> bool {
    link.namespace == caller.namespace && names_member(link, &caller.name) && bound_uid(link, &caller.name) == Some(&caller.uid)
}

/// By the spec: a status that names others is not believed.
fn names_member(link: &PeerLink, name: &str) -> bool {
    link.members.iter().any(|member| member == name)
}

fn bound_uid<'a>(link: &'a PeerLink, name: &str) -> Option<&'a str> {
    link.bound.iter().find(|member| member.name == name).map(|member| member.uid.as_str())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn agent(name: &str) -> AgentRef {
        AgentRef { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}") }
    }

    fn link(bound: &[(&str, &str)], ready: bool) -> PeerLink {
        PeerLink {
            namespace: "ns".into(),
            name: "a.b".into(),
            members: vec!["a".into(), "b".into()],
            bound: bound.iter().map(|(name, uid)| BoundMember { name: (*name).into(), uid: (*uid).into() }).collect(),
            ready,
            deleting: false,
        }
    }

    const BOTH: &[(&str, &str)] = &[("a", "uid-a"), ("b", "uid-b")];

    #[test]
    fn a1_a3_names_are_refused_before_any_lookup() {
        for (to, refused) in [("a", true), ("x/y", true), ("", true), ("a.b", true), ("-b", true), ("b-", true), ("B", true), ("b", false)]
        {
            assert_eq!(check_name(&agent("a"), to).is_err(), refused, "{to}");
        }
        assert!(!is_agent_name(&"a".repeat(51)));
        assert!(is_agent_name(&"a".repeat(50)));
    }

    /// Each world, whether `b` is then listed to `a`, and how: `Some(true)` is there, `Some(false)` missing.
    #[test]
    fn a19_a20_a21_a22_an_agent_may_send_only_to_one_that_it_sees() {
        use RefusalReason::{NotAPeer, NotVisible};
        let deleting = PeerLink { deleting: true, ..link(BOTH, true) };
        let elsewhere = PeerLink { namespace: "other".into(), ..link(BOTH, true) };
        let other_members = PeerLink { members: vec!["a".into(), "c".into()], ..link(BOTH, true) };
        let former = link(&[("a", "former"), ("b", "uid-b")], true);
        let cases = [
            ("joined", Some(link(BOTH, true)), Some("uid-b"), Some(true), None),
            ("no YoiPeer", None, Some("uid-b"), None, Some(NotVisible)),
            ("no YoiPeer, no agent", None, None, None, Some(NotVisible)),
            ("caller is a successor", Some(former), Some("uid-b"), None, Some(NotVisible)),
            ("nothing bound", Some(link(&[], true)), Some("uid-b"), None, Some(NotVisible)),
            ("a19: only one side bound", Some(link(&[("a", "uid-a")], true)), Some("uid-b"), None, Some(NotAPeer)),
            ("a21: target is a successor", Some(link(BOTH, true)), Some("uid-b2"), Some(false), Some(NotAPeer)),
            ("a20: target is gone", Some(link(BOTH, true)), None, Some(false), Some(NotAPeer)),
            ("not ready", Some(link(BOTH, false)), Some("uid-b"), Some(true), Some(NotAPeer)),
            ("being deleted", Some(deleting), Some("uid-b"), None, Some(NotAPeer)),
            ("another namespace", Some(elsewhere), Some("uid-b"), None, Some(NotVisible)),
            ("a status with members that the spec does not name", Some(other_members), Some("uid-b"), None, Some(NotVisible)),
        ];
        for (what, link, current, listed, refused) in cases {
            let got = may_send(&agent("a"), "b", link.as_ref(), current).err().map(|refusal| refusal.reason);
            assert_eq!(got, refused, "{what}");
            let me = agent("a");
            let now = current.map(|uid| AgentRef { uid: uid.into(), ..agent("b") });
            let there = visible_agents(&me, None, &link, [])
                .iter()
                .find(|seen| seen.name == "b")
                .map(|seen| now.as_ref().is_some_and(|now| seen.is(now)));
            assert_eq!(there, listed, "{what}");
        }
    }

    #[test]
    fn a25_unknown_and_hidden_names_get_the_same_answer() {
        let unknown = may_send(&agent("a"), "b", None, None).unwrap_err();
        let hidden = may_send(&agent("a"), "b", None, Some("uid-b")).unwrap_err();
        assert_eq!(unknown, hidden);
        let (gone, replaced) =
            (may_send(&agent("a"), "b", Some(&link(BOTH, true)), None), may_send(&agent("a"), "b", Some(&link(BOTH, true)), Some("new")));
        assert_eq!(gone, replaced);
    }

    #[test]
    fn a5_each_member_of_a_yoipeer_sees_the_other() {
        let links = [link(BOTH, true)];
        let seen =
            |name: &str| visible_agents(&agent(name), None, &links, []).into_iter().map(|seen| seen.name.to_owned()).collect::<Vec<_>>();
        assert_eq!(seen("a"), ["a", "b"]);
        assert_eq!(seen("b"), ["b", "a"]);
        assert_eq!(seen("c"), ["c"]);
        assert_eq!(yoipeer_name("b", "a"), yoipeer_name("a", "b"));
    }

    #[test]
    fn itself_comes_first_and_the_others_by_name() {
        let with = |other: &str| PeerLink {
            name: yoipeer_name("b", other),
            members: vec!["b".into(), other.into()],
            ..link(&[("b", "uid-b"), (other, &format!("uid-{other}"))], true)
        };
        let links = [with("d"), link(BOTH, true), with("c")];
        let me = agent("b");
        let seen: Vec<_> = visible_agents(&me, None, &links, []).iter().map(|seen| (seen.name, seen.reasons.clone())).collect();
        assert_eq!(
            seen,
            [
                ("b", vec![VisibilityReason::Itself]),
                ("a", vec![VisibilityReason::Peer]),
                ("c", vec![VisibilityReason::Peer]),
                ("d", vec![VisibilityReason::Peer])
            ]
        );
    }

    #[test]
    fn a26_a_peer_is_listed_as_peer_and_whom_it_sees_is_not() {
        let of_b = PeerLink { name: "b.c".into(), members: vec!["b".into(), "c".into()], ..link(&[("b", "uid-b"), ("c", "uid-c")], true) };
        let (me, links) = (agent("a"), [link(BOTH, true), of_b]);
        let seen: Vec<_> = visible_agents(&me, None, &links, []).iter().map(|seen| (seen.name, seen.reasons.clone())).collect();
        assert_eq!(seen, [("a", vec![VisibilityReason::Itself]), ("b", vec![VisibilityReason::Peer])]);
    }

    #[test]
    fn a16_a_child_that_is_a_peer_too_has_both_reasons_and_a_childs_family_is_not_seen() {
        use VisibilityReason::{Child, Itself, Parent, Peer};
        let (me, child, other, grandchild) = (agent("a"), agent("b"), agent("c"), agent("d"));
        let kin = |agent, parent_uid| Kin { agent, parent_uid };
        let all = [kin(&me, None), kin(&child, Some("uid-a")), kin(&other, None), kin(&grandchild, Some("uid-b"))];
        let seen = |me: &AgentRef, parent, links: &[PeerLink]| {
            visible_agents(me, parent, links, all).iter().map(|seen| (seen.name.to_owned(), seen.reasons.clone())).collect::<Vec<_>>()
        };
        let b = |reasons| ("b".to_owned(), reasons);
        assert_eq!(seen(&me, None, &[]), [("a".to_owned(), vec![Itself]), b(vec![Child])]);
        assert_eq!(seen(&me, None, &[link(BOTH, true)]), [("a".to_owned(), vec![Itself]), b(vec![Peer, Child])]);
        // The YoiPeer joined a former b.
        assert_eq!(seen(&me, None, &[link(&[("a", "uid-a"), ("b", "former")], true)]), [("a".to_owned(), vec![Itself]), b(vec![Child])]);
        assert_eq!(seen(&child, Some("uid-a"), &[]), [b(vec![Itself]), ("a".to_owned(), vec![Parent]), ("d".to_owned(), vec![Child])]);
        let successor = AgentRef { uid: "uid-a2".into(), ..agent("a") };
        assert_eq!(seen(&successor, None, &[]), [("a".to_owned(), vec![Itself])], "a new agent of the name has started nobody");
        let elsewhere = AgentRef { namespace: "other".into(), ..agent("a") };
        assert_eq!(seen(&elsewhere, None, &[]), [("a".to_owned(), vec![Itself])]);
    }

    #[test]
    fn a_peer_link_is_read_from_a_yoipeer() {
        let ready = |status: &str| {
            let peer: YoiPeer = serde_json::from_value(json!({
                "metadata": {"namespace": "ns", "name": "a.b"},
                "spec": {"members": ["a", "b"]},
                "status": {"members": [{"name": "a", "uid": "uid-a"}, {"name": "b", "uid": "uid-b"}], "conditions": [
                    {"type": "Ready", "status": status, "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
            }))
            .unwrap();
            PeerLink::from(peer)
        };
        assert_eq!(ready("True"), link(BOTH, true));
        assert_eq!(ready("False"), link(BOTH, false));
        let mut bare = YoiPeer::new("a.b", yoi_crds::YoiPeerSpec { members: vec!["a".into(), "b".into()] });
        bare.metadata.namespace = Some("ns".into());
        assert_eq!(PeerLink::from(bare.clone()), link(&[], false));
        bare.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        assert!(PeerLink::from(bare).deleting);
    }
}
