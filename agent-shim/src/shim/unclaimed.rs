//! Finds the trees of this node that no object claims, has them reported, and destroys those that a person discards, and bases after a while.
//!
//! The objects of a node that was lost are deleted without it. When its machine comes back, the trees are still there, and only a person can know
//! whether somebody's work is in one. The wish to discard one stands in the spec of the WorkspaceNode.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use kube::Client;
use kube::api::{Api, ListParams};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use yoi_crds::AgentWorkspace;
use yoi_crds::node::UnclaimedTrees;
use yoi_wire::error_chain;
use yoi_workspace::{DiskUsage, Record, Uid};

use super::error::Error;
use super::provisioning;
use super::state::ShimState;
use crate::decide::unclaimed::{self, HeldTree};
use crate::mounter::log_context::LogContext;

/// The pause between two looks, unless something wakes them.
const ROUND: Duration = Duration::from_secs(120);
/// How long it is remembered that an object claims a tree that the watch of this node does not show: it may be on another node.
const CLAIM_MEMORY: Duration = Duration::from_mins(30);
/// Objects in one answer of the API server.
const PAGE: u32 = 500;

/// A look failed. The next one may succeed.
#[derive(Debug, thiserror::Error)]
pub enum UnclaimedError {
    /// The journal could not be read, or the mounter did not answer.
    #[error("failed to look at the trees of this node")]
    Node(#[from] Error),
    /// The API server did not list all objects.
    #[error("failed to list the workspaces of all nodes")]
    List(#[source] kube::Error),
}

#[derive(Default)]
struct Known {
    /// None: nobody has looked yet.
    status: Option<Option<UnclaimedTrees>>,
    /// What a person wants to discard.
    wishes: BTreeSet<Uid>,
    /// Nobody writes such a tree, so it is measured once.
    usages: HashMap<Uid, DiskUsage>,
    /// The API server had no object of them, and since when that is known. A UID is never given to another object.
    without_object: HashMap<Uid, Instant>,
    /// It had an object of them, and when.
    with_object: HashMap<Uid, Instant>,
}

/// What is known of trees that no object claims.
#[derive(Default)]
pub struct Unclaimed {
    known: Mutex<Known>,
    wake: Notify,
}

impl Unclaimed {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the node's status says of them. The outer None: nobody has looked yet.
    pub fn status(&self) -> Option<Option<UnclaimedTrees>> {
        self.known().status.clone()
    }

    /// Makes the next look begin now.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Takes in what a person wants to discard. What is new is looked at now.
    pub fn set_wishes(&self, discard: &[String]) {
        let wishes: BTreeSet<Uid> = discard.iter().filter_map(|uid| uid.parse().ok()).collect();
        let mut known = self.known();
        let has_new = !wishes.is_subset(&known.wishes);
        known.wishes = wishes;
        drop(known);
        if has_new {
            self.wake();
        }
    }
}

/// Looks in rounds until [`ShimState::stop`] is cancelled.
pub async fn run(state: Arc<ShimState>, client: Client) {
    loop {
        tokio::select! {
            () = state.stop.cancelled() => return,
            () = state.unclaimed.wake.notified() => {}
            () = sleep(ROUND) => {}
        }
        if let Err(error) = look(&state, &client).await {
            tracing::warn!(error = error_chain(&error), "trees that no object claims were not looked for");
        }
    }
}

/// Looks once: discards what a person wants to discard, and has the rest reported.
pub async fn look(state: &ShimState, client: &Client) -> Result<(), UnclaimedError> {
    // Before the first listing every tree would be without an object, and of a data root that does not work nothing is known.
    if !state.workspaces.is_synced() || state.data_root_failure().is_some() {
        return Ok(());
    }
    let disk = state.mounter.inventory().await.map_err(Error::from)?;
    let records = state.journal(|journal| journal.read()).await?.records;
    // The watch is asked last: it shows an object before its tree is made.
    let mut trees = unclaimed::held_trees(&records, &disk);
    trees.retain(|tree| state.workspaces.get(tree.uid).is_none());
    forget_others(state, &trees);
    if trees.iter().any(|tree| !is_remembered(state, tree.uid)) {
        remember(state, client, &trees).await?;
    }
    trees.retain(|tree| state.unclaimed.known().without_object.contains_key(&tree.uid));
    let refused = discard_wanted(state, client, &mut trees, &records).await?;
    report(state, &trees, &refused);
    measure(state, &trees).await;
    report(state, &trees, &refused);
    Ok(())
}

/// Drops what is known of trees that are gone, or that have an object.
fn forget_others(state: &ShimState, trees: &[HeldTree]) {
    let uids: HashSet<Uid> = trees.iter().map(|tree| tree.uid).collect();
    let mut known = state.unclaimed.known();
    known.usages.retain(|uid, _| uids.contains(uid));
    known.without_object.retain(|uid, _| uids.contains(uid));
    known.with_object.retain(|uid, since| uids.contains(uid) && since.elapsed() < CLAIM_MEMORY);
}

fn is_remembered(state: &ShimState, uid: Uid) -> bool {
    let known = state.unclaimed.known();
    known.without_object.contains_key(&uid) || known.with_object.contains_key(&uid)
}

/// Asks the API server which of the trees have an object, on whatever node.
async fn remember(state: &ShimState, client: &Client, trees: &[HeldTree]) -> Result<(), UnclaimedError> {
    let claimed = claimed_uids(client).await?;
    let mut known = state.unclaimed.known();
    for HeldTree { uid, .. } in trees {
        if claimed.contains(uid) {
            known.without_object.remove(uid);
            known.with_object.insert(*uid, Instant::now());
        } else {
            known.with_object.remove(uid);
            known.without_object.entry(*uid).or_insert_with(Instant::now);
        }
    }
    Ok(())
}

/// The UIDs of the AgentWorkspaces of all nodes. It fails unless all of them were listed.
async fn claimed_uids(client: &Client) -> Result<HashSet<Uid>, UnclaimedError> {
    let api: Api<AgentWorkspace> = Api::all(client.clone());
    let (mut params, mut claimed) = (ListParams::default().limit(PAGE), HashSet::new());
    loop {
        let page = api.list_metadata(&params).await.map_err(UnclaimedError::List)?;
        claimed.extend(page.items.iter().filter_map(|object| object.metadata.uid.as_deref()?.parse::<Uid>().ok()));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => params = params.continue_token(&token),
            None => return Ok(claimed),
        }
    }
}

/// Destroys those of the trees that a person wants to discard, and bases that go by themselves, and takes them out. Returns why some that a person named
/// are still there.
async fn discard_wanted(
    state: &ShimState,
    client: &Client,
    trees: &mut Vec<HeldTree>,
    records: &[Record],
) -> Result<BTreeMap<Uid, String>, UnclaimedError> {
    let wishes = state.unclaimed.known().wishes.clone();
    let since = state.unclaimed.known().without_object.clone();
    let goes = |tree: &&HeldTree| {
        wishes.contains(&tree.uid) || since.get(&tree.uid).is_some_and(|since| unclaimed::goes_by_itself(tree, since.elapsed(), records))
    };
    let mut wanted: Vec<HeldTree> = trees.iter().filter(goes).cloned().collect();
    let mut refused = BTreeMap::new();
    wanted.retain(|tree| {
        let mounts = state.publish_records.count_for_tree(tree.uid);
        let why = unclaimed::discard_refusal(tree.uid, mounts, records, |uid| state.workspaces.get(uid).is_some());
        why.map(|why| refused.insert(tree.uid, why)).is_none()
    });
    refused.retain(|uid, _| wishes.contains(uid));
    if wanted.is_empty() {
        return Ok(refused);
    }
    // What was remembered is good enough for a report. Nothing is destroyed that has an object now.
    remember(state, client, trees).await?;
    trees.retain(|tree| state.unclaimed.known().without_object.contains_key(&tree.uid));
    wanted.retain(|tree| trees.contains(tree));
    // The disk refuses a base while overlays need it, which may go in the same round.
    wanted.sort_by_key(|tree| tree.is_base);
    for tree in wanted {
        let (uid, object) = (tree.uid, tree.label.as_ref().map(|label| label.object.clone()));
        let context = LogContext { object: object.clone(), uid: Some(uid.to_string()), ..LogContext::default() };
        match context.scope(provisioning::destroy_unused_tree(state, uid)).await {
            Ok(Ok(())) => {
                let named = wishes.contains(&uid);
                tracing::warn!(%uid, object, named, "a tree that no object claims is destroyed: spec.discard names it, or it is a base");
                trees.retain(|tree| tree.uid != uid);
            }
            Ok(Err(why)) => _ = refused.insert(uid, why),
            Err(error) => _ = refused.insert(uid, error_chain(&error)),
        }
    }
    refused.retain(|uid, _| wishes.contains(uid));
    Ok(refused)
}

/// Has the node reported if these trees change what its status says.
fn report(state: &ShimState, trees: &[HeldTree], refused: &BTreeMap<Uid, String>) {
    let mut known = state.unclaimed.known();
    let status = unclaimed::status(trees, &known.usages, refused);
    if known.status.as_ref() != Some(&status) {
        known.status = Some(status);
        state.report_node.notify_one();
    }
}

/// Measures what was not measured yet. A tree that cannot be measured is tried again with the next look.
async fn measure(state: &ShimState, trees: &[HeldTree]) {
    for HeldTree { uid, .. } in trees {
        if state.unclaimed.known().usages.contains_key(uid) {
            continue;
        }
        match state.mounter.usage(*uid).await {
            Ok(usage) => _ = state.unclaimed.known().usages.insert(*uid, usage),
            Err(error) => tracing::debug!(%uid, error = error_chain(&error), "a tree that no object claims could not be measured"),
        }
    }
}
