//! The warm session claims that this process has made, and what the API server refused. The UID that it answered with is the proof that a claim is ours; the
//! status of the project keeps it.
//!
//! A process that is killed between the answer and that status leaves a claim that no agent takes. It goes with its project.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use yoi_crds::name::{annotation, field_manager};
use yoi_plan::meta;
use yoi_plan::warm::{Made, TokenBucket};

use crate::log_subject::{LogSubject, log_for};

/// So many are made at once, in the whole cluster.
const BURST: u32 = 8;
/// One more so often.
const EVERY: Duration = Duration::from_secs(1);
/// How long the watch may take to show a claim.
const UNSEEN: Duration = Duration::from_secs(60);

pub struct WarmLedger(Mutex<State>);

struct State {
    bucket: TokenBucket,
    /// By UID.
    made: BTreeMap<String, Entry>,
    /// By UID of the project.
    refusals: BTreeMap<String, (String, jiff::Timestamp)>,
}

struct Entry {
    project: String,
    namespace: String,
    name: String,
    node: String,
    at: jiff::Timestamp,
    /// A watch has shown it.
    is_seen: bool,
}

impl WarmLedger {
    #[must_use]
    pub fn new(now: jiff::Timestamp) -> Self {
        WarmLedger(Mutex::new(State { bucket: TokenBucket::new(BURST, EVERY, now), made: BTreeMap::new(), refusals: BTreeMap::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in what the watch shows. `is_warm` says of namespace, name and UID whether such a claim is there, and whether it still stands ready. What is
    /// gone or taken is forgotten, and what was never shown, after a while.
    pub fn mark_seen(&self, is_warm: impl Fn(&str, &str, &str) -> Option<bool>, now: jiff::Timestamp) {
        self.state().made.retain(|uid, entry| match is_warm(&entry.namespace, &entry.name, uid) {
            Some(is_warm) => {
                entry.is_seen = true;
                is_warm
            }
            None => !entry.is_seen && Duration::try_from(now.duration_since(entry.at)).is_ok_and(|age| age < UNSEEN),
        });
    }

    /// UIDs of those that stand ready, or are about to.
    #[must_use]
    pub fn living(&self) -> BTreeSet<String> {
        self.state().made.keys().cloned().collect()
    }

    /// What was made for this project, and why the last one was refused.
    #[must_use]
    pub fn of_project(&self, project: &str) -> (BTreeMap<String, Made>, Option<(String, jiff::Timestamp)>) {
        let state = self.state();
        let own = state.made.iter().filter(|(_, entry)| entry.project == project);
        let made = own.map(|(uid, entry)| (uid.clone(), Made { node: entry.node.clone(), is_unseen: !entry.is_seen })).collect();
        (made, state.refusals.get(project).cloned())
    }

    /// Creates a warm claim, unless too many were made a moment ago: then the next round of the project makes it. A refusal stands in the project's
    /// condition, and nothing else waits for it. A claim of that name that exists is never ours: the name is made of the time.
    pub async fn make(&self, client: &Client, subject: &LogSubject, claim: &PersistentVolumeClaim) {
        let Some(project) = meta::controller(&claim.metadata).map(|project| project.uid.clone()) else { return };
        if !self.state().bucket.take(jiff::Timestamp::now()) {
            return;
        }
        let (namespace, name) = (claim.namespace().unwrap_or_default(), claim.name_any());
        let params = PostParams { field_manager: Some(field_manager::OPERATOR.to_owned()), ..PostParams::default() };
        let answer = Api::<PersistentVolumeClaim>::namespaced(client.clone(), &namespace).create(&params, claim).await;
        let now = jiff::Timestamp::now();
        match answer {
            Ok(made) => {
                let node = meta::annotation(&claim.metadata, annotation::SELECTED_NODE).unwrap_or_default().to_owned();
                log_for!(info, subject, claim = name, node, "warm session claim made");
                let entry = Entry { project: project.clone(), namespace, name, node, at: now, is_seen: false };
                let mut state = self.state();
                state.refusals.remove(&project);
                state.made.insert(made.uid().unwrap_or_default(), entry);
            }
            Err(error) => {
                log_for!(debug, subject, %error, claim = name, "warm session claim refused");
                let message = match error {
                    kube::Error::Api(status) => status.message.clone(),
                    other => other.to_string(),
                };
                self.state().refusals.insert(project, (format!("the API server refuses a warm session claim: {message}"), now));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> jiff::Timestamp {
        jiff::Timestamp::from_second(1_700_000_000 + seconds).unwrap()
    }

    fn ledger() -> WarmLedger {
        let ledger = WarmLedger::new(at(0));
        for (uid, project) in [("c1", "p"), ("c2", "p"), ("c3", "q")] {
            let of = |text: &str| text.to_owned();
            let entry = Entry { project: of(project), namespace: of("ns"), name: of(uid), node: of("n"), at: at(0), is_seen: false };
            ledger.state().made.insert(of(uid), entry);
        }
        ledger
    }

    #[test]
    fn a_claim_counts_from_the_answer_until_the_watch_shows_that_it_is_taken_or_gone() {
        let ledger = ledger();
        let made = |ledger: &WarmLedger| ledger.of_project("p").0.into_iter().map(|(uid, made)| (uid, made.is_unseen)).collect::<Vec<_>>();
        assert_eq!(made(&ledger), [("c1".to_owned(), true), ("c2".to_owned(), true)]);
        ledger.mark_seen(|_, _, uid| (uid != "c2").then_some(true), at(1));
        assert_eq!(made(&ledger), [("c1".to_owned(), false), ("c2".to_owned(), true)]);
        // An agent has taken the first; the third is gone.
        ledger.mark_seen(|_, _, uid| (uid == "c1").then_some(false), at(2));
        assert_eq!((made(&ledger), ledger.living().len()), (vec![("c2".to_owned(), true)], 1));
        ledger.mark_seen(|_, _, _| None, at(61));
        assert!(ledger.living().is_empty(), "the watch never showed it");
    }
}
