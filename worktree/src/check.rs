//! A bundle that came from elsewhere, before anything is made of it.

use std::fs::File;
use std::io::{BufReader, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::git::{Git, GitError, quoted};
use crate::header::{BundleHeader, HeaderError};
use crate::names;

/// What a bundle may be.
#[derive(Clone, Debug)]
pub struct Rules<'a> {
    /// The only name in it.
    pub name: &'a str,
    /// Bytes of the file.
    pub bytes: u64,
    /// Bytes of its objects, once they are unpacked by git as one pack.
    pub pack_bytes: u64,
    /// Paths of the tree of its commit.
    pub paths: usize,
    /// Whether names that Windows cannot hold are refused, too.
    pub windows_names: bool,
}

/// A bundle that may be taken. Its objects are in the folder that was given to [`check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checked {
    /// The commit that the name leads to.
    pub commit: String,
    /// Commits that it is made on top of, each of which the repository has.
    pub on: Vec<String>,
}

/// Why a bundle is refused. Nothing of it is in the repository.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// git cannot be run, or its folder not be used.
    #[error(transparent)]
    Git(GitError),
    /// The file cannot be read.
    #[error("failed to read the bundle {}", .0.display())]
    Read(PathBuf, #[source] std::io::Error),
    /// It is longer than the rules say.
    #[error("the bundle is {bytes} bytes, and at most {most} are taken")]
    TooLarge {
        /// Its length.
        bytes: u64,
        /// The limit.
        most: u64,
    },
    /// It is none, or one of a kind that is not known.
    #[error(transparent)]
    NoBundle(HeaderError),
    /// It holds other names, or several.
    #[error("the bundle holds {found}, and only {wanted} is taken")]
    OtherName {
        /// The names in it.
        found: String,
        /// The only one.
        wanted: String,
    },
    /// It is of another repository, or of a later state of this one.
    #[error("the bundle is made on top of commit {0}, which is not here: is it of this project?")]
    NotOnOurs(String),
    /// It was cut, or an object is damaged or not as git's own check wants it.
    #[error("the bundle is damaged: {0}")]
    Damaged(String),
    /// More than can be checked.
    #[error("the bundle's tree has more than {0} paths")]
    TooMany(usize),
    /// A path that is no place for a file.
    #[error("the bundle holds the path {path}: {why}")]
    Path {
        /// The path, with what cannot be shown escaped.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// Checks a bundle for the repository at `repository`, which is only read. The objects are unpacked into the folder `quarantine`, which must be empty.
///
/// # Errors
/// The bundle is not what the rules say.
pub fn check(file: &Path, repository: &Path, quarantine: &Path, rules: &Rules<'_>) -> Result<Checked, CheckError> {
    let unreadable = |error| CheckError::Read(file.to_owned(), error);
    let mut reader = BufReader::new(File::open(file).map_err(unreadable)?);
    let bytes = reader.get_ref().metadata().map_err(unreadable)?.len();
    if bytes > rules.bytes {
        return Err(CheckError::TooLarge { bytes, most: rules.bytes });
    }
    let header = BundleHeader::read(&mut reader).map_err(|why| match why {
        HeaderError::Read(error) => unreadable(error),
        why => CheckError::NoBundle(why),
    })?;
    let names: Vec<&str> = header.refs.iter().map(|(_, name)| name.as_str()).collect();
    let [(commit, name)] = header.refs.as_slice() else { return Err(other_name(&names, rules.name)) };
    if name != rules.name {
        return Err(other_name(&names, rules.name));
    }
    let ours = Git::in_folder(repository);
    for needed in &header.prerequisites {
        if !ours.succeeds(&["cat-file", "-e", &format!("{needed}^{{commit}}")]).map_err(CheckError::Git)? {
            return Err(CheckError::NotOnOurs(needed.clone()));
        }
    }
    let objects = ours.line(&["rev-parse", "--path-format=absolute", "--git-path", "objects"]).map_err(CheckError::Git)?;
    let with_bundle = ours.with("GIT_OBJECT_DIRECTORY", quarantine).with("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(Path::new(&objects)));
    let mut pack = reader.into_inner();
    pack.seek(SeekFrom::Start(header.pack_offset)).map_err(unreadable)?;
    let most = format!("--max-input-size={}", rules.pack_bytes);
    let damaged = |error: GitError| match error {
        GitError::Failed { words, .. } => CheckError::Damaged(words),
        other => CheckError::Git(other),
    };
    with_bundle.run_with_file(&["index-pack", "--strict", "--fix-thin", "--stdin", &most], pack).map_err(damaged)?;
    // Every object that the commit leads to must be here.
    with_bundle.run(&["rev-list", "--objects", "--quiet", commit, "--not", "--all"], &[]).map_err(damaged)?;
    check_paths(&with_bundle, commit, rules)?;
    Ok(Checked { commit: commit.clone(), on: header.prerequisites.clone() })
}

fn check_paths(git: &Git, commit: &str, rules: &Rules<'_>) -> Result<(), CheckError> {
    let listed = git.run(&["ls-tree", "-r", "-z", "--full-tree", "--name-only", commit], &[]).map_err(CheckError::Git)?;
    for (count, path) in listed.split(|byte| *byte == 0).filter(|path| !path.is_empty()).enumerate() {
        if count >= rules.paths {
            return Err(CheckError::TooMany(rules.paths));
        }
        if let Some(why) = names::refused(path, rules.windows_names) {
            return Err(CheckError::Path { path: path.escape_ascii().to_string(), why });
        }
    }
    Ok(())
}

fn other_name(found: &[&str], wanted: &str) -> CheckError {
    let found = if found.is_empty() { "no name".to_owned() } else { found.join(", ").escape_debug().to_string() };
    CheckError::OtherName { found, wanted: wanted.to_owned() }
}
