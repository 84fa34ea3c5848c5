//! Names in the tree that other machines cannot hold or tell apart.

use yoi_worktree::{Captured, odd_names};

use super::clone::SyncedClone;
use crate::git::{CloneRefusal, refusal};
use crate::show::{one_line, quoted_path};

/// Paths that are named.
const NAMED: usize = 3;

/// Refuses what whoever takes the tree refuses, before anything is sent. `tell` gets what the person should know.
pub fn check(clone: &SyncedClone, captured: &Captured, tell: &mut dyn FnMut(String)) -> Result<(), CloneRefusal> {
    let odd = odd_names(clone.source(), clone.private(), captured)
        .map_err(|error| refusal(one_line(&yoi_wire::error_chain(&error)), "look at the repository: git fsck"))?;
    if let Some((path, why)) = odd.reserved.first() {
        let more = match odd.reserved.len() - 1 {
            0 => String::new(),
            more => format!(", and {more} more of this kind"),
        };
        let message = format!("{} is a name that not every machine of a team can hold: {why}{more}", quoted_path(path));
        return Err(refusal(message, "rename it, or let git ignore it: .gitignore, or .git/info/exclude for this clone alone"));
    }
    if !odd.alike.is_empty() {
        let named: Vec<String> =
            odd.alike.iter().take(NAMED).map(|(one, other)| format!("{} and {}", quoted_path(one), quoted_path(other))).collect();
        let more = if odd.alike.len() > NAMED { ", ..." } else { "" };
        tell(format!("this disk does not tell apart, and has one file for both: {}{more}", named.join(", ")));
    }
    Ok(())
}
