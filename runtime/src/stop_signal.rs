//! The end of the process: what asks for it, and how long it may take.

use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The process ends this long after it was asked to stop, whatever hangs.
pub const STOP_TIMEOUT: Duration = Duration::from_secs(9);

/// A token that SIGTERM or SIGINT cancels. The process then ends in time, whatever hangs.
pub fn stop_on_signal() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let cancel = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
        }
        tracing::info!("asked to stop");
        cancel.cancel();
    });
    let stopping = stop.clone();
    tokio::spawn(async move {
        stopping.cancelled().await;
        sleep(STOP_TIMEOUT).await;
        tracing::error!("stopping took too long; what is in the log is whole");
        std::process::exit(0);
    });
    Ok(stop)
}
