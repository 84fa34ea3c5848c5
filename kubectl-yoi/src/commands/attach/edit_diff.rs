//! What a tool call changes in a file, as lines of a difference.

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

/// The longest texts that are compared, in bytes: comparing takes time.
const MAX_COMPARED: usize = 256 * 1024;

/// One line of a difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffLine {
    pub kind: DiffKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffKind {
    Removed,
    Added,
    Kept,
}

/// Returns the difference that a call of Edit or Write makes: of Edit what it replaces, of Write all that it writes. Other calls have none.
pub fn edit_diff(tool: &str, args: &Value) -> Vec<DiffLine> {
    match tool {
        "Edit" => {
            // One replacement in the call itself, or several in a list.
            let one = std::slice::from_ref(args);
            let edits = args.get("edits").and_then(Value::as_array).map_or(one, Vec::as_slice);
            let of = |edit: &Value, field: &str| edit.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
            edits.iter().flat_map(|edit| compare(&of(edit, "old"), &of(edit, "new"))).collect()
        }
        "Write" => compare("", args.get("content").and_then(Value::as_str).unwrap_or_default()),
        _ => Vec::new(),
    }
}

fn compare(old: &str, new: &str) -> Vec<DiffLine> {
    let line = |kind, text: &str| DiffLine { kind, text: text.trim_end_matches(['\n', '\r']).to_owned() };
    if old.len() + new.len() > MAX_COMPARED {
        let removed = old.lines().map(|text| line(DiffKind::Removed, text));
        return removed.chain(new.lines().map(|text| line(DiffKind::Added, text))).collect();
    }
    let diff = TextDiff::from_lines(old, new);
    diff.iter_all_changes()
        .map(|change| {
            let kind = match change.tag() {
                ChangeTag::Delete => DiffKind::Removed,
                ChangeTag::Insert => DiffKind::Added,
                ChangeTag::Equal => DiffKind::Kept,
            };
            line(kind, change.value())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn marked(tool: &str, args: Value) -> Vec<String> {
        let mark = |kind| match kind {
            DiffKind::Removed => '-',
            DiffKind::Added => '+',
            DiffKind::Kept => ' ',
        };
        edit_diff(tool, &args).iter().map(|line| format!("{}{}", mark(line.kind), line.text)).collect()
    }

    #[test]
    fn an_edit_shows_what_it_replaces_once_or_several_times() {
        let one = json!({ "path": "a", "old": "x\ny\r\nz", "new": "x\nY\r\nz" });
        assert_eq!(marked("Edit", one), [" x", "-y", "+Y", " z"]);
        let several = json!({ "path": "a", "edits": [{ "old": "a", "new": "b" }, { "old": "c", "new": "" }] });
        assert_eq!(marked("Edit", several), ["-a", "+b", "-c"]);
        assert_eq!(marked("Write", json!({ "path": "a", "content": "n\nm\n" })), ["+n", "+m"]);
        assert!(marked("Shell", json!({ "command": "ls" })).is_empty());
        assert!(marked("Edit", json!("broken")).is_empty());
    }
}
