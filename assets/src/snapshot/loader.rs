//! Reads all files, in order of precedence.

use sha2::{Digest, Sha256};

use super::{AssetFile, AssetSnapshot, precedence};
use crate::diagnostic::Diagnostics;
use crate::folder::{Kind, Source, TRIGGERS, folder_of};
use crate::reading::Reading;
use crate::{Level, MAX_FILE_BYTES, StrictError, Strictness, command, graph, is_asset, skill, workflow};

pub(super) fn load(files: &[AssetFile], generation: u64, strictness: Strictness) -> Result<AssetSnapshot, StrictError> {
    let mut diagnostics = Diagnostics::default();
    let mut placed: Vec<_> = files.iter().map(|file| (folder_of(&file.path, file.set), file)).collect();
    placed.sort_by_key(|(place, file)| (file.set, place.map_or(usize::MAX, |(place, ..)| place), file.path.as_str()));
    let mut snapshot = AssetSnapshot { generation, digest: digest(placed.iter().map(|(_, file)| *file)), ..AssetSnapshot::default() };
    let mut graph = graph::Builder::default();
    for (place, file) in placed {
        let Some((_, folder, below)) = place.filter(|(_, folder, below)| is_asset(folder, below)) else {
            // A folder that could not be looked into, or what lies outside of all of them.
            diagnostics.begin_file();
            if let Err(reason) = &file.content {
                diagnostics.push(&file.path, None, Level::Error, reason.as_str());
            }
            continue;
        };
        let content = text_of(file);
        let reading = Reading::new(&file.path, strictness, &mut diagnostics);
        match folder.kind {
            Kind::Skills => snapshot.skills.push(skill::read(reading, folder.source, content)),
            Kind::Commands if folder.source == Source::Gemini => {
                snapshot.commands.push(command::read_toml(reading, folder.source, below, content));
            }
            Kind::Commands => snapshot.commands.push(command::read_markdown(reading, folder.source, content)),
            Kind::Workflows if below == TRIGGERS => snapshot.triggers.extend(workflow::read_triggers(reading, folder.source, content)),
            Kind::Workflows => snapshot.workflows.push(workflow::read(reading, folder.source, content)),
            Kind::Graph => graph.add(reading, below, content),
        }
    }
    precedence::settle(&mut snapshot, strictness, &mut diagnostics);
    for skill in snapshot.skills.iter().filter(|skill| skill.source.is_jido() && skill.state.is_valid()) {
        graph.add_skill(skill);
    }
    snapshot.graph = graph.finish(&mut diagnostics);
    snapshot.diagnostics = diagnostics.finish();
    let errors = || snapshot.diagnostics.iter().filter(|diagnostic| diagnostic.level == Level::Error);
    if strictness == Strictness::Strict && errors().next().is_some() {
        return Err(StrictError { diagnostics: errors().cloned().collect() });
    }
    Ok(snapshot)
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

/// Of paths and content. Lengths stand between them, so that no two sets of files are one text.
fn digest<'file>(files: impl Iterator<Item = &'file AssetFile>) -> String {
    let mut sum = Sha256::new();
    for file in files {
        let (sign, content) = match &file.content {
            Ok(bytes) => (b'f', bytes.as_slice()),
            Err(reason) => (b'e', reason.as_bytes()),
        };
        sum.update(file.path.len().to_le_bytes());
        sum.update(file.path.as_bytes());
        sum.update([sign]);
        sum.update(content.len().to_le_bytes());
        sum.update(content);
    }
    format!("sha256:{}", hex::encode(sum.finalize()))
}
