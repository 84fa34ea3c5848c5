//! Change lists for Pods.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use kube::runtime::watcher::Event;
use serde_json::json;
use tokio::time::Instant;
use yoi_agent_shim::mounter::client::{Mounter, MounterFailure};
use yoi_agent_shim::mounter::protocol::{Request, Response as MounterResponse};
use yoi_agent_shim::shim::change_list::change_list;
use yoi_agent_shim::shim::state::{MAX_CHANGE_LISTS, ShimState};
use yoi_agent_shim::volume::{PodVolume, PublishRecord, PublishedVolume};
use yoi_workspace::{ChangeList, CloneAccess, Owner, ProviderKind, TreeOrigin, Uid};

use crate::fixtures::{uid, workspace};
use crate::test_shim::TestShim;

/// How long each list takes, by the test's clock, which goes on when nobody else can begin a list.
const TAKES: Duration = Duration::from_millis(10);

#[derive(Default)]
struct Slow {
    now: AtomicUsize,
    most: AtomicUsize,
    /// The trees whose lists were made, in the order of their ends, and when each began.
    done: Mutex<Vec<(Uid, Instant)>>,
}

impl Mounter for Slow {
    fn call(&self, request: Request) -> BoxFuture<'_, Result<MounterResponse, MounterFailure>> {
        Box::pin(async move {
            let Request::Changes { uid, .. } = request else { panic!("{request:?}") };
            let begun = Instant::now();
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            tokio::time::sleep(TAKES).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            self.done.lock().unwrap().push((uid, begun));
            Ok(MounterResponse::Changes(ChangeList::default()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn change_lists_leave_permits_of_the_mounter_for_mounts() {
    let (dir, slow) = (tempfile::tempdir().unwrap(), Arc::new(Slow::default()));
    let state = TestShim::with(dir.path().to_owned(), slow.clone()).state;
    make_trees(&state, &[2]).await;
    show(&state, 2, 10..20).await;
    let all = join_all((0..40).map(|_| change_list(&state, uid(10)))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(slow.most.swap(0, Ordering::SeqCst), 1, "one Pod gets one list at a time");
    let all = join_all((0..40).map(|n| change_list(&state, uid(10 + n % 10)))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(slow.most.load(Ordering::SeqCst), MAX_CHANGE_LISTS);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_asks_for_change_lists_without_end_holds_up_no_other() {
    let (dir, slow) = (tempfile::tempdir().unwrap(), Arc::new(Slow::default()));
    let shim = TestShim::with(dir.path().to_owned(), slow.clone());
    make_trees(&shim.state, &[2, 3]).await;
    for (tree, namespace) in [(2, "many"), (3, "one")] {
        shim.apply_event(Event::Apply(workspace(tree, json!({ "metadata": { "namespace": namespace } }))));
    }
    show(&shim.state, 2, 10..20).await;
    show(&shim.state, 3, 20..21).await;
    let many = join_all((0..20).map(|n| change_list(&shim.state, uid(10 + n % 10))));
    let (many, one) = futures::future::join(many, change_list(&shim.state, uid(20))).await;
    assert!(one.is_ok() && many.iter().all(Result::is_ok));
    let done = slow.done.lock().unwrap();
    let place = done.iter().position(|(tree, _)| *tree == uid(3)).unwrap();
    assert!(place < 2, "{place} lists of the other tenant came first");
    assert_eq!(slow.most.load(Ordering::SeqCst), 2, "one of each namespace at a time");
}

#[tokio::test(start_paused = true)]
async fn between_two_change_lists_of_a_pod_there_is_a_pause_as_long_as_the_first_took() {
    let (dir, slow) = (tempfile::tempdir().unwrap(), Arc::new(Slow::default()));
    let state = TestShim::with(dir.path().to_owned(), slow.clone()).state;
    make_trees(&state, &[2]).await;
    show(&state, 2, 10..11).await;
    change_list(&state, uid(10)).await.unwrap();
    // One that nobody waits for any longer counts, too.
    let hung_up = tokio::time::timeout(TAKES * 2 - TAKES / 2, change_list(&state, uid(10))).await;
    assert!(hung_up.is_err());
    change_list(&state, uid(10)).await.unwrap();
    let begun: Vec<Instant> = slow.done.lock().unwrap().iter().map(|(_, begun)| *begun).collect();
    // The list, a pause of its length, a half of the second, a pause of half a list's length.
    assert!(begun[1] - begun[0] >= TAKES * 3, "{:?}", begun[1] - begun[0]);
}

/// Makes clones of a base, with these UIDs.
async fn make_trees(state: &ShimState, trees: &[u8]) {
    let owner = Owner { uid: 1000, gid: 1000 };
    state.journal.begin_create(uid(1), ProviderKind::Btrfs, TreeOrigin::Empty { owner }).unwrap();
    state.journal.record_created(uid(1)).unwrap();
    state.journal.begin_seal(uid(1)).unwrap();
    state.journal.record_sealed(uid(1)).unwrap();
    for tree in trees {
        let origin = TreeOrigin::Clone { from: uid(1), access: CloneAccess::ReadWrite };
        state.journal.begin_create(uid(*tree), ProviderKind::Btrfs, origin).unwrap();
        state.journal.record_created(uid(*tree)).unwrap();
    }
}

/// Each of these Pods mounts the tree.
async fn show(state: &ShimState, tree: u8, pods: std::ops::Range<u8>) {
    for pod in pods {
        let volume = PodVolume { pod: uid(pod), name: "tree".parse().unwrap() };
        let shows = PublishedVolume::Tree { tree: uid(tree), read_only: false, covers: 0, lending: None };
        state.publish_records.put(PublishRecord { volume, shows }).await.unwrap();
    }
}
