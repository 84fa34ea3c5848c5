//! How much memory a change list takes, with an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::{Mode, OFlags};
use yoi_agent_shim::mounter::DataRootConfig;
use yoi_agent_shim::mounter::client::{Mounter, MounterClient};
use yoi_agent_shim::mounter::service::MounterService;
use yoi_workspace::{ExpectedRoot, Owner, ProviderKind, TreeOrigin, Uid};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

// SAFETY: it hands every call to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        MOST.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `dealloc`.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Mounter and shim each have 256 MiB by default, and make several lists at once. Here both sides of one list are in one process.
const MAX_LIST_BYTES: usize = 16 << 20;
const FILES: usize = 20_000;

/// Makes 20,000 files whose paths are 4 KB long, 80 MB of text together.
fn fill(tree: &std::path::Path) {
    let folder = "d".repeat(250);
    let mut inner: OwnedFd = rustix::fs::open(tree, OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..16 {
        rustix::fs::mkdirat(&inner, &*folder, Mode::RWXU).unwrap();
        inner = rustix::fs::openat(&inner, &*folder, OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    for n in 0..FILES {
        rustix::fs::openat(&inner, format!("{n:0200}"), OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_list_of_many_long_paths_takes_little_memory() {
    if !rustix::process::geteuid().is_root() {
        assert!(std::env::var_os("YOI_MUST_RUN").is_none(), "this test must run here: the mounter answers root only");
        return;
    }
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let (pool, kubelet, socket) = (dir.path().join("pool"), dir.path().join("kubelet"), dir.path().join("mounter.sock"));
    fs::create_dir(&pool).unwrap();
    fs::create_dir(&kubelet).unwrap();
    let service = MounterService::new(
        "node-1".to_owned(),
        DataRootConfig { data_root: pool.clone(), loop_size: None, simple_quota: false, zfs: None },
        &kubelet,
    )
    .unwrap();
    let served = socket.clone();
    std::thread::spawn(move || yoi_agent_shim::mounter::listener::run(&served, service));
    let client: Arc<dyn Mounter> = Arc::new(MounterClient::new(socket));
    client.open(ExpectedRoot::Any).await.unwrap();
    let uid = Uid::from_bytes([7; 16]);
    client.make(uid, ProviderKind::Copy, TreeOrigin::Empty { owner: Owner { uid: 0, gid: 0 } }).await.unwrap();
    fill(&pool.join("trees").join(uid.shard()).join(uid.to_string()).join("tree"));

    let before = NOW.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);
    client.changes(uid, None, 10_000).await.unwrap();
    let taken = MOST.load(Ordering::Relaxed) - before;
    println!("{} KiB", taken >> 10);
    assert!(taken < MAX_LIST_BYTES, "one change list takes {} MiB", taken >> 20);
}
