//! Copies a session volume into the repository and out of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Lengths of files before the zeros at their ends were left out, by path in the volume. A log preallocates 1 MiB of zeros.
pub type Padded = BTreeMap<String, u64>;

/// Copies the volume at `from` to the new folder `to`, without the zeros at the end of its files.
pub fn store(from: &Path, to: &Path) -> Padded {
    let mut padded = Padded::new();
    for (name, path) in files(from) {
        let mut bytes = std::fs::read(&path).unwrap();
        let len = bytes.len();
        bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
        if bytes.len() < len {
            padded.insert(name.clone(), len as u64);
        }
        write(&to.join(name), &bytes);
    }
    padded
}

/// Copies the stored volume at `from` to the folder `to`, byte for byte as it was.
pub fn restore(from: &Path, padded: &Padded, to: &Path) {
    for (name, path) in files(from) {
        let path_there = to.join(&name);
        write(&path_there, &std::fs::read(path).unwrap());
        // The repository keeps no empty folders.
        if name.ends_with(".jsonl") {
            std::fs::create_dir_all(path_there.with_file_name("inbox")).unwrap();
        }
        if let Some(len) = padded.get(&name) {
            std::fs::OpenOptions::new().write(true).open(path_there).unwrap().set_len(*len).unwrap();
        }
    }
}

/// All files below a folder, by their path in it.
pub fn files(root: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), path);
            }
        }
    }
    found
}

/// The only segment of the only session of a volume.
pub fn segment(root: &Path) -> PathBuf {
    let mut segments = files(root).into_values().filter(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    let segment = segments.next().unwrap();
    assert!(segments.next().is_none());
    segment
}

fn write(path: &Path, bytes: &[u8]) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, bytes).unwrap();
}
