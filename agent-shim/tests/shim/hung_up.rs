//! Callers of change lists that hang up, with a real mounter.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use yoi_agent_shim::mounter::MAX_REQUESTS;
use yoi_agent_shim::mounter::client::Mounter;
use yoi_agent_shim::shim::change_list;
use yoi_agent_shim::volume::{PublishRecord, PublishedVolume};
use yoi_test_support::{eventually, in_time};
use yoi_wire::identity::SHIM_SOCKET;
use yoi_workspace::{CloneAccess, ExpectedRoot, Owner, ProviderKind, TreeOrigin};

use crate::fixtures::uid;
use crate::real_disk::mounter;
use crate::test_shim::{TestShim, volume};

/// A file with so many names that a comparison, which reads it once for each, takes about a minute. It takes this much room once.
const FILE_BYTES: usize = 32 << 20;
const NAMES: usize = 5000;

/// A Pod's runtime asks for changes and hangs up once the comparison has begun.
async fn ask_and_hang_up(socket: &Path) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(b"GET /v1/changes HTTP/1.1\r\nhost: shim\r\n\r\n").await.unwrap();
    // How far a comparison is shows nowhere. One that has not begun by then is one of a hundred that were to be left behind.
    sleep(Duration::from_millis(200)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_callers_that_hang_up_leave_no_comparison_behind_and_the_mounter_answers() {
    if !rustix::process::geteuid().is_root() {
        return crate::skip::skip("the mounter answers root only");
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let pool = dir.path().join("pool");
    fs::create_dir(&pool).unwrap();
    fs::create_dir(dir.path().join("kubelet")).unwrap();
    let client = mounter(dir.path(), &pool, "mounter");
    let shim = TestShim::with(dir.path().join("kubelet"), client.clone());
    let line: &dyn Mounter = &*client;
    line.open(ExpectedRoot::Any).await.unwrap();

    // A base with a large file, and a clone in which it may have changed.
    let owner = Owner { uid: 0, gid: 0 };
    let origins = [(1, TreeOrigin::Empty { owner }), (2, TreeOrigin::Clone { from: uid(1), access: CloneAccess::ReadWrite })];
    for (n, origin) in origins {
        shim.state.journal.begin_create(uid(n), ProviderKind::Copy, origin).unwrap();
        line.make(uid(n), ProviderKind::Copy, origin).await.unwrap();
        shim.state.journal.record_created(uid(n)).unwrap();
        let file = pool.join("trees").join(uid(n).shard()).join(uid(n).to_string()).join("tree/huge");
        if n == 1 {
            fs::write(&file, vec![7; FILE_BYTES]).unwrap();
            (1..NAMES).for_each(|n| fs::hard_link(&file, file.with_extension(n.to_string())).unwrap());
            line.seal(uid(1)).await.unwrap();
            shim.state.journal.begin_seal(uid(1)).unwrap();
            shim.state.journal.record_sealed(uid(1)).unwrap();
        } else {
            let mode = file.metadata().unwrap().permissions().mode();
            fs::set_permissions(file, Permissions::from_mode(mode)).unwrap();
        }
    }
    // Several Pods, because a Pod gets one list at a time.
    let pods = [10, 11, 12, 13];
    let mut sockets = Vec::new();
    for pod in pods {
        let shows = PublishedVolume::Tree { tree: uid(2), read_only: false, covers: 0, lending: None };
        shim.state.publish_records.put(PublishRecord { volume: volume(pod, "tree"), shows }).await.unwrap();
        fs::create_dir_all(shim.state.runtimes.pod_dir(uid(pod))).unwrap();
        change_list::open_socket(&shim.state, uid(pod)).unwrap();
        sockets.push(shim.state.runtimes.pod_dir(uid(pod)).join(SHIM_SOCKET));
    }
    let waited = timeout(Duration::from_millis(500), change_list::change_list(&shim.state, uid(10))).await;
    assert!(waited.is_err(), "the comparison ends by itself, so this test finds nothing: {waited:?}");
    for _ in 0..25 {
        futures::future::join_all(sockets.iter().map(|socket| ask_and_hang_up(socket))).await;
    }
    // As many as the mounter has threads for the shim, so one that is left would keep the last of these waiting.
    let answers = (0..MAX_REQUESTS).map(|_| line.mounts());
    // Each comparison that is left would go on for longer than this waits.
    let all = in_time("the mounter is free of what nobody waits for", futures::future::join_all(answers)).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    let is_free = || shim.state.change_lists.available_permits() == yoi_agent_shim::shim::state::MAX_CHANGE_LISTS;
    eventually("no list that nobody waits for keeps its permit", async || is_free().then_some(())).await;
}
