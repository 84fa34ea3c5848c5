//! One socket for each Pod that runs our runtime. Only that Pod can connect to it, so a request on it comes from that Pod.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::UnixListener;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;
use yoi_wire::identity::SHIM_SOCKET;
use yoi_workspace::Uid;

/// Connections of one Pod at the same time.
const MAX_CONNECTIONS: usize = 4;
/// How long a Pod may take to send a request, and the pause after a failure to accept.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// The sockets that are served.
#[derive(Default)]
pub struct PodSockets {
    served: Mutex<HashMap<Uid, AbortOnDropHandle<()>>>,
}

impl PodSockets {
    /// Serves `router` on the Pod's socket in `folder`. Returns at once if the Pod's socket is served already.
    ///
    /// An older socket of the name is replaced by a rename: a Pod that connects again and again always finds one.
    pub fn open(&self, folder: &Path, pod: Uid, router: Router) -> io::Result<()> {
        let mut served = self.served.lock().unwrap_or_else(PoisonError::into_inner);
        if served.contains_key(&pod) {
            return Ok(());
        }
        let listener = bind(folder)?;
        let serving = tokio::spawn(serve(listener, router, pod));
        served.insert(pod, AbortOnDropHandle::new(serving));
        Ok(())
    }

    /// Stops serving the Pod's socket. The file stays.
    pub fn close(&self, pod: Uid) {
        self.served.lock().unwrap_or_else(PoisonError::into_inner).remove(&pod);
    }
}

/// An agent is not trusted: it gets few connections with one request each, the request must come soon, and so it cannot exhaust the node.
async fn serve(listener: UnixListener, router: Router, pod: Uid) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(permit) = permits.clone().acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // File descriptors that have run out become free again.
                tracing::warn!(%pod, %error, "a Pod's connection was not accepted");
                tokio::time::sleep(REQUEST_TIMEOUT).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(REQUEST_TIMEOUT).keep_alive(false);
            if let Err(error) = http.serve_connection(TokioIo::new(stream), service).await {
                tracing::debug!(%pod, %error, "a Pod's connection broke");
            }
            drop(permit);
        });
    }
}

fn bind(folder: &Path) -> io::Result<UnixListener> {
    // Through a descriptor: the path of a socket has at most 107 bytes, and the kubelet's directory may have a long name.
    let folder = File::open(folder)?;
    let short = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string());
    let fresh = short.join(".shim.sock.new");
    match fs::remove_file(&fresh) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    fs::set_permissions(&fresh, Permissions::from_mode(0o666))?;
    fs::rename(&fresh, short.join(SHIM_SOCKET))?;
    Ok(listener)
}
