//! What single files say, kept from one snapshot to the next.

use std::collections::BTreeMap;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::AssetFile;
use crate::diagnostic::Diagnostics;
use crate::folder::{Folder, Kind, Source, TRIGGERS};
use crate::graph::{self, GraphFile, RawNode};
use crate::reading::Reading;
use crate::{Command, GlobalTrigger, MAX_FILE_BYTES, Skill, Strictness, Workflow, command, skill, workflow};

/// A file that has the content that it had at the last load: its set and its path.
pub type SameFile = (Option<u16>, String);

/// The files of the last snapshot as they were parsed, by their content. The snapshot shares them, so they take little room beside it.
#[derive(Debug, Default)]
pub struct ParsedFiles {
    strictness: Strictness,
    /// By the set and the path.
    files: BTreeMap<SameFile, ParsedFile>,
}

/// Of a sign and the content, or the reason why it could not be read: by the sign such a file differs from one that holds these words.
pub(super) type FileDigest = [u8; 32];

/// A file that a snapshot is made of.
pub(super) struct FileNow<'file> {
    pub(super) set: Option<u16>,
    pub(super) path: &'file str,
    pub(super) digest: FileDigest,
    /// `None`: its content is that of before.
    pub(super) read: Option<&'file AssetFile>,
}

/// One file.
#[derive(Debug)]
pub(super) struct ParsedFile {
    digest: FileDigest,
    pub(super) content: Parsed,
    pub(super) diagnostics: Diagnostics,
}

/// What it says, before it is known what the others say.
#[derive(Debug)]
pub(super) enum Parsed {
    /// With the node that it is of the graph, if it is one of jido.
    Skill(Arc<Skill>, Option<Arc<RawNode>>),
    Command(Arc<Command>),
    Workflow(Arc<Workflow>),
    Triggers(Vec<GlobalTrigger>),
    Graph(Option<GraphFile>),
}

impl ParsedFiles {
    /// Whether it has the file, parsed with this strictness.
    #[must_use]
    pub fn knows(&self, file: &SameFile, strictness: Strictness) -> bool {
        self.strictness == strictness && self.files.contains_key(file)
    }

    /// The digest of a file that it has.
    pub(super) fn digest_of(&self, file: &SameFile) -> Option<FileDigest> {
        self.files.get(file).map(|parsed| parsed.digest)
    }

    /// Begins another snapshot, and returns what the one before had. How strictly a file is read is a part of what it says.
    pub(super) fn begin(&mut self, strictness: Strictness) -> Self {
        let before = std::mem::replace(self, Self { strictness, files: BTreeMap::new() });
        if before.strictness == strictness { before } else { Self::default() }
    }

    /// The file as it was parsed `before`, or as it is parsed now. `None`: it is not read now, and was not before.
    pub(super) fn take_or_parse(&mut self, before: &mut Self, file: &FileNow<'_>, folder: &Folder, below: &str) -> Option<&ParsedFile> {
        let key = (file.set, file.path.to_owned());
        let known = before.files.remove(&key).filter(|known| known.digest == file.digest);
        let parsed = known.or_else(|| file.read.map(|read| parse(read, file.digest, folder, below, self.strictness)))?;
        Some(self.files.entry(key).insert_entry(parsed).into_mut())
    }
}

fn parse(file: &AssetFile, digest: FileDigest, folder: &Folder, below: &str, strictness: Strictness) -> ParsedFile {
    let mut diagnostics = Diagnostics::default();
    let text = text_of(file);
    let reading = Reading::new(&file.path, strictness, &mut diagnostics);
    let content = match folder.kind {
        Kind::Skills => {
            let skill = skill::read(reading, folder.source, text);
            let node = folder.source.is_jido().then(|| Arc::new(graph::node_of_skill(&skill)));
            Parsed::Skill(Arc::new(skill), node)
        }
        Kind::Commands if folder.source == Source::Gemini => {
            Parsed::Command(Arc::new(command::read_toml(reading, folder.source, below, text)))
        }
        Kind::Commands => Parsed::Command(Arc::new(command::read_markdown(reading, folder.source, text))),
        Kind::Workflows if below == TRIGGERS => Parsed::Triggers(workflow::read_triggers(reading, folder.source, text)),
        Kind::Workflows => Parsed::Workflow(Arc::new(workflow::read(reading, folder.source, text))),
        Kind::Graph => Parsed::Graph(graph::read(reading, below, text)),
    };
    ParsedFile { digest, content, diagnostics }
}

/// The text of a file, or why it has none, with the line.
fn text_of(file: &AssetFile) -> Result<&str, (String, Option<u32>)> {
    let bytes = file.content.as_ref().map_err(|reason| (reason.clone(), None))?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_FILE_BYTES) {
        return Err((format!("is longer than {MAX_FILE_BYTES} bytes"), None));
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let lines = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count();
        ("is not UTF-8".to_owned(), u32::try_from(lines + 1).ok())
    })
}

pub(super) fn digest_of(file: &AssetFile) -> FileDigest {
    let (sign, content) = match &file.content {
        Ok(bytes) => (b"f", bytes.as_slice()),
        Err(reason) => (b"e", reason.as_bytes()),
    };
    Sha256::new().chain_update(sign).chain_update(content).finalize().into()
}
