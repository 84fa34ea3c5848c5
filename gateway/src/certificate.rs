//! The serving certificate, read again whenever its files change.
//!
//! The operator makes it, perhaps long after this process has started: the volume is optional. The contents of the files are compared, and
//! not their times, because a projected volume swaps a symlink and may bring an older time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

#[derive(Clone, PartialEq, Eq)]
pub struct ServingCertificate {
    pub cert_pem: String,
    pub key_pem: String,
}

/// Reads `tls.crt` and `tls.key` of `dir` at each interval, and sends them when they changed. Runs until dropped.
pub async fn watch_files(dir: PathBuf, every: Duration, certificate: watch::Sender<Option<ServingCertificate>>) {
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut logged = false;
    loop {
        ticks.tick().await;
        match read(&dir).await {
            Ok(found) => {
                certificate.send_if_modified(|known| {
                    let new = known.as_ref() != Some(&found);
                    *known = Some(found);
                    new
                });
            }
            // Logged once: the operator may need a while, and the certificate in use stays valid.
            Err(error) if !logged => {
                tracing::info!(dir = %dir.display(), %error, "waiting for tls.crt and tls.key");
                logged = true;
            }
            Err(_) => {}
        }
    }
}

async fn read(dir: &Path) -> std::io::Result<ServingCertificate> {
    let cert_pem = tokio::fs::read_to_string(dir.join("tls.crt")).await?;
    let key_pem = tokio::fs::read_to_string(dir.join("tls.key")).await?;
    Ok(ServingCertificate { cert_pem, key_pem })
}
