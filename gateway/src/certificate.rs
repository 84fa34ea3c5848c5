//! The serving certificate: waited for, and taken anew when it changes.
//!
//! The operator makes it, and may do so long after this process has started: the volume is optional. Files are read and compared rather
//! than dated, because a projected volume swaps a symlink and may bring an older date.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

#[derive(Clone, PartialEq, Eq)]
pub struct ServingCertificate {
    pub cert_pem: String,
    pub key_pem: String,
}

/// Follows the folder until dropped.
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
            // Said once: the operator may need a while, and the certificate in hand stay good.
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
