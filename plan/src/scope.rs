//! What rules about the paths of a tree mean: who may read or write where, what may be lent, and which covers show it to a Pod.
//!
//! The operator has the scope of an agent laid as covers, and the plugin shows it. The gateway lends by [`lend`] and [`conflict`], and it and the operator take a
//! claim from state to state by [`next`]. What is left to a lender is a [`View`], which its node lays.
//!
//! A rule names a path of the tree, an access, and whether it holds below that path too. Deny beats allow.
//!
//! | Rule | On | Means |
//! |---|---|---|
//! | allow Write | a path | it may be read and written |
//! | allow Read | a path | it may be read |
//! | deny Write | a path | it may not be written; whether it may be read, the other rules say |
//! | deny Read | a path, always with all below | it is hidden |
//! | recursive | | holds for the path and all below it |
//! | not recursive | | holds for the path and the files in it, and for no folder below it |
//!
//! What no rule allows may be neither read nor written, but it is not hidden: it is shown to be read, because an empty mount cannot have a path below it. An agent without a scope has [`Rules::whole_tree`]; one without a delegation
//! lends nothing.
//!
//! Symbolic links are not known here. Who lays a cover opens the path without following any.

mod claims;
mod covers;
mod lending;
mod path;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

pub use claims::{ClaimState, Holder, Seen, next};
pub use covers::{Cover, Shown};
pub use lending::{Conflict, LendError, Loan, View, conflict, lend};
pub use path::{PathError, TreePath};
pub use spec::{claim_state, covers, delegated, held_loans, rules, scope_of, shared};

/// The most rules of one scope, delegation or loan, allowed and denied together.
pub const MAX_RULES: usize = 64;

/// What a rule lets be done, or forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing. Whoever may write may read.
    Write,
}

/// One rule. Whether it allows or denies is said by the list of [`Rules`] that it stands in.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// The path that the rule is about.
    pub path: TreePath,
    /// What is allowed or denied there.
    pub access: Access,
    /// Whether the rule holds for all below the path, too.
    pub recursive: bool,
}

/// Rules that were checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    allow: Vec<Rule>,
    deny: Vec<Rule>,
}

/// Why rules are none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    /// There is no rule that allows anything.
    #[error("failed to read the rules: none allows anything; name a path, or `.` for the whole tree")]
    Empty,
    /// There are too many.
    #[error("failed to read the rules: there are {0}, and at most {MAX_RULES} are taken; name folders that hold several of the paths")]
    TooMany(usize),
    /// A folder would be hidden, and what is below it would not.
    #[error("failed to read the rule that denies Read on {0}: what is hidden hides all below it; make the rule recursive")]
    HiddenNotRecursive(TreePath),
}

impl Rules {
    /// Checks the number of rules and their combination. The order of rules means nothing.
    ///
    /// # Errors
    /// Why these are no rules.
    pub fn new(allow: Vec<Rule>, deny: Vec<Rule>) -> Result<Self, RulesError> {
        if allow.is_empty() {
            return Err(RulesError::Empty);
        }
        if allow.len() + deny.len() > MAX_RULES {
            return Err(RulesError::TooMany(allow.len() + deny.len()));
        }
        if let Some(rule) = deny.iter().find(|rule| rule.access == Access::Read && !rule.recursive) {
            return Err(RulesError::HiddenNotRecursive(rule.path.clone()));
        }
        Ok(Self { allow, deny })
    }

    /// The rules of an agent without a scope: it may write everywhere.
    #[must_use]
    pub fn whole_tree() -> Self {
        Self { allow: vec![Rule { path: TreePath::root(), access: Access::Write, recursive: true }], deny: Vec::new() }
    }

    /// What is allowed, where nothing denies it.
    #[must_use]
    pub fn allow(&self) -> &[Rule] {
        &self.allow
    }

    /// What is denied, whatever allows it.
    #[must_use]
    pub fn deny(&self) -> &[Rule] {
        &self.deny
    }

    /// Whether this may be done at an entry of the tree.
    #[must_use]
    pub fn allows(&self, entry: &Entry, access: Access) -> bool {
        self.level(entry) >= Level::of(access)
    }

    /// Whether the entry is hidden: it may be neither read nor listed.
    #[must_use]
    pub fn hides(&self, entry: &Entry) -> bool {
        self.level(entry) == Level::Hidden
    }

    /// The first entry, in the order of paths, where these rules allow what `wider` does not. None: they are narrower, or mean the same.
    #[must_use]
    pub fn beyond(&self, wider: &Self) -> Option<Entry> {
        let visible = |level: Level| level.max(Level::Closed);
        representatives(self.paths().chain(wider.paths()))
            .into_iter()
            .find(|entry| visible(self.level(entry)) > visible(wider.level(entry)))
    }

    fn level(&self, entry: &Entry) -> Level {
        let denied = |access| self.deny.iter().any(|rule| rule.access == access && rule.matches(entry));
        let allowed = self.allow.iter().filter(|rule| rule.matches(entry)).map(|rule| rule.access).max();
        match allowed {
            _ if denied(Access::Read) => Level::Hidden,
            None => Level::Closed,
            Some(Access::Write) if !denied(Access::Write) => Level::Write,
            Some(Access::Read | Access::Write) => Level::Read,
        }
    }

    fn paths(&self) -> impl Iterator<Item = &TreePath> {
        self.allow.iter().chain(&self.deny).map(|rule| &rule.path)
    }
}

impl Rule {
    fn matches(&self, entry: &Entry) -> bool {
        let Entry { path, kind } = entry;
        match (self.recursive, kind) {
            (true, EntryKind::File | EntryKind::Folder) => path.starts_with(&self.path),
            (false, EntryKind::Folder) => *path == self.path,
            (false, EntryKind::File) => *path == self.path || path.parent().as_ref() == Some(&self.path),
        }
    }
}

/// Something in a tree, whether it is there or not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Its path.
    pub path: TreePath,
    /// What it is.
    pub kind: EntryKind,
}

/// What an entry of a tree is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EntryKind {
    /// A folder.
    Folder,
    /// Anything else.
    File,
}

/// What may be done at an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    /// Read is denied.
    Hidden,
    /// No rule allows anything.
    Closed,
    Read,
    Write,
}

impl Level {
    fn of(access: Access) -> Self {
        match access {
            Access::Read => Level::Read,
            Access::Write => Level::Write,
        }
    }
}

/// Entries that stand for all entries of any tree: rules that name only these paths say the same of an entry as of one of these.
///
/// An entry whose path no rule names is below some path that one names, or below the root. Which rules match it depends on the nearest such path, on
/// whether it lies directly below that, and then on whether it is a file.
fn representatives<'a>(paths: impl Iterator<Item = &'a TreePath>) -> BTreeSet<Entry> {
    let mut named: BTreeSet<TreePath> = paths.cloned().collect();
    named.insert(TreePath::root());
    let mut entries = BTreeSet::new();
    for path in &named {
        let (below, far_below) = (path.unnamed_child(), path.unnamed_child().unnamed_child());
        let mut insert = |path: &TreePath, kind| entries.insert(Entry { path: path.clone(), kind });
        insert(path, EntryKind::Folder);
        // With something named below it, it is a folder.
        if !named.iter().any(|other| other != path && other.starts_with(path)) {
            insert(path, EntryKind::File);
        }
        insert(&below, EntryKind::Folder);
        insert(&below, EntryKind::File);
        insert(&far_below, EntryKind::File);
    }
    entries
}
