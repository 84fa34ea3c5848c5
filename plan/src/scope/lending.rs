//! What an agent may lend, whom that hinders, and what is left to it meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::{Access, Entry, Level, Rule, Rules, RulesError, TreePath, representatives};

/// Why paths cannot be lent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LendError {
    /// The agent has no delegation.
    #[error("failed to lend: the agent has no delegation; spec.delegation says what it may lend, and without one it lends nothing")]
    NoDelegation,
    /// The delegation does not allow it.
    #[error("failed to lend {access} on {path}: the agent's delegation does not allow it; ask for less, or have spec.delegation widened")]
    OutsideDelegation {
        /// Where.
        path: TreePath,
        /// What.
        access: &'static str,
    },
    /// The agent may not do it itself.
    #[error("failed to lend {access} on {path}: the agent may not do that itself; ask for less, or have spec.scope widened")]
    OutsideScope {
        /// Where.
        path: TreePath,
        /// What.
        access: &'static str,
    },
    /// With the denials of the lender there are too many rules.
    #[error(transparent)]
    Rules(#[from] RulesError),
}

/// The rules of the child to which an agent lends: what it asked for, and in addition what the agent itself is denied.
///
/// # Errors
/// The delegation or the agent's own scope does not allow all of it. Nothing is narrowed silently but by the agent's own denials.
pub fn lend(scope: &Rules, delegation: Option<&Rules>, asked: &Rules) -> Result<Rules, LendError> {
    let delegation = delegation.ok_or(LendError::NoDelegation)?;
    if let Some(entry) = asked.beyond(delegation) {
        let access = access_at(asked, &entry);
        return Err(LendError::OutsideDelegation { path: entry.path, access });
    }
    let inherited = scope.deny.iter().filter(|rule| !asked.deny.contains(rule)).cloned();
    let lent = Rules::new(asked.allow.clone(), asked.deny.iter().cloned().chain(inherited).collect())?;
    match lent.beyond(scope) {
        Some(entry) => Err(LendError::OutsideScope { access: access_at(&lent, &entry), path: entry.path }),
        None => Ok(lent),
    }
}

fn access_at(rules: &Rules, entry: &Entry) -> &'static str {
    if rules.allows(entry, Access::Write) { "Write" } else { "Read" }
}

/// Paths of one tree that an agent holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loan {
    /// Names the loan for ever: no two have the same.
    pub id: String,
    /// The agent that lent.
    pub lender: String,
    /// The agent that holds.
    pub holder: String,
    /// What it may do.
    pub rules: Rules,
}

/// Another agent already holds what is to be lent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to lend Write on {path}: {holder} holds it; wait until it has ended, stop it, or lend another path")]
pub struct Conflict {
    /// Where.
    pub path: TreePath,
    /// Who holds it; where it lent it on, who holds it in the end.
    pub holder: String,
    /// By which loan.
    pub loan: String,
}

/// The loan that hinders another one: both would let somebody write at one place. Rules that only let read hinder nobody.
///
/// Of several, it is the one that was lent on most often; of those, the first by its id. A loan that has the id of the wanted one is that one, claimed before,
/// and the loans by which the lender itself holds its paths do not hinder it.
#[must_use]
pub fn conflict(loans: &[Loan], wanted: &Loan) -> Option<Conflict> {
    let own = chain(loans, &wanted.lender);
    let others = loans.iter().filter(|loan| loan.id != wanted.id && !own.contains(&loan.id));
    let found = others.filter_map(|loan| Some((loan, both_write(&loan.rules, &wanted.rules)?)));
    let (loan, path) = found.max_by_key(|(loan, _)| (chain(loans, &loan.lender).len(), std::cmp::Reverse(&loan.id)))?;
    Some(Conflict { path, holder: loan.holder.clone(), loan: loan.id.clone() })
}

/// The loans by which an agent holds its paths: those to it, those to its lenders, and so on.
fn chain<'a>(loans: &'a [Loan], holder: &'a str) -> BTreeSet<&'a String> {
    let (mut found, mut holders) = (BTreeSet::new(), vec![holder]);
    while let Some(holder) = holders.pop() {
        for loan in loans.iter().filter(|loan| loan.holder == holder) {
            if found.insert(&loan.id) {
                holders.push(&loan.lender);
            }
        }
    }
    found
}

fn both_write(one: &Rules, other: &Rules) -> Option<TreePath> {
    let writes = |rules: &Rules, entry: &Entry| rules.level(entry) == Level::Write;
    representatives(one.paths().chain(other.paths())).into_iter().find(|entry| writes(one, entry) && writes(other, entry)).map(|e| e.path)
}

/// What is left to an agent: its scope, without what it has lent. Denials of its scope are kept apart from loans, so that no release takes one away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    scope: Rules,
    lent: BTreeMap<String, Rules>,
}

impl View {
    /// Of an agent that has lent nothing.
    #[must_use]
    pub fn new(scope: Rules) -> Self {
        Self { scope, lent: BTreeMap::new() }
    }

    /// Takes away what a loan lets be written. Said again with the same id, it changes nothing.
    pub fn take(&mut self, loan: &str, rules: &Rules) {
        self.lent.entry(loan.to_owned()).or_insert_with(|| rules.clone());
    }

    /// Gives back what a loan took. Said again, or of a loan that was never made, it changes nothing and returns false.
    pub fn release(&mut self, loan: &str) -> bool {
        self.lent.remove(loan).is_some()
    }

    /// Whether this may be done at an entry of the tree.
    #[must_use]
    pub fn allows(&self, entry: &Entry, access: Access) -> bool {
        self.level(entry) >= Level::of(access)
    }

    pub(super) fn level(&self, entry: &Entry) -> Level {
        match self.scope.level(entry) {
            Level::Write if self.lent.values().any(|rules| rules.level(entry) == Level::Write) => Level::Read,
            level => level,
        }
    }

    /// The rules of the loans.
    pub(super) fn lent(&self) -> impl Iterator<Item = &Rules> {
        self.lent.values()
    }

    pub(super) fn rules(&self) -> impl Iterator<Item = &Rule> {
        let all = std::iter::once(&self.scope).chain(self.lent());
        all.flat_map(|rules| rules.allow.iter().chain(&rules.deny))
    }
}
