//! `spec.limits.tokens`, which may change while the process runs.

use std::path::Path;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use yoi_wire::identity::TOKENS_FILE;

use crate::annotation_file::watch_annotation;

/// The limit as it is now, by the file beside the token in `folder`; `of_manifest` where there is no such file. Ends with `stop`.
pub fn watch_token_limit(folder: &Path, of_manifest: Option<u64>, stop: CancellationToken) -> watch::Receiver<Option<u64>> {
    watch_annotation(folder.join(TOKENS_FILE), of_manifest, parse, "spec.limits.tokens", stop)
}

/// `None` for what is no limit.
fn parse(text: &str) -> Option<Option<u64>> {
    match text {
        "" => Some(None),
        number => number.parse().ok().map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::annotation_file::LOOK_EVERY;

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
