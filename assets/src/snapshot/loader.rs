//! Reads all files, in order of precedence.

use sha2::{Digest, Sha256};

use super::parsed::{FileDigest, Parsed, digest_of};
use super::{AssetFile, AssetSnapshot, ParsedFiles, precedence};
use crate::diagnostic::Diagnostics;
use crate::folder::folder_of;
use crate::{Level, StrictError, Strictness, graph, is_asset};

pub(super) fn load(
    parsed: &mut ParsedFiles,
    files: &[AssetFile],
    generation: u64,
    strictness: Strictness,
) -> Result<AssetSnapshot, StrictError> {
    let mut before = parsed.begin(strictness);
    let mut diagnostics = Diagnostics::default();
    let mut placed: Vec<_> = files.iter().map(|file| (folder_of(&file.path, file.set), file, digest_of(file))).collect();
    placed.sort_by_key(|(place, file, _)| (file.set, place.map_or(usize::MAX, |(place, ..)| place), file.path.as_str()));
    let mut snapshot = AssetSnapshot { generation, digest: digest_of_all(&placed), ..AssetSnapshot::default() };
    let mut graph = graph::Builder::default();
    // For each skill, in their order.
    let mut nodes_of_skills = vec![];
    for (place, file, digest) in placed {
        let Some((_, folder, below)) = place.filter(|(_, folder, below)| is_asset(folder, below)) else {
            // A folder that could not be looked into, or what lies outside of all of them.
            diagnostics.begin_file();
            if let Err(reason) = &file.content {
                diagnostics.push(&file.path, None, Level::Error, reason.as_str());
            }
            continue;
        };
        let file = parsed.take_or_parse(&mut before, file, digest, folder, below);
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

/// Of paths and content. Lengths stand between them, so that no two sets of files are one text.
fn digest_of_all<Place>(files: &[(Place, &AssetFile, FileDigest)]) -> String {
    let mut sum = Sha256::new();
    for (_, file, digest) in files {
        sum.update(file.path.len().to_le_bytes());
        sum.update(file.path.as_bytes());
        sum.update(digest);
    }
    format!("sha256:{}", hex::encode(sum.finalize()))
}
