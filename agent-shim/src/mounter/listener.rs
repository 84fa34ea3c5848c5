//! The socket of the mounter: who may send requests, and how many at the same time.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use yoi_workspace::ErrorReason;

use super::frame;
use super::log_context::LogContext;
use super::protocol::Envelope;
use super::service::MounterService;

/// The shim sends its request at once. A client that sends nothing must not hold a thread.
const IO_TIMEOUT: Duration = Duration::from_secs(10);

/// Beside those for the shim's requests: for [`super::check`], and for one whose caller has gone and has made another.
const SPARE_THREADS: usize = 4;

/// Serves requests on `socket`, each on one thread. Further connections wait in the kernel. Returns when the first of the threads ends, which
/// is always an error: the process must end, too, and be started again with all of them.
pub fn run(socket: &Path, service: MounterService) -> io::Result<()> {
    let listener = bind(socket)?;
    serve(listener, super::MAX_REQUESTS + SPARE_THREADS, move |stream| serve_one(stream, &service))
}

fn serve(listener: UnixListener, threads: usize, answer: impl Fn(&UnixStream) -> io::Result<()> + Send + Sync + 'static) -> io::Result<()> {
    let shared = Arc::new((listener, answer));
    let (ended, first_end) = channel();
    for n in 0..threads {
        let (shared, ended) = (shared.clone(), ended.clone());
        thread::Builder::new().name(format!("mounter-{n}")).spawn(move || {
            let (listener, answer) = &*shared;
            let end = catch_unwind(AssertUnwindSafe(|| listen(listener, answer)));
            _ = ended.send(end.unwrap_or_else(|_| Err(io::Error::other(format!("thread {n} of the mounter panicked")))));
        })?;
    }
    first_end.recv().map_err(io::Error::other)?
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

fn listen(listener: &UnixListener, answer: &impl Fn(&UnixStream) -> io::Result<()>) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        if let Err(error) = answer(&stream) {
            tracing::warn!(%error, "a request was not answered");
        }
    }
}

/// Whether the peer has closed the connection. It sends nothing after its request.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one pollfd, alive through the call, which does not wait.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
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
    let response = service.handle(&request, &|| has_hung_up(stream));
    match &response {
        Err(refused) if refused.reason == ErrorReason::Cancelled => {
            tracing::debug!(?request, "the caller has hung up");
            return Ok(());
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// What the mounter's process exits with.
    #[test]
    fn the_first_thread_that_ends_ends_the_mounter_though_the_others_live() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = bind(&path).unwrap();
        let (tell, told) = channel();
        thread::spawn(move || {
            // Both threads wait for a connection, so it is not always the first that panics.
            tell.send(serve(listener, 8, |_| panic!("as the test says"))).unwrap();
        });
        let mut caller = UnixStream::connect(&path).unwrap();
        assert_eq!(caller.read(&mut [0]).unwrap(), 0, "nobody answers");
        let ended = told.recv_timeout(yoi_test_support::limit(Duration::from_secs(10))).expect("it goes on with seven threads");
        assert!(ended.unwrap_err().to_string().ends_with("of the mounter panicked"));
    }

    #[test]
    fn a_caller_that_hangs_up_is_noticed() {
        let (here, there) = UnixStream::pair().unwrap();
        assert!(!has_hung_up(&here));
        drop(there);
        assert!(has_hung_up(&here));
    }
}
