//! The socket of the mounter: who may send requests, and how many at the same time.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::frame;
use super::log_context::LogContext;
use super::protocol::Envelope;
use super::service::MounterService;

/// The shim sends its request at once. A client that sends nothing must not hold a thread.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves requests on `socket`, each on one of [`MAX_REQUESTS`](super::MAX_REQUESTS) threads. Further connections wait in the kernel.
pub fn run(socket: &Path, service: MounterService) -> io::Result<()> {
    let listener = bind(socket)?;
    let service = Arc::new(service);
    let threads: Vec<_> = (0..super::MAX_REQUESTS)
        .map(|n| {
            let (listener, service) = (listener.try_clone()?, service.clone());
            thread::Builder::new().name(format!("mounter-{n}")).spawn(move || listen(&listener, &service))
        })
        .collect::<io::Result<_>>()?;
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a thread of the mounter panicked"))??;
    }
    Ok(())
}

/// Replaces the socket of a previous process by a rename.
fn bind(socket: &Path) -> io::Result<UnixListener> {
    let fresh = socket.with_extension("new");
    match std::fs::remove_file(&fresh) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        Ok(()) | Err(_) => {}
    }
    let listener = UnixListener::bind(&fresh)?;
    std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o600))?;
    std::fs::rename(&fresh, socket)?;
    Ok(listener)
}

fn listen(listener: &UnixListener, service: &MounterService) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        if let Err(error) = serve_one(&stream, service) {
            tracing::warn!(%error, "a request was not answered");
        }
    }
}

fn serve_one(stream: &UnixStream, service: &MounterService) -> io::Result<()> {
    let uid = peer_uid(stream)?;
    if uid != 0 {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("uid {uid} may not speak here")));
    }
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    let Envelope { context: LogContext { object, uid, run }, request } = frame::read(stream)?;
    let (tree, pod) = request.subjects();
    let uid = uid.or_else(|| Some(tree?.to_string()));
    let (tree, pod) = (tree.map(tracing::field::display), pod.map(tracing::field::display));
    let _span = tracing::info_span!("request", object, uid, run, tree, pod, node = service.node).entered();
    let response = service.handle(&request);
    match &response {
        Ok(_) if request.changes_node() => tracing::info!(?request, "done"),
        Ok(_) => tracing::debug!(?request, "done"),
        Err(refused) => tracing::warn!(?request, reason = refused.reason.as_str(), message = refused.message, "refused"),
    }
    frame::write(stream, &response)
}

/// Calls getsockopt directly. The other container has a process namespace of its own, so the kernel reports its pid as 0, which safe bindings
/// cannot represent.
fn peer_uid(stream: &UnixStream) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: SO_PEERCRED writes at most `length` bytes of a ucred.
    let done =
        unsafe { libc::getsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, (&raw mut peer).cast(), &raw mut length) };
    match done {
        0 if length as usize == size_of::<libc::ucred>() => Ok(peer.uid),
        0 => Err(io::Error::other("the kernel gave no credentials of the peer")),
        _ => Err(io::Error::last_os_error()),
    }
}
