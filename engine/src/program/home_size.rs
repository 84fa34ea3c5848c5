//! How large the HOME of a program is. It is on the volume of the agent's log, which it must not fill.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};

/// What a file or folder counts for at least: volumes also run out of those.
const MIN_BYTES: u64 = 4096;
/// Bytes of a block in `st_blocks`.
const BLOCK_BYTES: u64 = 512;
/// How long to wait between two looks at a running program's HOME.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look takes at most one part in so many of the time.
const REST: u32 = 20;

/// Whether HOME takes more than `most` bytes of its disk. The walk ends when that is known, so that it is bounded, too. Symbolic links are
/// not followed, and what the program has closed or removes meanwhile is passed over.
pub(super) fn is_above(home: &Path, most: u64) -> bool {
    let (mut folders, mut sum) = (vec![home.to_owned()], 0_u64);
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(folder) else { continue };
        for entry in entries.flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            sum = sum.saturating_add((metadata.blocks() * BLOCK_BYTES).max(MIN_BYTES));
            if sum > most {
                return true;
            }
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    false
}

/// Returns when HOME takes more than `most` bytes; never without a bound.
pub(super) async fn until_above(home: PathBuf, most: Option<u64>) {
    let Some(most) = most else { return std::future::pending().await };
    loop {
        let (begun, folder) = (Instant::now(), home.clone());
        if spawn_blocking(move || is_above(&folder, most)).await.unwrap_or(false) {
            return;
        }
        sleep(LOOK_EVERY.max(begun.elapsed() * REST)).await;
    }
}

/// Why a run ends or does not begin, for people.
pub(super) fn message(program: &str, home: &Path, most: u64) -> String {
    format!(
        "the HOME of {program}, {}, takes more than {} MiB, half of the session volume; the next run begins anew, with an empty HOME and without the \
         program's own session. Let tools keep their caches elsewhere, such as in /tmp, or give the agent a larger session volume",
        home.display(),
        most >> 20
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_folders_and_their_number_count_and_links_do_not() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().join("home");
        fs::create_dir_all(home.join("a/b")).unwrap();
        fs::write(dir.path().join("large"), vec![1; 1 << 20]).unwrap();
        std::os::unix::fs::symlink(dir.path(), home.join("a/up")).unwrap();
        assert!(!is_above(&home, 100 << 10));
        for number in 0..30 {
            fs::write(home.join(format!("a/b/{number}")), "").unwrap();
        }
        assert!(is_above(&home, 100 << 10));
        assert!(!is_above(&home, 1 << 20));
        fs::write(home.join("a/b/large"), vec![1; 1 << 20]).unwrap();
        assert!(is_above(&home, 1 << 20));
        assert!(!is_above(&dir.path().join("none"), 0));
    }
}
