//! Who may see and message whom. Pure: objects in, an answer out.
//!
//! A YoiPeer joins two *identities*. A name that was deleted and made anew is a stranger, and a stranger is answered exactly as a name that
//! nobody bears, so that asking teaches nothing.

use yoi_wire::entry::AgentName;
use yoi_wire::hub::{Refusal, RefusalReason};

use crate::world::Bond;

/// The bond's name, from two names in any order.
pub fn bond_name(a: &str, b: &str) -> String {
    if a <= b { format!("{a}.{b}") } else { format!("{b}.{a}") }
}

/// A DNS label of at most 50 characters: what a YoiPod may be named.
pub fn is_agent_name(name: &str) -> bool {
    let inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    let bytes = name.as_bytes();
    (1..=50).contains(&bytes.len()) && bytes.iter().all(|c| inner(*c)) && bytes[0] != b'-' && bytes[bytes.len() - 1] != b'-'
}

/// Refuses a name before anything is looked up.
pub fn check_name(caller: &AgentName, to: &str) -> Result<(), Refusal> {
    if !is_agent_name(to) {
        let message = format!("{to:?} is not an agent's name: lower-case letters, digits and dashes, at most 50");
        return Err(Refusal { reason: RefusalReason::Invalid, message });
    }
    if to == caller.name {
        return Err(Refusal { reason: RefusalReason::Invalid, message: format!("{to} is the caller itself") });
    }
    Ok(())
}

/// May `caller` message `to`? `current` is the UID of the YoiPod that bears the name now, if one does.
pub fn may_send(caller: &AgentName, to: &str, bond: Option<&Bond>, current: Option<&str>) -> Result<(), Refusal> {
    let Some(bond) = bond.filter(|bond| sees(caller, bond) && names(bond, to)) else {
        return Err(Refusal {
            reason: RefusalReason::NotVisible,
            message: format!("no agent named {to} is visible to {}; make a YoiPeer to introduce them", caller.name),
        });
    };
    let not_a_peer = |why: &str| Refusal {
        reason: RefusalReason::NotAPeer,
        message: format!("YoiPeer {} does not join {} and {to}: {why}", bond.name, caller.name),
    };
    let Some(joined) = bound_uid(bond, to) else { return Err(not_a_peer("it is not accepted yet")) };
    // Gone and replaced get one answer: the relation was with the former one, and its successor is a stranger.
    if current != Some(joined) {
        return Err(not_a_peer("the agent it joined is gone"));
    }
    if bond.deleting || !bond.ready {
        return Err(not_a_peer("it is not Ready"));
    }
    Ok(())
}

/// A peer as its friend sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen<'a> {
    pub name: &'a str,
    /// The identity that was joined.
    pub uid: &'a str,
}

/// The other end of a bond, if the bond shows it to `caller`.
pub fn other_end<'a>(caller: &AgentName, bond: &'a Bond) -> Option<Seen<'a>> {
    if bond.deleting || !sees(caller, bond) {
        return None;
    }
    let other = bond.members.iter().find(|member| **member != caller.name)?;
    Some(Seen { name: other, uid: bound_uid(bond, other)? })
}

/// The bond joined *this* caller, not a former bearer of its name.
fn sees(caller: &AgentName, bond: &Bond) -> bool {
    bond.namespace == caller.namespace && names(bond, &caller.name) && bound_uid(bond, &caller.name) == Some(&caller.uid)
}

fn names(bond: &Bond, name: &str) -> bool {
    bond.members.iter().any(|member| member == name)
}

fn bound_uid<'a>(bond: &'a Bond, name: &str) -> Option<&'a str> {
    bond.bound.iter().find(|member| member.name == name).map(|member| member.uid.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use yoi_crds::peer::BoundMember;

    fn agent(name: &str) -> AgentName {
        AgentName { namespace: "ns".into(), name: name.into(), uid: format!("uid-{name}") }
    }

    fn bond(bound: &[(&str, &str)], ready: bool) -> Bond {
        Bond {
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
        for (to, refused) in [("a", true), ("x/y", true), ("", true), ("a.b", true), ("-b", true), ("B", true), ("b", false)] {
            assert_eq!(check_name(&agent("a"), to).is_err(), refused, "{to}");
        }
        assert!(!is_agent_name(&"a".repeat(51)));
        assert!(is_agent_name(&"a".repeat(50)));
    }

    #[test]
    fn sending_needs_one_ready_bond_of_both_identities() {
        use RefusalReason::{NotAPeer, NotVisible};
        let deleting = Bond { deleting: true, ..bond(BOTH, true) };
        let elsewhere = Bond { namespace: "other".into(), ..bond(BOTH, true) };
        let cases = [
            ("joined", Some(bond(BOTH, true)), Some("uid-b"), None),
            ("no bond", None, Some("uid-b"), Some(NotVisible)),
            ("no bond, no agent", None, None, Some(NotVisible)),
            ("caller is a successor", Some(bond(&[("a", "former"), ("b", "uid-b")], true)), Some("uid-b"), Some(NotVisible)),
            ("nothing bound", Some(bond(&[], true)), Some("uid-b"), Some(NotVisible)),
            ("a19: only one side bound", Some(bond(&[("a", "uid-a")], true)), Some("uid-b"), Some(NotAPeer)),
            ("a21: target is a successor", Some(bond(BOTH, true)), Some("uid-b2"), Some(NotAPeer)),
            ("a20: target is gone", Some(bond(BOTH, true)), None, Some(NotAPeer)),
            ("not ready", Some(bond(BOTH, false)), Some("uid-b"), Some(NotAPeer)),
            ("going", Some(deleting), Some("uid-b"), Some(NotAPeer)),
            ("another namespace", Some(elsewhere), Some("uid-b"), Some(NotVisible)),
        ];
        for (what, bond, current, wanted) in cases {
            let got = may_send(&agent("a"), "b", bond.as_ref(), current).err().map(|refusal| refusal.reason);
            assert_eq!(got, wanted, "{what}");
        }
    }

    #[test]
    fn unknown_and_hidden_names_get_the_same_words() {
        let unknown = may_send(&agent("a"), "b", None, None).unwrap_err();
        let hidden = may_send(&agent("a"), "b", None, Some("uid-b")).unwrap_err();
        assert_eq!(unknown, hidden);
        let (gone, replaced) =
            (may_send(&agent("a"), "b", Some(&bond(BOTH, true)), None), may_send(&agent("a"), "b", Some(&bond(BOTH, true)), Some("new")));
        assert_eq!(gone, replaced);
    }

    #[test]
    fn a5_each_end_of_a_bond_sees_the_other() {
        let bond = bond(BOTH, true);
        assert_eq!(other_end(&agent("a"), &bond).unwrap().name, "b");
        assert_eq!(other_end(&agent("b"), &bond).unwrap().name, "a");
        assert_eq!(other_end(&agent("c"), &bond), None);
        assert_eq!(bond_name("b", "a"), bond_name("a", "b"));
    }
}
