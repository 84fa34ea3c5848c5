//! A commit, and what the other side lacks of it, in one file.

use std::fs::File;
use std::io::{Read, Write};
use std::path::Path;

use crate::capture::{CaptureError, Source, place};
use crate::git::{GitError, failed};

/// Why there is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// The repository cannot be opened.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// git failed, or a file.
    #[error(transparent)]
    Git(#[from] GitError),
    /// Nothing of it is left.
    #[error("the bundle is longer than {0} bytes")]
    TooLarge(u64),
}

/// Writes `commit` under the name `name` to the file `to`, which must not exist, without what the commits `have` lead to. Returns its length.
///
/// The name is in no repository. Of `have`, those that this repository does not hold are left out.
///
/// # Errors
/// git fails, or there are more than `most` bytes: then the file is gone.
pub fn write_bundle(
    source: &Source,
    private: &Path,
    commit: &str,
    name: &str,
    have: &[String],
    to: &Path,
    most: u64,
) -> Result<u64, BundleError> {
    let written = write(source, private, commit, name, have, to, most);
    if written.is_err() {
        let _ = std::fs::remove_file(to);
    }
    written
}

fn write(source: &Source, private: &Path, commit: &str, name: &str, have: &[String], to: &Path, most: u64) -> Result<u64, BundleError> {
    let place = place(source, private)?;
    let file_error = |error| GitError::File(to.to_owned(), error);
    let mut known = Vec::new();
    for there in have {
        if place.git.succeeds(&["cat-file", "-e", &format!("{there}^{{commit}}")])? {
            known.push(there);
        }
    }
    let header = match commit.len() {
        // The only other length is that of SHA-256.
        40 => "# v2 git bundle\n".to_owned(),
        _ => "# v3 git bundle\n@object-format=sha256\n".to_owned(),
    };
    let needed: String = known.iter().map(|there| format!("-{there}\n")).collect();
    let mut file = File::create_new(to).map_err(file_error)?;
    let header = format!("{header}{needed}{commit} {name}\n\n");
    file.write_all(header.as_bytes()).map_err(file_error)?;
    let input = format!("{commit}\n--not\n{}", known.iter().map(|there| format!("{there}\n")).collect::<String>());
    let words_path = private.join("pack-objects.log");
    let words = File::create(&words_path).map_err(|error| GitError::File(words_path.clone(), error))?;
    let args = ["pack-objects", "--revs", "--thin", "--stdout", "--delta-base-offset", "--quiet"];
    let mut child = place.git.start(&args, input.as_bytes(), words)?;
    let mut length = header.len() as u64;
    let mut out = child.stdout.take();
    let mut chunk = vec![0; 64 << 10];
    let copied: Result<(), BundleError> = loop {
        let Some(from) = &mut out else { break Ok(()) };
        match from.read(&mut chunk) {
            Ok(0) => break Ok(()),
            Ok(count) => {
                length += count as u64;
                if length > most {
                    break Err(BundleError::TooLarge(most));
                }
                if let Err(error) = file.write_all(chunk.get(..count).unwrap_or_default()) {
                    break Err(file_error(error).into());
                }
            }
            Err(error) => break Err(GitError::Start(error).into()),
        }
    };
    if copied.is_err() {
        let _ = child.kill();
    }
    let status = child.wait().map_err(GitError::Start)?;
    copied?;
    if !status.success() {
        return Err(failed(&args, &std::fs::read(&words_path).unwrap_or_default()).into());
    }
    file.sync_all().map_err(file_error)?;
    Ok(length)
}
