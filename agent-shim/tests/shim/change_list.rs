//! Change lists for Pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, join_all};
use yoi_agent_shim::mounter::client::{Mounter, MounterFailure};
use yoi_agent_shim::mounter::protocol::{Request, Response as MounterResponse};
use yoi_agent_shim::shim::change_list::change_list;
use yoi_agent_shim::shim::state::MAX_CHANGE_LISTS;
use yoi_agent_shim::volume::{PodVolume, PublishRecord, PublishedVolume};
use yoi_workspace::{ChangeList, CloneAccess, Owner, ProviderKind, TreeOrigin};

use crate::fixtures::uid;
use crate::test_shim::TestShim;

#[derive(Default)]
struct Slow {
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Mounter for Slow {
    fn call(&self, _: Request) -> BoxFuture<'_, Result<MounterResponse, MounterFailure>> {
        Box::pin(async {
            let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most.fetch_max(now, Ordering::SeqCst);
            // By the test's clock, which goes on when nobody else can begin a list.
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.now.fetch_sub(1, Ordering::SeqCst);
            Ok(MounterResponse::Changes(ChangeList::default()))
        })
    }
}

#[tokio::test(start_paused = true)]
async fn change_lists_leave_permits_of_the_mounter_for_mounts() {
    let (dir, slow) = (tempfile::tempdir().unwrap(), Arc::new(Slow::default()));
    let state = TestShim::with(dir.path().to_owned(), slow.clone()).state;
    let owner = Owner { uid: 1000, gid: 1000 };
    state.journal.begin_create(uid(1), ProviderKind::Btrfs, TreeOrigin::Empty { owner }).unwrap();
    state.journal.record_created(uid(1)).unwrap();
    state.journal.begin_seal(uid(1)).unwrap();
    state.journal.record_sealed(uid(1)).unwrap();
    state.journal.begin_create(uid(2), ProviderKind::Btrfs, TreeOrigin::Clone { from: uid(1), access: CloneAccess::ReadWrite }).unwrap();
    state.journal.record_created(uid(2)).unwrap();
    for pod in 10..20 {
        let volume = PodVolume { pod: uid(pod), name: "tree".parse().unwrap() };
        let shows = PublishedVolume::Tree { tree: uid(2), read_only: false };
        state.publish_records.put(PublishRecord { volume, shows }).await.unwrap();
    }
    let all = join_all((0..40).map(|_| change_list(&state, uid(10)))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(slow.most.swap(0, Ordering::SeqCst), 1, "one Pod gets one list at a time");
    let all = join_all((0..40).map(|n| change_list(&state, uid(10 + n % 10)))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(slow.most.load(Ordering::SeqCst), MAX_CHANGE_LISTS);
}
