//! Power cuts at any write. The guest does all that happens to trees on disks whose writes are logged, and reports each step. Then the states that a cut
//! could have left on the disks are made here, one by one: what was reported is there, what was destroyed is not, and the rest is done or undone.
//!
//! In parts, for `cargo xtask test --all`: `conformance power-log make FOLDER` makes the disks and prints their paths, `record DISK...` runs in the
//! guest, `replay FOLDER` looks for each disk at the log beside it. The disk with a pool is replayed in the guest again, whose kernel can import it:
//! `replay-pool BASE LOG`.

mod life;
mod log;
mod pool;
mod replay;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use yoi_workspace::ProviderKind;

use crate::fixture::{enter_mount_namespace, run};
use crate::lanes::DiskKind;

/// The word that begins such a command line.
pub const COMMAND: &str = "power-log";

#[derive(Debug, Clone, Copy)]
struct Setup {
    provider: ProviderKind,
    disk: DiskKind,
}

const SETUPS: [Setup; 6] = [
    Setup { provider: ProviderKind::Overlay, disk: DiskKind::Ext4 },
    Setup { provider: ProviderKind::Overlay, disk: DiskKind::Xfs },
    Setup { provider: ProviderKind::Reflink, disk: DiskKind::Xfs },
    Setup { provider: ProviderKind::Copy, disk: DiskKind::Ext4 },
    Setup { provider: ProviderKind::Btrfs, disk: DiskKind::Btrfs },
    ON_ZFS,
];
/// The entries are on ext4, the trees in a pool.
const ON_ZFS: Setup = Setup { provider: ProviderKind::Zfs, disk: DiskKind::Ext4 };

/// The size of the file systems. XFS takes at least 300 MiB.
const SIZE: u64 = 320 << 20;
/// Reports are written here, past the end of the file system.
const ACKS_AT: u64 = SIZE;
const POOL_AT: u64 = SIZE + (1 << 20);
/// ZFS keeps 128 MiB of a small pool to itself.
const POOL_SIZE: u64 = 384 << 20;

impl Setup {
    fn name(self) -> String {
        format!("{} on {:?}", self.provider, self.disk)
    }

    fn image(self, folder: &Path, ending: &str) -> PathBuf {
        folder.join(format!("{}-on-{:?}.{ending}", self.provider, self.disk))
    }

    fn disk_size(self) -> u64 {
        if self.provider == ProviderKind::Zfs { POOL_AT + POOL_SIZE } else { POOL_AT }
    }

    /// A disk with a file system, and a copy of it as it is before the guest has it.
    fn make(self, folder: &Path) -> PathBuf {
        let (image, base) = (self.image(folder, "img"), self.image(folder, "base"));
        fs::File::create(&image).unwrap().set_len(self.disk_size()).unwrap();
        let (image_text, bytes) = (image.to_str().unwrap(), SIZE.to_string());
        let (mkfs, args) = match self.disk {
            // What is not initialized now is written by the kernel in the background, in thousands of writes.
            DiskKind::Ext4 => ("mkfs.ext4", vec!["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image_text, "320m"]),
            DiskKind::Xfs => ("mkfs.xfs", vec!["-q", "-f", "-d", "size=320m", image_text]),
            DiskKind::Btrfs => ("mkfs.btrfs", vec!["-q", "-f", "-b", &bytes, image_text]),
        };
        run(mkfs, &args.into_iter().map(Path::new).collect::<Vec<_>>());
        run("cp", &["--sparse=always".as_ref(), &image, &base]);
        image
    }
}

/// Runs a command line without the program and [`COMMAND`].
pub fn main(args: &[String]) -> ExitCode {
    match (args.first().map(String::as_str), &args[1..]) {
        (Some("make"), [folder]) => {
            SETUPS.iter().for_each(|setup| println!("{}", setup.make(folder.as_ref()).display()));
            ExitCode::SUCCESS
        }
        (Some("record"), disks) if disks.len() == SETUPS.len() => {
            for (setup, disk) in SETUPS.into_iter().zip(disks) {
                let begun = std::time::Instant::now();
                life::record(setup, disk.as_ref());
                println!("{} recorded ({:.0?})", setup.name(), begun.elapsed());
            }
            ExitCode::SUCCESS
        }
        (Some("replay"), [folder]) => {
            enter_mount_namespace();
            let here: Vec<_> = SETUPS.into_iter().filter(|setup| setup.provider != ProviderKind::Zfs).collect();
            println!("running {} tests", here.len());
            let folder: &Path = folder.as_ref();
            let files = |setup: Setup| [setup.image(folder, "base"), setup.image(folder, "img.log")];
            let broken = here.into_iter().filter(|setup| !replay_one(*setup, &files(*setup), folder)).count();
            if broken == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        (Some("replay-pool"), [base, log]) => {
            println!("running 1 test");
            let folder = tempfile::tempdir_in("/dev/shm").unwrap();
            let passed = replay_one(ON_ZFS, &[base.into(), log.into()], folder.path());
            if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        _ => panic!("{COMMAND} make FOLDER, record {} disks, replay FOLDER, or replay-pool BASE LOG", SETUPS.len()),
    }
}

/// Returns whether no cut broke a promise.
fn replay_one(setup: Setup, [base, log]: &[PathBuf; 2], folder: &Path) -> bool {
    let begun = std::time::Instant::now();
    let found = replay::replay(setup, base, log, folder);
    println!(
        "    {} writes, {} flushes, {} power cuts, {} of them took what was never flushed",
        found.writes, found.flushes, found.cuts, found.unflushed_lost
    );
    let verdict = match () {
        () if !found.broken.is_empty() => format!("FAILED: {} cuts broke a promise", found.broken.len()),
        () if found.unflushed_lost == 0 => "FAILED: the harness detects nothing: no cut took what was never flushed".to_owned(),
        () => format!("ok ({:.0?})", begun.elapsed()),
    };
    println!("test power cuts of {} ... {verdict}", setup.name());
    verdict.starts_with("ok")
}
