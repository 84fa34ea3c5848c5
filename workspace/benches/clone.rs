//! The Btrfs verbs against the bare system calls, in one run on one file system: `cargo bench -p yoi-workspace`. Needs root.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use yoi_workspace::{Access, DataRoot, Owner, ProviderKind, Uid, ensure_loop_btrfs, loopback};

const SAMPLES: usize = 200;
const THREADS: usize = 32;
const EACH: usize = 40;

fn main() {
    if !rustix::process::geteuid().is_root() {
        println!("clone: NOT RUN: needs root");
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let at = temp.path().join("pool");
    ensure_loop_btrfs(&temp.path().join("image"), 8 << 30, &at).unwrap();
    run(&at);
    loopback::release(&at).unwrap();
}

fn run(at: &Path) {
    let root = DataRoot::open(at).unwrap();
    let hand = root.provider(ProviderKind::Btrfs).unwrap();
    for files in [1_000, 57_000] {
        let base = uid();
        hand.create_empty(base, Owner { uid: 0, gid: 0 }).unwrap();
        let tree = root.open_tree(base).unwrap();
        let path = fs::read_link(format!("/proc/self/fd/{}", tree.as_raw_fd())).unwrap();
        for n in 0..files {
            if n % 100 == 0 {
                fs::create_dir(path.join(format!("d{}", n / 100))).unwrap();
            }
            fs::write(path.join(format!("d{}/f{n}", n / 100)), "x").unwrap();
        }
        hand.seal(base).unwrap();
        let source = File::from(tree);

        // Interleaved, so that a busy moment hits both.
        let raw_dir = at.join(format!("raw{files}"));
        fs::create_dir(&raw_dir).unwrap();
        let raw_parent = File::open(&raw_dir).unwrap();
        let (mut raw, mut verb) = (Vec::new(), Vec::new());
        for n in 0..SAMPLES {
            raw.push(time(|| snapshot(&source, &raw_parent, &format!("s{n}"))));
            verb.push(time(|| drop(hand.clone_tree(uid(), base, Access::ReadWrite).unwrap())));
        }
        let (raw, verb) = (median(raw), median(verb));
        println!("{files} files: ioctl {raw:.2?}, verb {verb:.2?}, ratio {:.2}", verb.as_secs_f64() / raw.as_secs_f64());

        let one_parent = rate(|n| snapshot(&source, &raw_parent, &format!("t{n}")));
        let verbs = rate(|_| drop(hand.clone_tree(uid(), base, Access::ReadWrite).unwrap()));
        println!("{files} files, {THREADS} in flight: one parent {one_parent:.0}/s, verb {verbs:.0}/s, ratio {:.1}", verbs / one_parent);
    }
}

fn uid() -> Uid {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Uid::from_bytes(bytes)
}

fn time(act: impl FnOnce()) -> Duration {
    let started = Instant::now();
    act();
    started.elapsed()
}

fn median(mut samples: Vec<Duration>) -> Duration {
    samples.sort();
    samples[samples.len() / 2]
}

fn rate(act: impl Fn(usize) + Sync) -> f64 {
    let act = &act;
    let took = time(|| {
        std::thread::scope(|scope| {
            (0..THREADS).for_each(|t| drop(scope.spawn(move || (0..EACH).for_each(|n| act(t * EACH + n)))));
        });
    });
    (THREADS * EACH) as f64 / took.as_secs_f64()
}

fn snapshot(source: &File, parent: &File, name: &str) {
    #[repr(C)]
    struct Args {
        fd: i64,
        other: [u64; 6],
        name: [u8; 4040],
    }
    const SNAP_CREATE_V2: u32 = 1 << 30 | 4096 << 16 | 0x94 << 8 | 23;
    let mut args = Args { fd: source.as_raw_fd().into(), other: [0; 6], name: [0; 4040] };
    args.name[..name.len()].copy_from_slice(std::ffi::OsStr::new(name).as_bytes());
    // SAFETY: SNAP_CREATE_V2 reads a btrfs_ioctl_vol_args_v2.
    let done = unsafe { libc::ioctl(parent.as_raw_fd(), SNAP_CREATE_V2 as _, &mut args) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}
