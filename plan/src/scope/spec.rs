//! The rules of a YoiPod's spec, and the covers that hold them.

use yoi_crds::YoiPod;
use yoi_crds::pod::{Scope, ScopeAccess, ScopeRule};
use yoi_wire::cover;

use super::{Access, Cover, Entry, EntryKind, Rule, Rules, Shown, TreePath, View};

/// The rules of a scope.
///
/// # Errors
/// Which rule is none, and why.
pub fn rules(scope: &Scope) -> Result<Rules, String> {
    let Scope { allow, deny } = scope;
    let read = |list: &str, rules: &[ScopeRule]| -> Result<Vec<Rule>, String> {
        rules.iter().enumerate().map(|(index, rule)| read_rule(rule).map_err(|why| format!("spec.scope.{list}[{index}]: {why}"))).collect()
    };
    let rules = Rules::new(read("allow", allow)?, read("deny", deny)?).map_err(|why| format!("spec.scope: {why}"))?;
    if rules.hides(&Entry { path: TreePath::root(), kind: EntryKind::Folder }) {
        return Err("spec.scope.deny: the whole tree would be hidden from its agent; name what is to be hidden".to_owned());
    }
    Ok(rules)
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
