//! Closes paths of a tree to the Pods of an agent that lends them, and opens them again, while the Pods run.

use yoi_crds::AgentWorkspace;
use yoi_crds::pod::Scope;
use yoi_crds::workspace::LoanView;
use yoi_workspace::mount::Cover;
use yoi_workspace::{CloneAccess, ErrorReason, Uid};

use super::error::Error;
use super::state::ShimState;
use crate::decide::loans::{self, HolderAdmission, LendingVolume, NodeLoan};
use crate::mounter::client::MounterFailure;
use crate::mounter::protocol::{MountedContent, MounterRefusal, PublishedMount};
use crate::volume::{Lending, PodVolume, PublishRecord, PublishedVolume};

/// How the loans of a tree stand on this node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct LoanReport {
    /// For the status, sorted by loan.
    pub views: Vec<LoanView>,
    /// Something is to be tried again, although nothing changes.
    pub retry: bool,
}

/// Brings what the lender's Pods of this node see of a tree into agreement with the claims on it.
///
/// # Errors
/// The mounter does not answer. What it was asked for may be done.
pub async fn settle(state: &ShimState, ws: &AgentWorkspace, uid: Uid) -> Result<LoanReport, Error> {
    let _loans = state.loan_locks.lock(uid).await;
    settle_locked(state, ws, uid).await
}

/// What is known of a tree that is lent from.
struct Lent {
    lenders: Vec<LendingVolume>,
    records: Vec<PublishRecord>,
    shown: Vec<PublishedMount>,
}

async fn settle_locked(state: &ShimState, ws: &AgentWorkspace, uid: Uid) -> Result<LoanReport, Error> {
    let records = state.publish_records.of_tree(uid);
    let (all, lenders) = (loans::on_node(Some(ws), &records), loans::lenders(&records));
    // Of nearly all trees nothing is ever lent: they cost nothing.
    if all.is_empty() && lenders.iter().all(|lender| state.views.is(&lender.volume, &loans::view(&lender.scope, []))) {
        return Ok(LoanReport::default());
    }
    let shown = shown_of_tree(state, uid).await?;
    let lenders: Vec<LendingVolume> =
        lenders.into_iter().filter(|lender| shown.iter().any(|mount| mount.volume == lender.volume)).collect();
    let lent = Lent { lenders, records, shown };
    let strangers = loans::strangers(&lent.lenders, &all, &lent.records, &lent.shown);
    let hindrance = loans::hindrance(ws, &strangers);
    let mut report = LoanReport::default();
    let mut closed: Vec<&NodeLoan> = all.iter().filter(|loan| loan.is_settled).collect();
    let broken = cover(state, &lent, &closed, false).await?.err().map(|refused| refused.message);
    if let Some(why) = &broken {
        tracing::error!(why, "paths that are lent are not closed");
        report.retry = true;
    }
    let why_not = broken.or(hindrance);
    for loan in &all {
        let refused = match (&why_not, loan.is_settled) {
            (Some(why), _) => Some(why.clone()),
            (None, true) => None,
            (None, false) if lent.lenders.is_empty() => Some(loans::NOBODY_LENDS.to_owned()),
            (None, false) => {
                closed.push(loan);
                let refused = cover(state, &lent, &closed, true).await?.err();
                if let Some(refused) = &refused {
                    tracing::warn!(loan = loan.loan, why = refused.message, "paths cannot be lent");
                    closed.pop();
                    report.retry |= !matches!(refused.reason, ErrorReason::CoverRefused | ErrorReason::TreeTooDeep);
                }
                refused.map(|refused| refused.message)
            }
        };
        report.views.push(loans::report(loan, refused.as_deref()));
    }
    // Their end makes this run again.
    if strangers.is_empty() {
        report.retry |= !uncover(state, &lent, &closed).await?;
    }
    Ok(report)
}

async fn shown_of_tree(state: &ShimState, uid: Uid) -> Result<Vec<PublishedMount>, Error> {
    let mut shown = state.mounter.mounts().await?.shown;
    shown.retain(|mount| mount.what == MountedContent::Tree(uid));
    Ok(shown)
}

fn access(lent: &Lent, volume: &PodVolume) -> CloneAccess {
    lent.records.iter().find(|record| record.volume == *volume).map_or(CloneAccess::ReadOnly, |record| record.shows.access())
}

/// Closes these loans to all Pods of the lender. The inner error: one of the views cannot be had.
async fn cover(state: &ShimState, lent: &Lent, closed: &[&NodeLoan], check_names: bool) -> Result<Result<(), MounterRefusal>, Error> {
    for lender in &lent.lenders {
        let view = loans::view(&lender.scope, closed.iter().copied());
        if state.views.is(&lender.volume, &view) {
            continue;
        }
        state.views.forget(&lender.volume);
        match state.mounter.cover(lender.volume.clone(), access(lent, &lender.volume), view, check_names).await {
            Ok(()) => {}
            Err(MounterFailure::Refused(refused)) => {
                state.note_refusal(&refused);
                return Ok(Err(refused));
            }
            Err(failure @ (MounterFailure::Transport(_) | MounterFailure::Protocol)) => return Err(failure.into()),
        }
    }
    Ok(Ok(()))
}

/// Opens what these loans do not close. False: it is to be tried again.
async fn uncover(state: &ShimState, lent: &Lent, closed: &[&NodeLoan]) -> Result<bool, Error> {
    let mut all_done = true;
    for lender in &lent.lenders {
        let view = loans::view(&lender.scope, closed.iter().copied());
        if state.views.is(&lender.volume, &view) {
            continue;
        }
        match state.mounter.uncover(lender.volume.clone(), access(lent, &lender.volume), view.clone()).await {
            Ok(()) => state.views.set(lender.volume.clone(), view),
            Err(MounterFailure::Refused(refused)) => {
                tracing::warn!(volume = %lender.volume, why = refused.message, "paths that are back are not opened; tried again");
                all_done = false;
            }
            Err(failure @ (MounterFailure::Transport(_) | MounterFailure::Protocol)) => return Err(failure.into()),
        }
    }
    Ok(all_done)
}

/// How a tree is mounted for a Pod, with regard to loans.
#[derive(Debug, PartialEq, Eq)]
pub struct LentMount {
    /// What is laid over it.
    pub covers: Vec<Cover>,
    /// For the record.
    pub lending: Option<Box<Lending>>,
    /// The Pod has it mounted and may run: nothing is to be shown to it that it does not see.
    pub is_in_use: bool,
}

/// How a tree is to be mounted for a Pod whose volume asks for `covers` and has the attribute that its agent may lend. The lock of the tree's loans is held.
///
/// # Errors
/// [`Error::Lent`]: not now.
pub async fn mount_of(
    state: &ShimState,
    volume: &PodVolume,
    tree: Uid,
    covers: Vec<Cover>,
    lends: Option<Scope>,
) -> Result<LentMount, Error> {
    let (ws, before) = (state.workspaces.get(tree), state.publish_records.get(volume).map(|record| record.shows));
    let holds = before.as_ref().and_then(PublishedVolume::lending);
    if let Some(scope) = lends {
        let is_in_use = before.is_some() && shown_of_tree(state, tree).await?.iter().any(|mount| mount.volume == *volume);
        let Some(ws) = &ws else {
            // Where it is mounted it has what it had. Else nobody knows what is to be closed.
            let why = "the API server has not said yet which paths of the tree are lent";
            return if is_in_use {
                Ok(LentMount { covers: Vec::new(), lending: holds.cloned().map(Box::new), is_in_use })
            } else {
                Err(Error::Lent(why.to_owned()))
            };
        };
        let lending = Lending::Lends { scope };
        let record = PublishRecord {
            volume: volume.clone(),
            shows: PublishedVolume::Tree { tree, read_only: false, covers: 0, lending: Some(Box::new(lending.clone())) },
        };
        let all = loans::on_node(Some(ws), &state.publish_records.of_tree(tree));
        let scope = loans::lenders(std::slice::from_ref(&record)).into_iter().next().map(|lender| lender.scope);
        let covers = scope.map(|scope| loans::view(&scope, all.iter().filter(|loan| loan.is_settled))).unwrap_or_default();
        return Ok(LentMount { covers, lending: Some(Box::new(lending)), is_in_use });
    }
    let is_mounted = match holds {
        Some(Lending::Holds { .. }) => shown_of_tree(state, tree).await?.iter().any(|mount| mount.volume == *volume),
        Some(Lending::Lends { .. }) | None => false,
    };
    if let Some(HolderAdmission::Admit { loan, covers, rules }) =
        ws.as_deref().filter(|_| !is_mounted).and_then(|ws| loans::holder_admission(ws, volume.pod))
    {
        // What the status says was so. This is so now, and stays so while the lock is held. The record has a later Pod of the lender covered.
        let report = match &ws {
            Some(ws) => settle_locked(state, ws, tree).await?,
            None => LoanReport::default(),
        };
        let is_covered = report.views.iter().any(|view| view.loan == loan && view.covered);
        let shown = shown_of_tree(state, tree).await?;
        if let Some(other) = loans::other_writer(&loan, &rules, volume, &state.publish_records.of_tree(tree), &shown) {
            return Err(Error::Lent(format!("a Pod that holds by loan {other} what loan {loan} lends is not gone from this node yet")));
        }
        return match is_covered {
            true => Ok(LentMount { covers, lending: Some(Box::new(Lending::Holds { loan, rules })), is_in_use: false }),
            false => Err(Error::Lent(format!("loan {loan} is not closed to its lender"))),
        };
    }
    match holds {
        Some(Lending::Holds { loan, rules }) => {
            // The kubelet asks again for what runs. After a reboot nothing is mounted, and the claim counts.
            let rules_read = yoi_plan::scope::rules(rules).ok().filter(|_| is_mounted);
            let Some(read) = rules_read else { return Err(Error::Lent(format!("loan {loan} does not let this Pod mount the tree"))) };
            Ok(LentMount { covers: loans::view(&read, []), lending: holds.cloned().map(Box::new), is_in_use: false })
        }
        Some(Lending::Lends { .. }) | None => Ok(LentMount { covers, lending: None, is_in_use: false }),
    }
}
