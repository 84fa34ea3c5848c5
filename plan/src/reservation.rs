//! Loans: whether an agent may lend paths of its tree to the child that it asks for. A pure function of its object and its tree; the gateway acts by it.
//!
//! | | |
//! |---|---|
//! | who may | a built-in agent whose `spec.delegation` allows paths |
//! | what | as much as delegation and scope both allow, and what nobody else holds |
//! | what the child may do | what was asked for, without what its parent is denied; it lends nothing on |
//! | meanwhile | the parent reads there, and does not write |

use yoi_crds::workspace::{Claim, Holder, Lender, MAX_CLAIMS};
use yoi_crds::{AgentWorkspace, YoiPod};
use yoi_wire::children::SharedPath;
use yoi_wire::hub::{Refusal, RefusalReason};

use crate::conditions::format_time;
use crate::meta::{controller, deleting, name, uid};
use crate::scope::{self, Access, ClaimState, Loan, Rules, conflict};
use crate::{children, names};

/// Whether an agent may lend anything.
#[must_use]
pub fn lends(yoipod: &YoiPod) -> bool {
    let spec = &yoipod.spec;
    spec.agent.builtin.is_some()
        && spec.spawned_by.is_none()
        && spec.delegation.as_ref().is_some_and(|delegation| !delegation.allow.is_empty())
}

/// What an agent asks for.
#[derive(Clone, Copy, Debug)]
pub struct LoanRequest<'a> {
    /// The object of the agent that asks.
    pub lender: &'a YoiPod,
    /// UID of its Pod.
    pub pod_uid: &'a str,
    /// Name of the child.
    pub holder: &'a str,
    /// Id of the request: the same one asks for the same loan.
    pub request_id: &'a str,
    /// The paths.
    pub share: &'a [SharedPath],
}

impl LoanRequest<'_> {
    /// Id of the loan.
    #[must_use]
    pub fn loan(&self) -> String {
        names::loan(uid(&self.lender.metadata), self.request_id)
    }

    /// The claim of this request, if it was made before. One that has ended by now is no error: its state says so.
    #[must_use]
    pub fn claim_of(&self, tree: &AgentWorkspace) -> Option<Claim> {
        let loan = self.loan();
        claims(tree).iter().find(|claim| claim.loan == loan).cloned()
    }

    /// What to write: all claims of the tree with the new one, the last.
    ///
    /// # Errors
    /// `NoDelegation`, `Invalid`, `NotLent`, `PathHeld` or `Limit`, each naming what hinders.
    pub fn reserve(&self, tree: &AgentWorkspace, now: jiff::Timestamp) -> Result<Vec<Claim>, Refusal> {
        let rules = self.rules()?;
        self.check_tree(tree)?;
        let lender =
            Lender { name: self.name().to_owned(), uid: uid(&self.lender.metadata).to_owned(), pod_uid: Some(self.pod_uid.to_owned()) };
        let wanted = Loan { id: self.loan(), lender: lender.name.clone(), holder: self.holder.to_owned(), rules };
        let all = claims(tree);
        if let Some(conflict) = conflict(&scope::held_loans(all), &wanted) {
            return Err(Refusal { reason: RefusalReason::PathHeld, message: conflict.to_string() });
        }
        let held = all.iter().filter(|claim| scope::claim_state(claim.state).is_none_or(ClaimState::is_held)).count();
        if held >= MAX_CLAIMS {
            let message = format!("{held} loans of the tree are not back, and at most {MAX_CLAIMS} are taken; stop a child that has one");
            return Err(Refusal { reason: RefusalReason::Limit, message });
        }
        // What is back makes room, the longest first.
        let surplus = (all.len() + 1).saturating_sub(MAX_CLAIMS);
        let mut back = 0;
        let is_kept = |claim: &&Claim| {
            let goes = back < surplus && scope::claim_state(claim.state).is_some_and(|state| !state.is_held());
            back += usize::from(goes);
            !goes
        };
        let mut kept: Vec<Claim> = all.iter().filter(is_kept).cloned().collect();
        kept.push(Claim {
            loan: wanted.id,
            lender,
            holder: Holder { name: wanted.holder, uid: None, pod_uid: None },
            rules: (&wanted.rules).into(),
            state: ClaimState::Reserved.into(),
            reserved_at: format_time(now),
            message: None,
        });
        Ok(kept)
    }

    fn name(&self) -> &str {
        name(&self.lender.metadata)
    }

    /// The child's rules.
    fn rules(&self) -> Result<Rules, Refusal> {
        let refused = |reason, message: String| Refusal { reason, message };
        let spec = &self.lender.spec;
        let Some(delegation) = spec.delegation.as_deref() else { return Err(children::no_delegation(self.name())) };
        let asked = scope::shared(self.share).map_err(|why| refused(RefusalReason::Invalid, why))?;
        // The root of a tree is the mount of it, and nothing is laid over that while a Pod has it.
        if asked.allow().iter().any(|rule| rule.path.is_root() && rule.access == Access::Write) {
            let message = "the whole tree is not lent: name folders of it, or leave share out, and the child has a fork".to_owned();
            return Err(refused(RefusalReason::NotLent, message));
        }
        if spec.agent.builtin.is_none() {
            let message =
                format!("{} is a program, and only built-in agents lend paths; leave share out, and the child has a fork", self.name());
            return Err(refused(RefusalReason::NotLent, message));
        }
        // A person wrote these, and the operator says so on the object.
        let unreadable = |why: String| refused(RefusalReason::NotLent, format!("nothing is lent while this stands: {why}"));
        let own = spec.scope.as_deref().map_or_else(|| Ok(Rules::whole_tree()), scope::rules).map_err(unreadable)?;
        let Some(delegated) = scope::delegated(delegation).map_err(unreadable)? else {
            let message =
                format!("the delegation of {} names no paths, so it lends none: leave share out, and the child has a fork", self.name());
            return Err(refused(RefusalReason::NotLent, message));
        };
        scope::lend(&own, Some(&delegated), &asked).map_err(|why| refused(RefusalReason::NotLent, why.to_string()))
    }

    /// The tree is the lender's, and its Pod has it.
    fn check_tree(&self, tree: &AgentWorkspace) -> Result<(), Refusal> {
        let refused = |message: String| Err(Refusal { reason: RefusalReason::NotLent, message });
        let title = name(&tree.metadata);
        if deleting(&tree.metadata) {
            return refused(format!("AgentWorkspace {title} is being deleted"));
        }
        let owner = controller(&tree.metadata).filter(|owner| owner.kind == "YoiPod");
        if owner.is_some_and(|owner| owner.uid != uid(&self.lender.metadata)) || crate::tree::loan(self.lender).is_some() {
            return refused(format!("the tree of AgentWorkspace {title} is another agent's"));
        }
        let mounted_by = tree.status.as_ref().and_then(|status| status.pod_uid.as_deref());
        if mounted_by != Some(self.pod_uid) {
            return refused(format!("AgentWorkspace {title} does not name the Pod of {} as the one that has it; try again", self.name()));
        }
        Ok(())
    }
}

fn claims(tree: &AgentWorkspace) -> &[Claim] {
    tree.status.as_ref().map(|status| status.claims.as_slice()).unwrap_or_default()
}

/// All claims of the tree with this one in another state; `None` when it is not there or has left that state by now. A message that is there stays.
#[must_use]
pub fn moved(tree: &AgentWorkspace, loan: &str, from: &[ClaimState], to: ClaimState, message: Option<&str>) -> Option<Vec<Claim>> {
    let is_it = |claim: &Claim| claim.loan == loan && scope::claim_state(claim.state).is_some_and(|state| from.contains(&state));
    let mut all = claims(tree).to_vec();
    let claim = all.iter_mut().find(|claim| is_it(claim))?;
    claim.state = to.into();
    claim.message = claim.message.take().or_else(|| message.map(bounded));
    Some(all)
}

/// As many characters of a text as the message of a claim may have.
#[must_use]
pub fn bounded(text: &str) -> String {
    text.chars().take(yoi_crds::workspace::MAX_LOAN_MESSAGE as usize).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use yoi_wire::children::SharedAccess;

    use super::*;

    fn lender(spec: Value) -> YoiPod {
        let mut full = json!({ "projectRef": { "name": "p" }, "agent": { "builtin": {} } });
        full.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        serde_json::from_value(json!({ "metadata": { "namespace": "ns", "name": "lead", "uid": "u-lead" }, "spec": full })).unwrap()
    }

    fn delegating(allow: Value, deny: Value) -> YoiPod {
        lender(json!({ "delegation": { "allow": allow, "deny": deny } }))
    }

    fn tree(claims: Vec<Claim>) -> AgentWorkspace {
        let mut tree: AgentWorkspace = serde_json::from_value(json!({
            "metadata": { "namespace": "ns", "name": "tree", "uid": "u-tree" },
            "spec": { "source": { "empty": {} } }, "status": { "podUID": "p-lead" },
        }))
        .unwrap();
        tree.status.get_or_insert_default().claims = claims;
        tree
    }

    fn write(path: &str) -> Value {
        json!({ "path": path, "access": "Write" })
    }

    fn share(path: &str, access: SharedAccess, recursive: bool) -> Vec<SharedPath> {
        vec![SharedPath { path: path.to_owned(), access, recursive }]
    }

    fn reserve(lender: &YoiPod, tree: &AgentWorkspace, (holder, id): (&str, &str), share: &[SharedPath]) -> Result<Vec<Claim>, Refusal> {
        LoanRequest { lender, pod_uid: "p-lead", holder, request_id: id, share }.reserve(tree, jiff::Timestamp::UNIX_EPOCH)
    }

    fn reason(answer: Result<Vec<Claim>, Refusal>) -> Option<RefusalReason> {
        answer.err().map(|refusal| refusal.reason)
    }

    #[test]
    fn c1_no_path_and_a_path_that_is_none_are_refused_by_name() {
        let lead = delegating(json!([write(".")]), json!([]));
        for (path, says) in [
            ("/docs", "absolute"),
            ("a/../b", "`..`"),
            (".git/hooks", "git's own"),
            ("", "empty"),
            ("docs/", "name in it is empty"),
            ("./docs", "a `.`"),
        ] {
            let refused = reserve(&lead, &tree(vec![]), ("child", "r"), &share(path, SharedAccess::Write, true)).unwrap_err();
            assert_eq!(refused.reason, RefusalReason::Invalid, "{path}");
            assert!(refused.message.starts_with("share[0]: ") && refused.message.contains(says), "{path}: {}", refused.message);
        }
        assert_eq!(reason(reserve(&lead, &tree(vec![]), ("child", "r"), &[])), Some(RefusalReason::Invalid));
        let whole = reserve(&lead, &tree(vec![]), ("child", "r"), &share(".", SharedAccess::Write, true)).unwrap_err();
        assert!(whole.reason == RefusalReason::NotLent && whole.message.contains("the whole tree"), "{}", whole.message);
        let many: Vec<SharedPath> = (0..65).flat_map(|n| share(&format!("d{n}"), SharedAccess::Write, true)).collect();
        assert_eq!(reason(reserve(&lead, &tree(vec![]), ("child", "r"), &many)), Some(RefusalReason::Invalid));
    }

    #[test]
    fn c2_c26_without_a_delegation_of_paths_nothing_is_lent_and_a_program_lends_nothing() {
        let docs = share("docs", SharedAccess::Write, true);
        let refused = reserve(&lender(json!({})), &tree(vec![]), ("child", "r"), &docs).unwrap_err();
        assert_eq!(refused.reason, RefusalReason::NoDelegation);
        assert!(refused.message.contains("delegation"), "{}", refused.message);
        assert_eq!(
            reason(reserve(&lender(json!({ "delegation": {} })), &tree(vec![]), ("child", "r"), &docs)),
            Some(RefusalReason::NotLent)
        );
        let mut program = delegating(json!([write("docs")]), json!([]));
        assert!(lends(&program));
        program.spec.agent = serde_json::from_value(json!({ "command": ["agent"] })).unwrap();
        assert_eq!(reason(reserve(&program, &tree(vec![]), ("child", "r"), &docs)), Some(RefusalReason::NotLent));
        assert!(!lends(&program) && !lends(&lender(json!({ "delegation": {} }))));
    }

    #[test]
    fn c3_c4_only_what_delegation_and_scope_allow_is_lent() {
        let lead = delegating(json!([write("docs"), { "path": "src", "access": "Write", "recursive": false }]), json!([write("docs/api")]));
        let refused = |path, access, recursive| {
            let answer = reserve(&lead, &tree(vec![]), ("child", "r"), &share(path, access, recursive));
            answer.err().map(|refusal| (refusal.reason, refusal.message.contains("delegation")))
        };
        let outside = Some((RefusalReason::NotLent, true));
        assert_eq!(refused("lib", SharedAccess::Write, true), outside);
        assert_eq!(refused("docs", SharedAccess::Write, true), outside, "it overlaps what is denied");
        assert_eq!(refused("docs/guide", SharedAccess::Write, true), None);
        assert_eq!(refused("src", SharedAccess::Write, true), outside);
        assert_eq!(refused("src/parser", SharedAccess::Write, false), outside);
        assert_eq!(refused("src", SharedAccess::Write, false), None);
        let mut narrow = lead;
        narrow.spec.scope = serde_json::from_value(json!({ "allow": [write("src")] })).unwrap();
        let answer = reserve(&narrow, &tree(vec![]), ("child", "r"), &share("docs/guide", SharedAccess::Write, true));
        assert!(answer.unwrap_err().message.contains("may not do that itself"));
    }

    #[test]
    fn c5_c6_what_another_child_writes_is_not_lent_again_and_what_is_only_read_is() {
        let lead = delegating(json!([write(".")]), json!([]));
        let lent = reserve(&lead, &tree(vec![]), ("first", "r-1"), &share("docs", SharedAccess::Write, true)).unwrap();
        let claim = lent[0].clone();
        assert_eq!((claim.lender.name.as_str(), claim.holder.name.as_str(), claim.holder.uid.as_deref()), ("lead", "first", None));
        assert_eq!((claim.state, claim.lender.pod_uid.as_deref()), (yoi_crds::workspace::ClaimState::Reserved, Some("p-lead")));
        let refused = reserve(&lead, &tree(lent.clone()), ("second", "r-2"), &share("docs/api", SharedAccess::Write, true)).unwrap_err();
        assert_eq!(refused.reason, RefusalReason::PathHeld);
        assert!(refused.message.contains("first holds it") && refused.message.contains("docs/api"), "{}", refused.message);
        let read = reserve(&lead, &tree(lent.clone()), ("second", "r-2"), &share("docs", SharedAccess::Read, true)).unwrap();
        assert_eq!(read.len(), 2);
        let beside = reserve(&lead, &tree(lent.clone()), ("second", "r-2"), &share("src", SharedAccess::Write, true));
        assert_eq!(beside.unwrap().len(), 2);
        // What is back is lent again.
        let back = moved(&tree(lent), &claim.loan, &[ClaimState::Reserved], ClaimState::Released, None).unwrap();
        assert!(reserve(&lead, &tree(back), ("second", "r-2"), &share("docs/api", SharedAccess::Write, true)).is_ok());
    }

    #[test]
    fn c13_what_is_denied_to_the_parent_is_denied_to_the_child() {
        let mut lead = delegating(json!([write(".")]), json!([]));
        lead.spec.scope = serde_json::from_value(json!({ "allow": [write(".")], "deny": [write("docs/keys")] })).unwrap();
        let lent = reserve(&lead, &tree(vec![]), ("child", "r"), &share("docs", SharedAccess::Write, true)).unwrap();
        assert_eq!(serde_json::to_value(&lent[0].rules).unwrap()["deny"][0]["path"], "docs/keys");
    }

    #[test]
    fn only_the_agent_whose_pod_has_the_tree_lends_of_it_and_as_many_loans_as_the_list_takes() {
        let lead = delegating(json!([write(".")]), json!([]));
        let docs = share("docs", SharedAccess::Write, true);
        let mut other = tree(vec![]);
        other.status.get_or_insert_default().pod_uid = Some("p-other".to_owned());
        assert_eq!(reason(reserve(&lead, &other, ("child", "r"), &docs)), Some(RefusalReason::NotLent));
        let mut all = Vec::new();
        for n in 0..MAX_CLAIMS {
            let id = format!("r-{n}");
            all = reserve(&lead, &tree(all), ("child", &id), &share(&format!("d{n}"), SharedAccess::Write, true)).unwrap();
        }
        assert_eq!(reason(reserve(&lead, &tree(all.clone()), ("child", "r"), &docs)), Some(RefusalReason::Limit));
        let loan = all[3].loan.clone();
        let back = moved(&tree(all), &loan, &[ClaimState::Reserved], ClaimState::Released, Some("why")).unwrap();
        assert_eq!(back[3].message.as_deref(), Some("why"));
        let after = reserve(&lead, &tree(back), ("child", "r"), &docs).unwrap();
        assert!(after.len() == MAX_CLAIMS && after.iter().all(|claim| claim.loan != loan), "what is back makes room");
    }

    #[test]
    fn the_same_request_is_the_same_loan_and_a_claim_is_moved_only_from_the_state_that_was_meant() {
        let lead = delegating(json!([write(".")]), json!([]));
        let docs = share("docs", SharedAccess::Write, true);
        let request = |id| LoanRequest { lender: &lead, pod_uid: "p-lead", holder: "child", request_id: id, share: &docs };
        let tree = tree(request("r-1").reserve(&tree(vec![]), jiff::Timestamp::UNIX_EPOCH).unwrap());
        assert!(request("r-1").claim_of(&tree).is_some() && request("r-2").claim_of(&tree).is_none());
        let loan = request("r-1").loan();
        assert_eq!(moved(&tree, &loan, &[ClaimState::Fenced], ClaimState::Active, None), None);
        assert!(moved(&tree, &loan, &[ClaimState::Reserved], ClaimState::Fenced, None).is_some());
    }
}
