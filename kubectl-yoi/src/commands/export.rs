//! `export`: copies an agent's segments as they stand.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};

use futures::AsyncReadExt;
use yoi_crds::YoiPod;

use crate::args::ExportOptions;
use crate::cluster::Cluster;
use crate::error::Error;
use crate::show::{self, Written};

/// What a whole archive ends with: two blocks of zeros, POSIX.1-2017 pax, "ustar Interchange Format".
const ARCHIVE_END: usize = 1024;
const LOOK_AT_DISK: &str = "look at where it goes: a disk without room, or a folder that may not be written";

pub async fn export(cluster: &Cluster, args: &ExportOptions) -> Result<(), Error> {
    let agent = cluster.display_name::<YoiPod>(&args.name);
    if args.file.is_none() && std::io::stdout().is_terminal() {
        let why = std::io::Error::other("an archive is not text");
        return Err(Error::local(format!("show the session of {agent}"), why, "write it to a file: add `-f FILE`"));
    }
    let mut archive = Box::pin(cluster.export(&args.name).await?);
    let mut target = match &args.file {
        Some(file) => Target::File(PartFile::create(file)?),
        None => Target::Stdout,
    };
    let (mut buffer, mut tail, mut length) = (vec![0; 256 << 10], Tail::default(), 0_u64);
    loop {
        let read = archive.read(&mut buffer).await;
        let count =
            read.map_err(|error| cut(cluster, &agent, &args.name, &format!("it broke off after {}: {error}", show::bytes(length))))?;
        let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        tail.push(bytes);
        length += bytes.len() as u64;
        if target.write(bytes)? == Written::Closed {
            return Ok(());
        }
    }
    if !tail.is_archive_end() {
        return Err(cut(cluster, &agent, &args.name, &format!("it broke off after {}", show::bytes(length))));
    }
    let Target::File(file) = target else { return Ok(()) };
    let path = file.finish()?;
    show::print(&format!("the session of {agent} is in {}: {}\n", path.display(), show::bytes(length)))
}

fn cut(cluster: &Cluster, agent: &str, name: &str, why: &str) -> Error {
    Error::Cut {
        what: agent.to_owned(),
        why: why.to_owned(),
        next: format!("try again: {}", cluster.plugin_command(&format!("export {name} -f FILE"))),
    }
}

enum Target {
    Stdout,
    File(PartFile),
}

impl Target {
    fn write(&mut self, bytes: &[u8]) -> Result<Written, Error> {
        match self {
            Target::Stdout => show::write_bytes(bytes),
            Target::File(part) => part.write(bytes),
        }
    }
}

/// A file that has its name only once it is whole. Dropped before, it goes.
struct PartFile {
    file: File,
    part: PathBuf,
    path: PathBuf,
    is_finished: bool,
}

impl PartFile {
    fn create(path: &Path) -> Result<Self, Error> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(|error| Error::local(format!("write {}", part.display()), error, LOOK_AT_DISK))?;
        Ok(PartFile { file, part, path: path.to_owned(), is_finished: false })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<Written, Error> {
        let written = self.file.write_all(bytes);
        written.map(|()| Written::Done).map_err(|error| Error::local(format!("write {}", self.part.display()), error, LOOK_AT_DISK))
    }

    fn finish(mut self) -> Result<PathBuf, Error> {
        let done = self.file.sync_all().and_then(|()| std::fs::rename(&self.part, &self.path));
        done.map_err(|error| Error::local(format!("write {}", self.path.display()), error, LOOK_AT_DISK))?;
        self.is_finished = true;
        Ok(self.path.clone())
    }
}

impl Drop for PartFile {
    fn drop(&mut self) {
        if !self.is_finished {
            // What is left of it is called `.part`, so nobody takes it for whole.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail(Vec<u8>);

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes.get(bytes.len().saturating_sub(ARCHIVE_END)..).unwrap_or_default());
        let surplus = self.0.len().saturating_sub(ARCHIVE_END);
        self.0.drain(..surplus);
    }

    fn is_archive_end(&self) -> bool {
        self.0.len() == ARCHIVE_END && self.0.iter().all(|byte| *byte == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_whole_when_it_ends_with_two_blocks_of_zeros() {
        let is_whole = |chunks: &[&[u8]]| {
            let mut tail = Tail::default();
            chunks.iter().for_each(|chunk| tail.push(chunk));
            tail.is_archive_end()
        };
        assert!(is_whole(&[&[1; 3000], &[0; 512], &[0; 512]]));
        assert!(is_whole(&[&[0; 10_240]]));
        assert!(!is_whole(&[&[1; 512], &[0; 1023]]));
        assert!(!is_whole(&[&[0; 1024], b"x"]));
        assert!(!is_whole(&[]));
    }
}
