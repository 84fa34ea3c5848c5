//! The session's segments as they stand, as a tar archive. No lock is taken and nothing is changed.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures::stream;
use http::{StatusCode, header};
use tokio::sync::mpsc;
use yoi_engine::open_session::disk;
use yoi_session::current;
use yoi_wire::hub::RefusalReason;

use super::{ReadState, blocking, refuse, session_error_response};

const CHUNK: usize = 64 << 10;
/// Chunks that wait for a slow client.
const CHUNKS_AHEAD: usize = 4;
const TAR_BLOCK: usize = 512;

pub(super) async fn export(State(api): State<ReadState>) -> Response {
    let root = api.session_root.clone();
    let session = match blocking(move || current::read(&*disk(), &root)).await {
        Ok(Some(session)) => session.to_string(),
        Ok(None) => return refuse(StatusCode::NOT_FOUND, RefusalReason::Invalid, "there is no session yet"),
        Err(error) => return session_error_response(&error),
    };
    let (chunks, received) = mpsc::channel(CHUNKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        if let Err(error) = write_archive(&api.session_root, &session, &chunks) {
            let _ = chunks.blocking_send(Err(error));
        }
    });
    let body = stream::unfold(received, |mut received| async move { Some((received.recv().await?, received)) });
    ([(header::CONTENT_TYPE, "application/x-tar")], Body::from_stream(body)).into_response()
}

type Chunks = mpsc::Sender<io::Result<Bytes>>;

fn write_archive(root: &Path, session: &str, chunks: &Chunks) -> io::Result<()> {
    let folder = Path::new("sessions").join(session);
    let mut files: Vec<PathBuf> = vec![PathBuf::from("current.json")];
    for entry in std::fs::read_dir(root.join(&folder))? {
        let name = folder.join(entry?.file_name());
        if name.extension().is_some_and(|extension| extension == "jsonl") {
            files.push(name);
        }
    }
    files.sort();
    for name in files {
        let file = File::open(root.join(&name))?;
        let bytes = end_of_content(&file)?;
        send(chunks, header_block(&name.to_string_lossy(), bytes).to_vec())?;
        let mut content = file.take(bytes);
        let mut sent = 0;
        loop {
            let mut chunk = vec![0; CHUNK];
            let read = content.read(&mut chunk)?;
            if read == 0 {
                break;
            }
            chunk.truncate(read);
            sent += read as u64;
            send(chunks, chunk)?;
        }
        // The header has promised this many, also when the file was trimmed meanwhile; then full blocks.
        let padded = bytes.next_multiple_of(TAR_BLOCK as u64);
        send(chunks, vec![0; usize::try_from(padded - sent).unwrap_or_default()])?;
    }
    send(chunks, vec![0; 2 * TAR_BLOCK])
}

fn send(chunks: &Chunks, bytes: Vec<u8>) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    chunks.blocking_send(Ok(bytes.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
}

/// Where the zeros begin that a log fills its segment with ahead of its entries.
fn end_of_content(file: &File) -> io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut chunk = vec![0; CHUNK];
    while end > 0 {
        let from = end.saturating_sub(CHUNK as u64);
        let part = &mut chunk[..usize::try_from(end - from).unwrap_or_default()];
        file.read_exact_at(part, from)?;
        if let Some(at) = part.iter().rposition(|byte| *byte != 0) {
            return Ok(from + at as u64 + 1);
        }
        end = from;
    }
    Ok(0)
}

/// A header of the POSIX format ustar. Names and sizes of a session fit into its fields: 100 bytes, and 8 GiB in octal.
fn header_block(name: &str, bytes: u64) -> [u8; TAR_BLOCK] {
    let mut block = [0u8; TAR_BLOCK];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, &name[..name.floor_char_boundary(100)]);
    for (at, text) in [(100, "0000644\0"), (108, "0000000\0"), (116, "0000000\0"), (136, "00000000000\0")] {
        put(at, text);
    }
    put(124, &format!("{bytes:011o}\0"));
    put(148, "        ");
    put(156, "0");
    put(257, "ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f16_the_archive_is_read_by_tar_and_has_the_segments_without_the_zeros_ahead() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sessions/s");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(dir.path().join("current.json"), "{}\n").unwrap();
        std::fs::write(folder.join("a.jsonl"), [b"line\n".as_slice(), &[0; 200_000]].concat()).unwrap();
        std::fs::write(folder.join("b.jsonl"), vec![b'x'; 130_000]).unwrap();
        let (chunks, mut received) = mpsc::channel(1000);
        write_archive(dir.path(), "s", &chunks).unwrap();
        drop(chunks);
        let mut archive = Vec::new();
        while let Ok(chunk) = received.try_recv() {
            archive.extend_from_slice(&chunk.unwrap());
        }
        let out = tempfile::tempdir().unwrap();
        let file = out.path().join("session.tar");
        std::fs::write(&file, archive).unwrap();
        let status = std::process::Command::new("tar").arg("-xf").arg(&file).arg("-C").arg(out.path()).status().unwrap();
        assert!(status.success());
        let read = |name: &str| std::fs::read(out.path().join(name)).unwrap();
        assert_eq!((read("current.json"), read("sessions/s/a.jsonl")), (b"{}\n".to_vec(), b"line\n".to_vec()));
        assert_eq!(read("sessions/s/b.jsonl").len(), 130_000);
    }
}
