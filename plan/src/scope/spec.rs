//! Rules and claims as objects and requests have them, and the covers that hold a YoiPod's scope.

use yoi_crds::YoiPod;
use yoi_crds::pod::{Delegation, Scope, ScopeAccess, ScopeRule};
use yoi_crds::workspace::{self, Claim};
use yoi_wire::children::{SharedAccess, SharedPath};
use yoi_wire::cover;

use super::{Access, ClaimState, Cover, Entry, EntryKind, Loan, Rule, Rules, Shown, TreePath, View};

/// The rules of a scope.
///
/// # Errors
/// Which rule is none, and why.
pub fn rules(scope: &Scope) -> Result<Rules, String> {
    let rules = read(scope, "spec.scope")?;
    if rules.hides(&Entry { path: TreePath::root(), kind: EntryKind::Folder }) {
        return Err("spec.scope.deny: the whole tree would be hidden from its agent; name what is to be hidden".to_owned());
    }
    Ok(rules)
}

/// What an agent may do in its tree: its scope, or everything.
#[must_use]
pub fn scope_of(yoipod: &YoiPod) -> Scope {
    yoipod.spec.scope.as_deref().cloned().unwrap_or_else(|| (&Rules::whole_tree()).into())
}

/// What may be lent; none where a delegation names no path.
///
/// # Errors
/// Which rule is none, and why.
pub fn delegated(delegation: &Delegation) -> Result<Option<Rules>, String> {
    delegation.rules().map(|rules| read(&rules, "spec.delegation")).transpose()
}

/// The rules that a request for a loan asks for.
///
/// # Errors
/// Which path is none, and why.
pub fn shared(share: &[SharedPath]) -> Result<Rules, String> {
    let rule = |(index, shared): (usize, &SharedPath)| {
        let SharedPath { path, access, recursive } = shared;
        let path = TreePath::parse(path.as_bytes()).map_err(|why| format!("share[{index}]: {why}"))?;
        let access = match access {
            SharedAccess::Read => Access::Read,
            SharedAccess::Write => Access::Write,
        };
        Ok(Rule { path, access, recursive: *recursive })
    };
    let allow = share.iter().enumerate().map(rule).collect::<Result<_, String>>()?;
    Rules::new(allow, Vec::new()).map_err(|why| format!("share: {why}"))
}

/// The loans of a tree whose paths are not back. One whose rules this version cannot read holds the whole tree.
#[must_use]
pub fn held_loans(claims: &[Claim]) -> Vec<Loan> {
    let held = claims.iter().filter(|claim| claim_state(claim.state).is_none_or(ClaimState::is_held));
    let loan = |claim: &Claim| Loan {
        id: claim.loan.clone(),
        lender: claim.lender.name.clone(),
        holder: claim.holder.name.clone(),
        rules: read(&claim.rules, "rules").unwrap_or_else(|_| Rules::whole_tree()),
    };
    held.map(loan).collect()
}

/// The state of a claim; none for one of another version.
#[must_use]
pub fn claim_state(state: workspace::ClaimState) -> Option<ClaimState> {
    match state {
        workspace::ClaimState::Reserved => Some(ClaimState::Reserved),
        workspace::ClaimState::Fenced => Some(ClaimState::Fenced),
        workspace::ClaimState::Active => Some(ClaimState::Active),
        workspace::ClaimState::Reclaiming => Some(ClaimState::Reclaiming),
        workspace::ClaimState::Released => Some(ClaimState::Released),
        workspace::ClaimState::Unknown => None,
    }
}

impl From<ClaimState> for workspace::ClaimState {
    fn from(state: ClaimState) -> Self {
        match state {
            ClaimState::Reserved => Self::Reserved,
            ClaimState::Fenced => Self::Fenced,
            ClaimState::Active => Self::Active,
            ClaimState::Reclaiming => Self::Reclaiming,
            ClaimState::Released => Self::Released,
        }
    }
}

impl From<&Rules> for Scope {
    fn from(rules: &Rules) -> Self {
        let list = |rules: &[Rule]| rules.iter().map(of_rule).collect();
        Scope { allow: list(rules.allow()), deny: list(rules.deny()) }
    }
}

fn of_rule(rule: &Rule) -> ScopeRule {
    let Rule { path, access, recursive } = rule;
    let access = match access {
        Access::Read => ScopeAccess::Read,
        Access::Write => ScopeAccess::Write,
    };
    ScopeRule { path: path.to_string(), access, recursive: *recursive }
}

/// `field` is where the rules stand.
fn read(scope: &Scope, field: &str) -> Result<Rules, String> {
    let Scope { allow, deny } = scope;
    let read = |list: &str, rules: &[ScopeRule]| -> Result<Vec<Rule>, String> {
        rules.iter().enumerate().map(|(index, rule)| read_rule(rule).map_err(|why| format!("{field}.{list}[{index}]: {why}"))).collect()
    };
    Rules::new(read("allow", allow)?, read("deny", deny)?).map_err(|why| format!("{field}: {why}"))
}

fn read_rule(rule: &ScopeRule) -> Result<Rule, String> {
    let ScopeRule { path, access, recursive } = rule;
    let access = match access {
        ScopeAccess::Read => Access::Read,
        ScopeAccess::Write => Access::Write,
        ScopeAccess::Unknown => return Err(format!("access is {access}")),
    };
    let path = TreePath::parse(path.as_bytes()).map_err(|why| why.to_string())?;
    Ok(Rule { path, access, recursive: *recursive })
}

/// What the node lays over an agent's tree; nothing for an agent that may write the whole tree.
///
/// # Errors
/// Which rule is none, and why.
pub fn covers(yoipod: &YoiPod) -> Result<Vec<cover::Cover>, String> {
    let Some(scope) = yoipod.spec.scope.as_deref() else { return Ok(Vec::new()) };
    Ok(View::new(rules(scope)?).covers().into_iter().map(of_wire).collect())
}

fn of_wire(cover: Cover) -> cover::Cover {
    let shown = |shown| match shown {
        Shown::Writable => cover::Shown::Writable,
        Shown::ReadOnly => cover::Shown::ReadOnly,
        Shown::Hidden => cover::Shown::Hidden,
    };
    let Cover { path, shown: as_folder, shown_file, folders } = cover;
    cover::Cover { path: path.to_string(), shown: shown(as_folder), shown_file: shown_file.map(shown), folders: folders.map(shown) }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn covers_of(scope: Value) -> Result<Value, String> {
        let agent: YoiPod = serde_json::from_value(json!({
            "apiVersion": "yoi.dev/v1alpha1", "kind": "YoiPod", "metadata": { "name": "a", "namespace": "n", "uid": "u" },
            "spec": { "projectRef": { "name": "p" }, "agent": { "builtin": {} }, "scope": scope },
        }))
        .unwrap();
        covers(&agent).map(|covers| serde_json::to_value(covers).unwrap())
    }

    #[test]
    fn an_agent_that_may_write_the_whole_tree_has_no_covers() {
        assert_eq!(covers_of(Value::Null), Ok(json!([])));
        assert_eq!(covers_of(json!({ "allow": [{ "path": ".", "access": "Write" }] })), Ok(json!([])));
    }

    #[test]
    fn what_no_rule_opens_is_read_only_and_what_is_denied_is_closed_below_what_is_open() {
        let some = json!({ "allow": [{ "path": "src", "access": "Write" }], "deny": [{ "path": "src/vendor", "access": "Write" }] });
        let expected = json!([
            { "path": ".", "shown": "ReadOnly" },
            { "path": "src", "shown": "Writable" },
            { "path": "src/vendor", "shown": "ReadOnly" },
        ]);
        assert_eq!(covers_of(some), Ok(expected));
        let most = json!({ "allow": [{ "path": ".", "access": "Write" }], "deny": [{ "path": "conf/keys", "access": "Read" }] });
        let expected = json!([{ "path": "conf", "shown": "Writable" }, { "path": "conf/keys", "shown": "Hidden" }]);
        assert_eq!(covers_of(most), Ok(expected), "the folder above cannot be renamed");
        let here = json!({ "allow": [{ "path": "docs", "access": "Write", "recursive": false }] });
        let expected = json!([{ "path": ".", "shown": "ReadOnly" }, { "path": "docs", "shown": "Writable", "folders": "ReadOnly" }]);
        assert_eq!(covers_of(here), Ok(expected));
    }

    #[test]
    fn a_rule_that_is_none_is_named_with_its_place() {
        let write = |path: &str| json!({ "path": path, "access": "Write" });
        for (scope, line) in [
            (json!({ "allow": [] }), "spec.scope: failed to read the rules: none allows anything"),
            (json!({ "allow": [write("src"), write("/etc")] }), "spec.scope.allow[1]: failed to read the path \"/etc\": it is absolute"),
            (json!({ "allow": [write("a/../b")] }), "spec.scope.allow[0]: failed to read the path \"a/../b\": it has a `..`"),
            (
                json!({ "allow": [write(".")], "deny": [write(".git/hooks")] }),
                "spec.scope.deny[0]: failed to read the path \".git/hooks\": git's own",
            ),
            (
                json!({ "allow": [write(".")], "deny": [{ "path": ".", "access": "Read" }] }),
                "spec.scope.deny: the whole tree would be hidden",
            ),
            (json!({ "allow": [{ "path": "a", "access": "Append" }] }), "spec.scope.allow[0]: access is a word of another version"),
        ] {
            let error = covers_of(scope.clone()).unwrap_err();
            assert!(error.starts_with(line), "{scope}: {error}");
        }
    }
}
