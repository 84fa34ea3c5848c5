//! Loans that do not come back, and loans whose paths are not closed to their lender.

use kube::ResourceExt;
use yoi_crds::AgentWorkspace;
use yoi_crds::workspace::{Claim, ClaimState};

use super::super::finding::Finding;
use super::super::observed::{ObservedCluster, display_name, listed};
use super::or_ok;

/// A loan begins within seconds, and is given up after two minutes. In seconds.
const GRACE_SECONDS: i64 = 180;

pub fn check(observed: &ObservedCluster) -> Vec<Finding> {
    // Without the agents every holder would be gone.
    let complete = observed.workspaces.is_ok() && observed.yoipods.is_ok();
    let trees = if complete { listed(&observed.workspaces) } else { &[] };
    let found: Vec<Finding> = trees.iter().flat_map(|tree| findings(observed, tree)).collect();
    or_ok(found, complete, "loans", || "every path that is lent has its holder".to_owned())
}

fn findings(observed: &ObservedCluster, tree: &AgentWorkspace) -> Vec<Finding> {
    let Some(status) = &tree.status else { return Vec::new() };
    let held = status.claims.iter().filter(|claim| claim.state != ClaimState::Released);
    let old = held.filter(|claim| claim.reserved_at.parse().map_or(i64::MAX, |at| observed.age(at)) >= observed.patience(GRACE_SECONDS));
    let finding = |claim: &Claim| {
        let why = why(observed, tree, claim)?;
        let command = format!("kubectl yoi scope {} -n {}", claim.lender.name, tree.namespace().unwrap_or_default());
        let what = format!("loan {} of {} to {} is {}: {why}", claim.loan, claim.lender.name, claim.holder.name, claim.state);
        Some(Finding::warning(display_name(tree), what, command))
    };
    old.filter_map(finding).collect()
}

fn why(observed: &ObservedCluster, tree: &AgentWorkspace, claim: &Claim) -> Option<String> {
    let status = tree.status.as_ref()?;
    let holder = listed(&observed.yoipods).iter().find(|agent| {
        let by = agent.spec.spawned_by.as_ref();
        agent.namespace() == tree.namespace() && by.is_some_and(|by| by.loan.as_deref() == Some(claim.loan.as_str()))
    });
    if holder.is_none() {
        return Some(
            "its holder is gone, and the paths are not back; the operator gives them back, unless it cannot reach the node".to_owned(),
        );
    }
    let view = status.loans.iter().find(|view| view.loan == claim.loan);
    match claim.state {
        ClaimState::Active if view.is_none_or(|view| !view.covered) => {
            let why = view.and_then(|view| view.message.clone()).unwrap_or_else(|| "its node does not say that they are".to_owned());
            Some(format!("the paths are not closed to its lender: {why}"))
        }
        ClaimState::Reserved | ClaimState::Fenced => Some("it has not begun".to_owned()),
        ClaimState::Reclaiming => {
            Some("a Pod of its holder is left, or its node does not answer; the paths come back once nothing is left there".to_owned())
        }
        ClaimState::Active | ClaimState::Released | ClaimState::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::check_named;
    use super::super::sample;
    use crate::commands::doctor::finding::Severity;

    fn found(state: &str, reserved_at: &str, covered: bool, holder: Option<&str>) -> Vec<(Severity, String)> {
        let mut observed = sample::healthy();
        let rules = json!({ "allow": [{ "path": "docs", "access": "Write" }] });
        let claim = json!({ "loan": "l", "lender": { "name": "lead", "uid": "u" }, "holder": { "name": "child" }, "rules": rules, "state": state,
            "reservedAt": reserved_at });
        let tree: Value = json!({ "metadata": { "name": "lead", "namespace": "ns", "uid": "t", "ownerReferences": [] }, "spec": { "source": { "empty": {} } },
            "status": { "claims": [claim], "loans": [{ "loan": "l", "covered": covered }] } });
        observed.workspaces.as_mut().unwrap().push(serde_json::from_value(tree).unwrap());
        if let Some(loan) = holder {
            let born = json!({ "name": "lead", "uid": "u", "requestId": "r", "loan": loan, "rules": rules });
            let child = json!({ "metadata": { "name": "child", "namespace": "ns", "uid": "c" },
                "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "spawnedBy": born } });
            observed.yoipods.as_mut().unwrap().push(serde_json::from_value(child).unwrap());
        }
        check_named(&observed, "loans").into_iter().map(|finding| (finding.severity, finding.message)).collect()
    }

    #[test]
    fn a_loan_whose_holder_is_gone_or_whose_paths_are_open_is_told_once_it_has_had_its_time() {
        const LONG_AGO: &str = "2026-11-21T11:00:00Z";
        let is_fine = |found: Vec<(Severity, String)>| found.iter().all(|(severity, _)| *severity == Severity::Ok);
        assert!(is_fine(found("Active", LONG_AGO, true, Some("l"))));
        assert!(is_fine(found("Reserved", "2026-11-21T11:59:50Z", false, None)));
        assert!(is_fine(found("Released", LONG_AGO, false, None)));
        for (state, covered, holder, says) in [
            ("Active", true, None, "its holder is gone"),
            ("Active", true, Some("another"), "its holder is gone"),
            ("Active", false, Some("l"), "not closed to its lender"),
            ("Fenced", true, Some("l"), "has not begun"),
            ("Reclaiming", true, Some("l"), "a Pod of its holder is left"),
        ] {
            let found = found(state, LONG_AGO, covered, holder);
            assert!(found.iter().any(|(severity, what)| *severity == Severity::Warning && what.contains(says)), "{state}: {found:?}");
        }
    }
}
