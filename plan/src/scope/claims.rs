//! The claims on a tree, `status.claims` of its AgentWorkspace: one for each loan of its paths, and how it goes from one state to the next.
//!
//! | State | The lender writes there | The holder writes there |
//! |---|---|---|
//! | Reserved | perhaps still | no |
//! | Fenced | no | no |
//! | Active | no | yes |
//! | Reclaiming | no | perhaps still |
//! | Released | yes | no |
//!
//! Each writer of the table reads it, takes what [`next`] says and writes that with the version that it has read: a write on top of another one is refused and
//! tried again. So a claim goes through its states in this order, whoever dies between two of them, and a state that was left never comes back.
//!
//! # What the node adds
//! Whoever reads the table may read an old one. So the node has the last word, because it alone lays covers and mounts trees:
//! * It mounts the tree for the holder only where the claim that it sees is Active, and its own cover lies in the view of the lender.
//! * It takes that cover off only where the claim that it sees is Released or gone, and it has the tree mounted for no Pod of the holder.
//!
//! An old Active at the node lets the holder mount only what is covered; then the cover stays for as long as that mount.

/// Where a loan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClaimState {
    /// The paths are the holder's from now on; the lender may still hold them.
    Reserved,
    /// The lender's view is covered, and nobody in it holds what was opened before.
    Fenced,
    /// The holder works.
    Active,
    /// The holder is to end, or never came up.
    Reclaiming,
    /// The lender has its paths back. The claim can be forgotten.
    Released,
}

/// What is known of a loan beside its claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The node says of this loan that the lender's view is covered and that nobody in it holds what was opened before.
    pub is_fenced: bool,
    /// The agent that holds.
    pub holder: Holder,
    /// No Pod of the holder is anywhere: of each, its container has terminated and its UID is gone. Never so while a node that had one is not heard of.
    pub no_pod: bool,
}

/// The agent that holds, or is to hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Holder {
    /// Its object does not exist, and may still be made.
    Awaited,
    /// Its object exists with the rules of the loan, and wants to run.
    Wanted,
    /// Its object is stopped, or being deleted, or gone; or it was given up before it was made.
    Ended,
}

/// The state that follows; `None` when the claim stays as it is.
#[must_use]
pub fn next(state: ClaimState, seen: Seen) -> Option<ClaimState> {
    let Seen { is_fenced, holder, no_pod } = seen;
    match (state, holder) {
        (ClaimState::Reserved | ClaimState::Fenced | ClaimState::Active, Holder::Ended) => Some(ClaimState::Reclaiming),
        (ClaimState::Reserved, Holder::Awaited | Holder::Wanted) => is_fenced.then_some(ClaimState::Fenced),
        // A cover that is gone, as after a reboot, comes back before the lender runs again. Until then nothing begins.
        (ClaimState::Fenced, Holder::Wanted) => is_fenced.then_some(ClaimState::Active),
        (ClaimState::Fenced, Holder::Awaited) | (ClaimState::Active, Holder::Awaited | Holder::Wanted) => None,
        // Whatever became of the object: one that is wanted again gets another loan.
        (ClaimState::Reclaiming, Holder::Awaited | Holder::Wanted | Holder::Ended) => no_pod.then_some(ClaimState::Released),
        (ClaimState::Released, Holder::Awaited | Holder::Wanted | Holder::Ended) => None,
    }
}

impl ClaimState {
    /// Whether the paths are closed to the lender, and to every other loan.
    #[must_use]
    pub fn is_held(self) -> bool {
        self != ClaimState::Released
    }

    /// Whether the operator makes a Pod for the holder.
    #[must_use]
    pub fn lets_holder_run(self) -> bool {
        self == ClaimState::Active
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// One loan, its lender and its holder, and what each process has last read of the claim.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    struct LoanState {
        /// As the API server has it; `None` once it is forgotten.
        claim: Option<ClaimState>,
        /// As the operator has last read it.
        at_operator: Option<ClaimState>,
        /// As the node has last read it.
        at_node: Option<ClaimState>,
        /// The lender's view is covered.
        cover: bool,
        /// A process of the lender holds what it has opened before.
        earlier: bool,
        /// The node has said that it is fenced.
        fence_reported: bool,
        holder: Holder,
        /// The Pod of the holder exists, and whether it has the tree mounted.
        pod: Option<bool>,
    }

    impl LoanState {
        fn first() -> Self {
            let claim = Some(ClaimState::Reserved);
            LoanState {
                claim,
                at_operator: None,
                at_node: None,
                cover: false,
                earlier: true,
                fence_reported: false,
                holder: Holder::Awaited,
                pod: None,
            }
        }

        fn seen(self) -> Seen {
            Seen { is_fenced: self.fence_reported, holder: self.holder, no_pod: self.pod.is_none() }
        }

        fn lender_writes(self) -> bool {
            !self.cover || self.earlier
        }

        fn holder_writes(self) -> bool {
            self.pod == Some(true)
        }

        /// Everything that can happen next, each process at whatever speed.
        fn after(self, node: NodeRules) -> Vec<LoanState> {
            let mut all = vec![LoanState { at_operator: self.claim, ..self }, LoanState { at_node: self.claim, ..self }];
            if let Some(state) = self.claim {
                // By compare-and-swap, so on what the API server has.
                all.extend(next(state, self.seen()).map(|state| LoanState { claim: Some(state), ..self }));
                if state == ClaimState::Released {
                    all.push(LoanState { claim: None, ..self });
                }
            }
            // The holder's object is made only while the claim is fenced; people start and stop it whenever they like.
            if self.holder != Holder::Awaited || self.claim == Some(ClaimState::Fenced) {
                all.push(LoanState { holder: Holder::Wanted, ..self });
            }
            all.push(LoanState { holder: Holder::Ended, ..self });
            // The operator acts by what it has last read.
            let lets_run = self.at_operator.is_some_and(ClaimState::lets_holder_run);
            match self.pod {
                None if lets_run && self.holder == Holder::Wanted => all.push(LoanState { pod: Some(false), ..self }),
                None => {}
                Some(_) => all.push(LoanState { pod: None, ..self }),
            }
            // So does the node.
            if self.at_node.is_some_and(ClaimState::is_held) {
                all.push(LoanState { cover: true, ..self });
                if self.cover {
                    all.push(LoanState { earlier: false, ..self });
                }
                all.push(LoanState { fence_reported: self.cover && !self.earlier, ..self });
            }
            let is_active = self.at_node == Some(ClaimState::Active);
            if self.pod == Some(false) && is_active && self.cover {
                all.push(LoanState { pod: Some(true), ..self });
            }
            let is_over = self.at_node.is_none_or(|state| !state.is_held()) && self.cover;
            if is_over && (self.pod != Some(true) || !node.uncovers_only_without_a_mount) {
                all.push(LoanState { cover: false, earlier: true, fence_reported: false, ..self });
            }
            all
        }
    }

    #[derive(Clone, Copy)]
    struct NodeRules {
        uncovers_only_without_a_mount: bool,
    }

    /// Every state that can come of the first one; or the first in which both write.
    fn reachable(node: NodeRules) -> Result<BTreeSet<LoanState>, LoanState> {
        let (mut known, mut new) = (BTreeSet::new(), vec![LoanState::first()]);
        while let Some(loan) = new.pop() {
            if loan.lender_writes() && loan.holder_writes() {
                return Err(loan);
            }
            if known.insert(loan) {
                new.extend(loan.after(node));
            }
        }
        Ok(known)
    }

    const RULES: NodeRules = NodeRules { uncovers_only_without_a_mount: true };

    #[test]
    fn c7_c18_lender_and_holder_never_both_write_whatever_is_old_and_whoever_is_slow() {
        let all = reachable(RULES).unwrap_or_else(|both| panic!("both write: {both:?}"));
        // And each of them can.
        assert!(all.iter().any(|loan| loan.holder_writes()));
        assert!(all.iter().any(|loan| loan.lender_writes() && loan.claim.is_none() && loan.holder == Holder::Ended));
    }

    #[test]
    fn without_the_nodes_last_word_an_old_claim_lets_both_write() {
        assert!(reachable(NodeRules { uncovers_only_without_a_mount: false }).is_err());
    }

    /// A loan whose holder has ended, whose Pods are gone and of which nobody is behind comes to its end by itself, from wherever it was.
    #[test]
    fn c14_c15_every_loan_whose_holder_is_gone_is_released_and_stays_so() {
        for loan in reachable(RULES).unwrap() {
            let mut loan = LoanState { holder: Holder::Ended, pod: None, ..loan };
            for _ in 0..3 {
                loan.claim = loan.claim.map(|state| next(state, loan.seen()).unwrap_or(state));
            }
            assert!(loan.claim.is_none_or(|state| state == ClaimState::Released), "{loan:?}");
            loan.at_node = loan.claim;
            let uncovered = loan.after(RULES).into_iter().any(|after| !after.cover);
            assert!(uncovered, "nobody is locked out: {loan:?}");
            for holder in [Holder::Awaited, Holder::Wanted, Holder::Ended] {
                let again = Seen { is_fenced: true, holder, no_pod: true };
                assert_eq!(next(ClaimState::Released, again), None);
            }
        }
    }

    #[test]
    fn c20_a_holder_that_is_told_to_end_keeps_its_paths_until_no_pod_of_it_is_left() {
        let seen = Seen { is_fenced: true, holder: Holder::Ended, no_pod: false };
        assert_eq!(next(ClaimState::Active, seen), Some(ClaimState::Reclaiming));
        assert_eq!(next(ClaimState::Reclaiming, seen), None);
        assert!(ClaimState::Reclaiming.is_held() && !ClaimState::Reclaiming.lets_holder_run());
        assert_eq!(next(ClaimState::Reclaiming, Seen { no_pod: true, ..seen }), Some(ClaimState::Released));
    }
}
