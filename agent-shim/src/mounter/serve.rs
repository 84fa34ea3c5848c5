//! The socket: who may speak, and how many at once.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::desk::Desk;
use super::frame;
use super::verb::Verb;

/// The shim writes its question at once; a silent speaker must not keep a thread.
const PATIENCE: Duration = Duration::from_secs(10);

/// One thread for each question that may be open; the rest queue in the kernel.
pub fn run(socket: &Path, desk: Desk) -> io::Result<()> {
    let listener = bind(socket)?;
    let desk = Arc::new(desk);
    let threads: Vec<_> = (0..super::AT_ONCE)
        .map(|n| {
            let (listener, desk) = (listener.try_clone()?, desk.clone());
            thread::Builder::new().name(format!("mounter-{n}")).spawn(move || listen(&listener, &desk))
        })
        .collect::<io::Result<_>>()?;
    for thread in threads {
        thread.join().map_err(|_| io::Error::other("a thread of the mounter panicked"))??;
    }
    Ok(())
}

/// Another process may have stood here before: its name is taken over in one step.
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

fn listen(listener: &UnixListener, desk: &Desk) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept()?;
        if let Err(error) = answer(&stream, desk) {
            tracing::warn!(%error, "a question was not answered");
        }
    }
}

fn answer(stream: &UnixStream, desk: &Desk) -> io::Result<()> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    if !peer.uid.is_root() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("uid {} may not speak here", peer.uid.as_raw())));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let verb: Verb = frame::read(stream)?;
    let answer = desk.act(&verb);
    match &answer {
        Ok(_) => tracing::debug!(?verb, "done"),
        Err(refused) => tracing::warn!(?verb, reason = refused.reason.as_str(), message = refused.message, "refused"),
    }
    frame::write(stream, &answer)
}
