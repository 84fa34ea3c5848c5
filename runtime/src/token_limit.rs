//! `spec.limits.tokens`, which may change while the process runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_wire::identity::TOKENS_FILE;

/// The kubelet writes the file anew at once when the Pod's annotation changes: within 0.6 to 1.6 s, measured.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The limit as it is now, by the file beside the token in `folder`; `of_manifest` where there is no such file. Ends with `stop`.
pub fn watch_token_limit(folder: &Path, of_manifest: Option<u64>, stop: CancellationToken) -> watch::Receiver<Option<u64>> {
    let path = folder.join(TOKENS_FILE);
    let first = read(&path).unwrap_or(of_manifest);
    let (sender, receiver) = watch::channel(first);
    tokio::spawn(async move {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let path = path.clone();
            let Ok(Some(limit)) = tokio::task::spawn_blocking(move || read(&path)).await else { continue };
            let changed = sender.send_if_modified(|known| std::mem::replace(known, limit) != limit);
            if changed {
                tracing::info!(?limit, "spec.limits.tokens changed");
            }
        }
    });
    receiver
}

/// `None` where the file says nothing: a Pod of an earlier version has none.
fn read(path: &PathBuf) -> Option<Option<u64>> {
    let text = std::fs::read_to_string(path).ok()?;
    match text.trim() {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_file_wins_over_the_manifest_and_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let file = folder.path().join(TOKENS_FILE);
        assert_eq!(*watch_token_limit(folder.path(), Some(7), stop.clone()).borrow(), Some(7));
        std::fs::write(&file, "12").unwrap();
        let mut limit = watch_token_limit(folder.path(), Some(7), stop.clone());
        assert_eq!(*limit.borrow_and_update(), Some(12));
        std::fs::write(&file, "none of our numbers").unwrap();
        // By tokio's clock, which runs ahead here: it is read again, and nothing comes of it.
        tokio::time::sleep(LOOK_EVERY * 2).await;
        assert!(!limit.has_changed().unwrap());
        std::fs::write(&file, "").unwrap();
        limit.changed().await.unwrap();
        assert_eq!(*limit.borrow_and_update(), None);
        stop.cancel();
        assert!(limit.changed().await.is_err(), "the watch goes on after the stop");
    }
}
