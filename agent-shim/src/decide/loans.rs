//! What the Pods of this node may see of a tree while paths of it are lent.
//!
//! # Guarantees
//! * Whoever lends has what is lent covered from before the loan is said to be covered until it is back and no Pod of its holder has the tree mounted.
//! * A holder's Pod mounts the tree only by a claim that is Active and names it, while every Pod of the lender that is there has the paths covered, and while
//!   no other Pod has mounted what it is to write. Where there is no Pod of the lender, as of one that rests, the next one has them covered from its start.
//!
//! A view of the API server may be an old one. What this node has mounted is not: a loan counts for as long as the tree is mounted by it.

use yoi_crds::AgentWorkspace;
use yoi_crds::pod::Scope;
use yoi_crds::workspace::{Claim, ClaimState, LoanView, MAX_LOAN_MESSAGE};
use yoi_plan::scope::{self, Rules, View};
use yoi_workspace::Uid;
use yoi_workspace::mount::{Cover, Shown};

use crate::mounter::protocol::PublishedMount;
use crate::volume::{Lending, PodVolume, PublishRecord};

/// A loan that counts on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeLoan {
    /// Its id.
    pub loan: String,
    /// What its holder may do. Rules that this version cannot read are all that can be done.
    pub rules: Rules,
    /// Somebody may count on the paths being closed. Else nobody was told yet that they are.
    pub is_settled: bool,
}

/// A volume whose Pod's agent may lend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LendingVolume {
    /// The volume.
    pub volume: PodVolume,
    /// What the agent may do itself.
    pub scope: Rules,
}

fn claims(ws: &AgentWorkspace) -> &[Claim] {
    ws.status.as_ref().map(|status| status.claims.as_slice()).unwrap_or_default()
}

/// Whether the paths of a claim are not back. One of another version holds them, too.
fn is_held(claim: &Claim) -> bool {
    claim.state != ClaimState::Released
}

fn readable(rules: &Scope) -> Rules {
    scope::rules(rules).unwrap_or_else(|_| Rules::whole_tree())
}

/// The names of agents that hold paths of the tree.
#[must_use]
pub fn holders(ws: &AgentWorkspace) -> Option<String> {
    let names: Vec<&str> = claims(ws).iter().filter(|claim| is_held(claim)).map(|claim| claim.holder.name.as_str()).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The loans that count on this node: those of claims that are held, and those by which Pods of this node have the tree mounted. Sorted by id.
#[must_use]
pub fn on_node(ws: Option<&AgentWorkspace>, records: &[PublishRecord]) -> Vec<NodeLoan> {
    let said =
        |loan: &str| ws.and_then(|ws| ws.status.as_ref()).is_some_and(|s| s.loans.iter().any(|view| view.loan == loan && view.covered));
    let of_claim = |claim: &Claim| NodeLoan {
        loan: claim.loan.clone(),
        rules: readable(&claim.rules),
        is_settled: claim.state != ClaimState::Reserved || said(&claim.loan),
    };
    let mut all: Vec<NodeLoan> = ws.map(claims).unwrap_or_default().iter().filter(|claim| is_held(claim)).map(of_claim).collect();
    for record in records {
        if let Some(Lending::Holds { loan, rules }) = record.shows.lending() {
            match all.iter_mut().find(|known| known.loan == *loan) {
                Some(known) => known.is_settled = true,
                None => all.push(NodeLoan { loan: loan.clone(), rules: readable(rules), is_settled: true }),
            }
        }
    }
    all.sort_by(|a, b| a.loan.cmp(&b.loan));
    all
}

/// The volumes whose agents may lend.
#[must_use]
pub fn lenders(records: &[PublishRecord]) -> Vec<LendingVolume> {
    let lender = |record: &PublishRecord| match record.shows.lending() {
        Some(Lending::Lends { scope }) => Some(LendingVolume { volume: record.volume.clone(), scope: readable(scope) }),
        Some(Lending::Holds { .. }) | None => None,
    };
    records.iter().filter_map(lender).collect()
}

/// What is left to an agent that has lent these.
#[must_use]
pub fn view<'a>(scope: &Rules, loans: impl IntoIterator<Item = &'a NodeLoan>) -> Vec<Cover> {
    let mut view = View::new(scope.clone());
    loans.into_iter().for_each(|loan| view.take(&loan.loan, &loan.rules));
    view.covers().into_iter().map(of_plan).collect()
}

fn of_plan(cover: scope::Cover) -> Cover {
    let shown = |shown| match shown {
        scope::Shown::Writable => Shown::Writable,
        scope::Shown::ReadOnly => Shown::ReadOnly,
        scope::Shown::Hidden => Shown::Hidden,
    };
    let scope::Cover { path, shown: as_folder, shown_file, folders } = cover;
    Cover { path: path.to_string().into(), shown: shown(as_folder), shown_file: shown_file.map(shown), folders: folders.map(shown) }
}

/// Whether a Pod may mount the tree by a loan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HolderAdmission {
    /// It may, once the lender's Pod is seen to have the paths covered.
    Admit {
        /// Id of the loan.
        loan: String,
        /// What it sees.
        covers: Vec<Cover>,
        /// What its agent may do.
        rules: Scope,
    },
    /// Not yet.
    Wait(String),
    /// No.
    Deny(String),
}

/// Whether the Pod may mount the tree by a loan. `None`: no claim names it.
#[must_use]
pub fn holder_admission(ws: &AgentWorkspace, pod: Uid) -> Option<HolderAdmission> {
    let pod = pod.to_string();
    let claim = claims(ws).iter().find(|claim| claim.holder.pod_uid.as_deref() == Some(&*pod))?;
    let (loan, lender) = (&claim.loan, &claim.lender.name);
    Some(match claim.state {
        ClaimState::Active => {
            let report = ws.status.as_ref().and_then(|status| status.loans.iter().find(|view| view.loan == *loan));
            match (report, scope::rules(&claim.rules)) {
                (_, Err(why)) => HolderAdmission::Deny(format!("the rules of loan {loan} cannot be read: {why}")),
                (Some(LoanView { covered: true, .. }), Ok(rules)) => {
                    HolderAdmission::Admit { loan: loan.clone(), covers: view(&rules, []), rules: claim.rules.clone() }
                }
                (Some(LoanView { message: Some(why), .. }), Ok(_)) => {
                    HolderAdmission::Wait(format!("loan {loan} is not closed to {lender}: {why}"))
                }
                (Some(LoanView { message: None, .. }) | None, Ok(_)) => {
                    HolderAdmission::Wait(format!("loan {loan} is not closed to {lender} yet"))
                }
            }
        }
        ClaimState::Reserved | ClaimState::Fenced | ClaimState::Unknown => HolderAdmission::Wait(format!("loan {loan} is not Active yet")),
        ClaimState::Reclaiming | ClaimState::Released => HolderAdmission::Deny(format!("loan {loan} is over")),
    })
}

/// The loan by which another Pod of this node has the tree mounted and can write where this loan lets its holder write. The object of that Pod may be gone, and
/// the loan released, while its containers are not: somebody deleted it by force when the node did not answer.
#[must_use]
pub fn other_writer(loan: &str, rules: &Scope, volume: &PodVolume, records: &[PublishRecord], shown: &[PublishedMount]) -> Option<String> {
    let as_loan = |id: &str, rules: &Scope, volume: &PodVolume| scope::Loan {
        id: id.to_owned(),
        // Holders lend nothing on.
        lender: String::new(),
        holder: volume.pod.to_string(),
        rules: readable(rules),
    };
    let holds = |record: &PublishRecord| match record.shows.lending() {
        Some(Lending::Holds { loan, rules }) => Some(as_loan(loan, rules, &record.volume)),
        Some(Lending::Lends { .. }) | None => None,
    };
    let is_other = |record: &&PublishRecord| record.volume != *volume && shown.iter().any(|mount| mount.volume == record.volume);
    let others: Vec<scope::Loan> = records.iter().filter(is_other).filter_map(holds).collect();
    scope::conflict(&others, &as_loan(loan, rules, volume)).map(|conflict| conflict.loan)
}

/// Why what is lent of a tree cannot be said to be closed on this node; `None`: nothing hinders. `strangers` are those of [`strangers`].
#[must_use]
pub fn hindrance(ws: &AgentWorkspace, strangers: &[PodVolume]) -> Option<String> {
    let owner = ws.status.as_ref().and_then(|status| status.pod_uid.as_deref());
    let pod = strangers.first()?.pod.to_string();
    Some(match owner == Some(&*pod) {
        true => "the lender's Pod was started before its agent might lend: start the agent anew".to_owned(),
        false => format!("the Pod with UID {pod} can write the tree, and paths are not closed to it: delete that Pod"),
    })
}

/// Why nothing is lent anew where no Pod of the lender is: what is at a path, and whether it can be closed, is seen only in such a Pod's view.
pub const NOBODY_LENDS: &str = "no Pod of the lender has the tree mounted on its node";

/// The volumes by which a Pod can write the tree, although it neither lends nor holds by a loan that counts. `shown` is what is mounted of the tree. While there
/// are any, no cover is taken off: a record that was lost may have been a holder's.
#[must_use]
pub fn strangers(lenders: &[LendingVolume], loans: &[NodeLoan], records: &[PublishRecord], shown: &[PublishedMount]) -> Vec<PodVolume> {
    let holds = |volume: &PodVolume| {
        let record = records.iter().find(|record| record.volume == *volume);
        match record.and_then(|record| record.shows.lending()) {
            Some(Lending::Holds { loan, .. }) => loans.iter().any(|known| known.loan == *loan),
            Some(Lending::Lends { .. }) | None => false,
        }
    };
    let is_stranger = |mount: &&PublishedMount| {
        mount.is_writable() && !lenders.iter().any(|lender| lender.volume == mount.volume) && !holds(&mount.volume)
    };
    shown.iter().filter(is_stranger).map(|mount| mount.volume.clone()).collect()
}

/// What the status says of a loan.
#[must_use]
pub fn report(loan: &NodeLoan, why_not: Option<&str>) -> LoanView {
    let message = why_not.map(|why| why.chars().take(MAX_LOAN_MESSAGE as usize).collect());
    LoanView { loan: loan.loan.clone(), covered: why_not.is_none(), message }
}
