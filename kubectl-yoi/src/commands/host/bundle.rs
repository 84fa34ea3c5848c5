//! The file that makes a machine a node: what stands before it, and the parts that it is sent in.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::error::{Error, RefusalKind};
use crate::show;

/// Bytes of a part. When a connection is cut, at most so many are sent twice.
const PART: u64 = 8 << 20;
/// The frame of zstd that holds what stands before: readers of zstd skip it.
const FRAME: u32 = 0x184D_2A50;
/// Bytes of the longest text in it.
const MAX_HEAD: u32 = 64 << 10;

/// What a bundle says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Head {
    pub version: String,
    /// As `uname -m` says it.
    pub machine: String,
    bytes: u64,
    sha256: String,
}

/// A bundle that is whole.
#[derive(Debug)]
pub struct Bundle {
    path: PathBuf,
    pub head: Head,
    pub parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    offset: u64,
    bytes: u64,
    pub sha256: String,
}

impl Bundle {
    /// Reads all of it.
    ///
    /// # Errors
    /// It is no bundle, or not whole.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let refused = |why: String| {
            let next = "make it anew, in a clone of Yoi: cargo xtask bundle";
            Error::refused_error(format!("read the bundle {}", path.display()), why, next, RefusalKind::Other)
        };
        let failed = |error: std::io::Error| refused(error.to_string());
        let mut file = File::open(path).map_err(failed)?;
        let mut begin = [0; 8];
        let is_read = file.read_exact(&mut begin).is_ok();
        let [magic, length] = [0, 4].map(|at| u32::from_le_bytes(begin[at..at + 4].try_into().unwrap_or_default()));
        if !is_read || magic != FRAME || length > MAX_HEAD {
            return Err(refused("it is no bundle of Yoi".to_owned()));
        }
        let mut text = vec![0; length as usize];
        file.read_exact(&mut text).map_err(|_| refused("it is cut".to_owned()))?;
        let head: Head = serde_json::from_slice(&text).map_err(|error| refused(format!("its head cannot be understood: {error}")))?;
        let mut offset = u64::from(length) + 8;
        let there = file.metadata().map_err(failed)?.len().saturating_sub(offset);
        if there != head.bytes {
            return Err(refused(format!("it has {} behind its head, and should have {}", show::bytes(there), show::bytes(head.bytes))));
        }
        let (mut whole, mut parts) = (Sha256::new(), Vec::new());
        let mut left = head.bytes;
        while left > 0 {
            let bytes = left.min(PART);
            let mut part = vec![0; usize::try_from(bytes).unwrap_or_default()];
            file.read_exact(&mut part).map_err(failed)?;
            whole.update(&part);
            parts.push(Part { offset, bytes, sha256: hex(&Sha256::digest(&part)) });
            offset += bytes;
            left -= bytes;
        }
        if hex(&whole.finalize()) != head.sha256 {
            return Err(refused("it is damaged: its digest is another one than its head has".to_owned()));
        }
        Ok(Bundle { path: path.to_owned(), head, parts })
    }

    /// The name of the folder that it is unpacked into.
    pub fn id(&self) -> &str {
        self.head.sha256.get(..16).unwrap_or(&self.head.sha256)
    }

    /// # Errors
    /// The file has changed meanwhile, or cannot be read any more.
    pub fn read(&self, part: &Part) -> Result<Vec<u8>, Error> {
        let read = || {
            let mut file = File::open(&self.path)?;
            file.seek(SeekFrom::Start(part.offset))?;
            let mut bytes = vec![0; usize::try_from(part.bytes).unwrap_or_default()];
            file.read_exact(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error: std::io::Error| {
            Error::local(format!("read the bundle {}", self.path.display()), error, crate::commands::pull::LOOK_AT_DISK)
        })
    }

    pub fn bytes(&self) -> u64 {
        self.head.bytes
    }
}

impl Part {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(folder: &Path, content: &[u8], claimed: &[u8]) -> PathBuf {
        let head =
            format!(r#"{{"version":"1","machine":"x86_64","bytes":{},"sha256":"{}"}}"#, claimed.len(), hex(&Sha256::digest(claimed)));
        let length = u32::try_from(head.len()).unwrap();
        let path = folder.join("bundle");
        std::fs::write(&path, [&FRAME.to_le_bytes(), &length.to_le_bytes(), head.as_bytes(), content].concat()).unwrap();
        path
    }

    #[test]
    fn a_bundle_is_sent_in_parts_that_together_are_it() {
        let folder = std::env::temp_dir().join(format!("yoi-bundle-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let content: Vec<u8> = (0..PART + 10).map(|at| (at % 251) as u8).collect();
        let bundle = Bundle::open(&write(&folder, &content, &content)).unwrap();
        assert_eq!(bundle.parts.len(), 2);
        let read: Vec<u8> = bundle.parts.iter().flat_map(|part| bundle.read(part).unwrap()).collect();
        assert!(read == content && bundle.id().len() == 16);
        for (content, claimed, words) in [(&content[..9], &content[..10], "it has 9"), (&content[..10], &content[1..11], "it is damaged")] {
            let refused = Bundle::open(&write(&folder, content, claimed)).unwrap_err().to_string();
            assert!(refused.contains(words) && refused.contains("cargo xtask bundle"), "{refused}");
        }
        std::fs::write(folder.join("bundle"), "no bundle at all").unwrap();
        let refused = Bundle::open(&folder.join("bundle")).unwrap_err().to_string();
        assert!(refused.contains("it is no bundle of Yoi"), "{refused}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
