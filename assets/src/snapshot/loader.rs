//! Reads all files, in order of precedence.

use sha2::{Digest, Sha256};

use super::parsed::{FileNow, Parsed, ParsedFiles, SameFile, digest_of};
use super::{AssetFile, AssetSnapshot, precedence};
use crate::diagnostic::Diagnostics;
use crate::folder::folder_of;
use crate::{Level, StrictError, Strictness, graph, is_asset};

/// As [`load`](super::load), and with the same result, but a file whose content is that of the snapshot before is not parsed again. The caller gives in `same`
/// only what [`ParsedFiles::knows`], and none of it in `files`.
///
/// # Errors
/// As [`load`](super::load).
pub fn load_again(
    parsed: &mut ParsedFiles,
    files: &[AssetFile],
    same: &[SameFile],
    generation: u64,
    strictness: Strictness,
) -> Result<AssetSnapshot, StrictError> {
    let mut before = parsed.begin(strictness);
    let mut diagnostics = Diagnostics::default();
    let read = files.iter().map(|file| FileNow { set: file.set, path: &file.path, digest: digest_of(file), read: Some(file) });
    let known = |file: &'_ SameFile| before.digest_of(file).unwrap_or_default();
    let same = same.iter().map(|file| FileNow { set: file.0, path: &file.1, digest: known(file), read: None });
    let mut placed: Vec<_> = read.chain(same).map(|file| (folder_of(file.path, file.set), file)).collect();
    placed.sort_by_key(|(place, file)| (file.set, place.map_or(usize::MAX, |(place, ..)| place), file.path));
    let digest = digest_of_all(placed.iter().map(|(_, file)| file));
    let mut snapshot = AssetSnapshot { generation, digest, ..AssetSnapshot::default() };
    let mut graph = graph::Builder::default();
    // For each skill, in their order.
    let mut nodes_of_skills = vec![];
    for (place, file) in placed {
        let Some((_, folder, below)) = place.filter(|(_, folder, below)| is_asset(folder, below)) else {
            // A folder that could not be looked into, or what lies outside of all of them.
            diagnostics.begin_file();
            if let Some(Err(reason)) = file.read.map(|read| &read.content) {
                diagnostics.push(file.path, None, Level::Error, reason.as_str());
            }
            continue;
        };
        let Some(file) = parsed.take_or_parse(&mut before, &file, folder, below) else { continue };
        diagnostics.extend(&file.diagnostics);
        match &file.content {
            Parsed::Skill(skill, node) => {
                snapshot.skills.push(skill.clone());
                nodes_of_skills.push(node.clone());
            }
            Parsed::Command(command) => snapshot.commands.push(command.clone()),
            Parsed::Workflow(workflow) => snapshot.workflows.push(workflow.clone()),
            Parsed::Triggers(triggers) => snapshot.triggers.extend_from_slice(triggers),
            Parsed::Graph(file) => graph.extend(file.clone(), &mut diagnostics),
        }
    }
    precedence::settle(&mut snapshot, strictness, &mut diagnostics);
    let in_effect = snapshot.skills.iter().zip(nodes_of_skills).filter(|(skill, _)| skill.state.is_valid());
    in_effect.filter_map(|(_, node)| node).for_each(|node| graph.add_skill(node));
    snapshot.graph = graph.finish(&mut diagnostics);
    snapshot.diagnostics = diagnostics.finish();
    let errors = || snapshot.diagnostics.iter().filter(|diagnostic| diagnostic.level == Level::Error);
    if strictness == Strictness::Strict && errors().next().is_some() {
        return Err(StrictError { diagnostics: errors().cloned().collect() });
    }
    Ok(snapshot)
}

/// Of paths and digests. The length stands before each path, so that no two sets of files are one text.
fn digest_of_all<'file>(files: impl Iterator<Item = &'file FileNow<'file>>) -> String {
    let mut sum = Sha256::new();
    for FileNow { path, digest, .. } in files {
        sum.update(path.len().to_le_bytes());
        sum.update(path.as_bytes());
        sum.update(digest);
    }
    format!("sha256:{}", hex::encode(sum.finalize()))
}
