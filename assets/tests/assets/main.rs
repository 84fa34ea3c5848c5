//! What users write, and what becomes of it: files in, a snapshot out.

mod bounds;
mod commands;
mod graphs;
mod mutations;
mod sets;
mod skills;
mod standard;
mod triggers;
mod workflows;

use yoi_assets::{AssetFile, AssetSnapshot, Level, Strictness, load};

/// A file with a text.
fn file(path: &str, text: impl AsRef<[u8]>) -> AssetFile {
    AssetFile { path: path.to_owned(), set: None, content: Ok(text.as_ref().to_vec()) }
}

/// A file of a set that is not of the tree.
fn of_set(set: u16, path: &str, text: impl AsRef<[u8]>) -> AssetFile {
    AssetFile { set: Some(set), ..file(path, text) }
}

fn lenient(files: &[AssetFile]) -> AssetSnapshot {
    load(files, 1, Strictness::Lenient).expect("lenient reading refuses nothing")
}

/// The diagnostics of a level, as `path:line: sentence`.
fn messages(snapshot: &AssetSnapshot, level: Level) -> Vec<String> {
    snapshot.diagnostics.iter().filter(|diagnostic| diagnostic.level == level).map(ToString::to_string).collect()
}

/// Whether one of them has these words.
#[track_caller]
fn assert_message(snapshot: &AssetSnapshot, level: Level, words: &str) {
    let found = messages(snapshot, level);
    assert!(found.iter().any(|line| line.contains(words)), "no {level:?} says {words:?}: {found:#?}");
}

fn skill(name: &str, description: &str) -> String {
    format!("---\nname: {name}\ndescription: {description}\n---\n\n# {name}\n\nDo it.\n")
}
