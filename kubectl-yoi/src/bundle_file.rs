//! A git bundle that came from an agent, in a folder of its own. Nothing in it is trusted: the agent may have written any byte of it.

use std::fs::File;
use std::io::{self, BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use yoi_worktree::{BundleHeader, HeaderError};

/// The bundle, and a folder for its objects while they are looked at. Both go when this is dropped.
pub struct BundleFile {
    folder: PathBuf,
}

impl BundleFile {
    /// An empty file, and it open for writing.
    pub fn create() -> io::Result<(Self, File)> {
        let folder = std::env::temp_dir().join(format!("kubectl-yoi-{}", uuid::Uuid::new_v4()));
        std::fs::create_dir(&folder)?;
        let bundle = BundleFile { folder };
        std::fs::create_dir(bundle.objects())?;
        let file = File::create_new(bundle.path())?;
        Ok((bundle, file))
    }

    pub fn path(&self) -> PathBuf {
        self.folder.join("bundle")
    }

    /// Where git puts the objects that are only looked at.
    pub fn objects(&self) -> PathBuf {
        self.folder.join("objects")
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn header(&self) -> Result<BundleHeader, HeaderError> {
        BundleHeader::read(&mut BufReader::new(File::open(self.path())?))
    }

    /// The file, open where the pack begins.
    pub fn pack(&self, header: &BundleHeader) -> io::Result<File> {
        let mut file = File::open(self.path())?;
        file.seek(SeekFrom::Start(header.pack_offset))?;
        Ok(file)
    }
}

impl Drop for BundleFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
