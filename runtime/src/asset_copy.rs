//! Copies skills, commands, workflows and instructions of an image into a folder that the agent's container mounts. It runs in a container of that image, and starts nothing.
//!
//! # Guarantees
//! At most 2,000 files and folders of 16 MiB together are written, 8 deep. Links are copied as links, and whoever reads them decides
//! where they may lead. What is no file, folder or link is left out.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use yoi_engine::error_text::error_text;
use yoi_wire::identity::{ASSET_FAILURE, ASSET_FILES};

use crate::args::CopyAssetsArgs;

/// The most files, links and folders.
const MAX_FILES: usize = 2_000;
/// The most bytes of all files together.
const MAX_BYTES: u64 = 16 << 20;
/// How deep below each of [`FOLDERS`] folders are entered.
const MAX_DEPTH: usize = 8;
/// The folders that are copied. Messages name the two that most images have.
const FOLDERS: [&str; 4] = ["skills", "commands", "workflows", "skill_graph"];
/// The file with a team's instructions.
const INSTRUCTIONS: &str = "AGENTS.md";

/// Nothing is there for the agent.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The image has nothing of the kind there.
    #[error(
        "the folder {} of the image has no files in skills or commands, or the image was not pulled: name the folder that holds these two in \
         spec.assets.from[].image.path",
        .0.display()
    )]
    Nothing(PathBuf),
    /// One of the bounds.
    #[error("the image has more than {MAX_FILES} files and folders in skills and commands")]
    TooMany,
    /// One of the bounds.
    #[error("the image has more than {} MiB in skills and commands", MAX_BYTES >> 20)]
    TooLarge,
    /// One of the bounds.
    #[error("the image has folders more than {MAX_DEPTH} deep in skills or commands: {}", .0.display())]
    TooDeep(PathBuf),
    /// A file or folder of the image.
    #[error("failed to read {} of the image", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// The folder that the agent mounts.
    #[error("failed to write {}", path.display())]
    Write { path: PathBuf, source: io::Error },
}

/// Copies, and says on standard error and in the file of the end why not.
pub fn run(CopyAssetsArgs { from, to, lenient, end }: &CopyAssetsArgs) -> ExitCode {
    let Err(error) = copy(from, to) else { return ExitCode::SUCCESS };
    let why = error_text(&error);
    eprintln!("{why}");
    if !lenient {
        return ExitCode::FAILURE;
    }
    let told = clear(to).and_then(|()| fs::write(to.join(ASSET_FAILURE), &why).map_err(write_error(to)));
    match told.and_then(|()| fs::write(end, &why).map_err(write_error(end))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{}", error_text(&error));
            ExitCode::FAILURE
        }
    }
}

/// Copies [`FOLDERS`] and [`INSTRUCTIONS`] of `from` below the folder `files` of `to`.
///
/// # Errors
/// There is nothing to copy, or too much, or the system's.
pub fn copy(from: &Path, to: &Path) -> Result<(), CopyError> {
    clear(to)?;
    let files = to.join(ASSET_FILES);
    let mut copy = Copy { files: 0, bytes: 0 };
    make_folder(&files)?;
    for folder in FOLDERS.map(|name| (from.join(name), files.join(name))) {
        // A link could lead to all that a container has.
        if folder.0.symlink_metadata().is_ok_and(|found| found.is_dir()) {
            copy.folder(&folder.0, &folder.1, 0)?;
        }
    }
    let instructions = from.join(INSTRUCTIONS);
    if instructions.symlink_metadata().is_ok_and(|found| found.is_file()) {
        copy.count()?;
        copy.file(&instructions, &files.join(INSTRUCTIONS))?;
    }
    if copy.files == 0 { Err(CopyError::Nothing(from.to_owned())) } else { Ok(()) }
}

fn read_error(path: &Path) -> impl FnOnce(io::Error) -> CopyError {
    let path = path.to_owned();
    |source| CopyError::Read { path, source }
}

fn write_error(path: &Path) -> impl FnOnce(io::Error) -> CopyError {
    let path = path.to_owned();
    |source| CopyError::Write { path, source }
}

/// A former try may have left anything.
fn clear(folder: &Path) -> Result<(), CopyError> {
    for entry in fs::read_dir(folder).map_err(write_error(folder))? {
        let path = entry.map_err(write_error(folder))?.path();
        let is_folder = path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(write_error(&path))?;
    }
    Ok(())
}

fn make_folder(path: &Path) -> Result<(), CopyError> {
    fs::create_dir(path).map_err(write_error(path))
}

/// What was written.
struct Copy {
    /// Folders and links among them.
    files: usize,
    bytes: u64,
}

impl Copy {
    /// Counts one more file, link or folder.
    fn count(&mut self) -> Result<(), CopyError> {
        self.files += 1;
        if self.files > MAX_FILES { Err(CopyError::TooMany) } else { Ok(()) }
    }

    fn folder(&mut self, from: &Path, to: &Path, depth: usize) -> Result<(), CopyError> {
        if depth > MAX_DEPTH {
            return Err(CopyError::TooDeep(from.to_owned()));
        }
        make_folder(to)?;
        for entry in fs::read_dir(from).map_err(read_error(from))? {
            let entry = entry.map_err(read_error(from))?;
            let (from, to) = (entry.path(), to.join(entry.file_name()));
            let kind = entry.file_type().map_err(read_error(&from))?;
            self.count()?;
            if kind.is_dir() {
                self.folder(&from, &to, depth + 1)?;
            } else if kind.is_file() {
                self.file(&from, &to)?;
            } else if kind.is_symlink() {
                let target = fs::read_link(&from).map_err(read_error(&from))?;
                symlink(target, &to).map_err(write_error(&to))?;
            }
        }
        Ok(())
    }

    fn file(&mut self, from: &Path, to: &Path) -> Result<(), CopyError> {
        let file = File::open(from).map_err(read_error(from))?;
        let is_program = file.metadata().map_err(read_error(from))?.permissions().mode() & 0o111 != 0;
        let mut content = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut content).map_err(read_error(from))?;
        self.bytes += content.len() as u64;
        if self.bytes > MAX_BYTES {
            return Err(CopyError::TooLarge);
        }
        let mode = if is_program { 0o755 } else { 0o644 };
        let written = File::options().write(true).create_new(true).mode(mode).open(to).and_then(|mut file| file.write_all(&content));
        written.map_err(write_error(to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    #[test]
    fn skills_and_commands_of_an_image_are_copied_with_their_files_and_nothing_else_is() {
        let dir = tempfile::tempdir().unwrap();
        let (image, set) = (dir.path().join("image"), dir.path().join("set"));
        fs::create_dir(&set).unwrap();
        write(&set.join("files/skills/old/SKILL.md"), "of a former try");
        write(&image.join("skills/a/SKILL.md"), "a");
        write(&image.join("skills/a/scripts/run.sh"), "echo");
        fs::set_permissions(image.join("skills/a/scripts/run.sh"), fs::Permissions::from_mode(0o700)).unwrap();
        write(&image.join("commands/b.md"), "b");
        write(&image.join("skill_graph/c.md"), "c");
        write(&image.join("AGENTS.md"), "d");
        write(&image.join("other/c.md"), "c");
        symlink("/etc/passwd", image.join("skills/a/link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, image.join("skills/a/fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
        copy(&image, &set).unwrap();
        let files = set.join(ASSET_FILES);
        assert_eq!(fs::read_to_string(files.join("skills/a/SKILL.md")).unwrap(), "a");
        assert_eq!(fs::metadata(files.join("skills/a/scripts/run.sh")).unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_to_string(files.join("commands/b.md")).unwrap(), "b");
        assert_eq!(fs::read_to_string(files.join("skill_graph/c.md")).unwrap(), "c");
        assert_eq!(fs::read_to_string(files.join("AGENTS.md")).unwrap(), "d");
        assert_eq!(fs::read_link(files.join("skills/a/link")).unwrap(), Path::new("/etc/passwd"), "it stays a link");
        for absent in ["skills/old", "other", "skills/a/fifo"] {
            assert!(files.join(absent).symlink_metadata().is_err(), "{absent}");
        }
    }

    #[test]
    fn an_image_with_nothing_too_much_or_a_link_in_place_of_its_skills_is_refused_and_a_lenient_set_holds_why() {
        let dir = tempfile::tempdir().unwrap();
        let set = dir.path().join("set");
        fs::create_dir(&set).unwrap();
        let image = |name: &str| dir.path().join(name);
        fs::create_dir_all(image("empty")).unwrap();
        fs::create_dir_all(image("linked")).unwrap();
        symlink("/", image("linked/skills")).unwrap();
        for number in 0..=MAX_FILES {
            write(&image("many").join(format!("commands/{number}.md")), "x");
        }
        fs::create_dir_all(image("large/commands")).unwrap();
        File::create(image("large/commands/a.md")).unwrap().set_len(MAX_BYTES + 1).unwrap();
        write(&image("deep").join("skills/1/2/3/4/5/6/7/8/9/SKILL.md"), "x");
        let refused = |name: &str| error_text(&copy(&image(name), &set).unwrap_err());
        assert!(refused("empty").contains("has no files in skills or commands"), "{}", refused("empty"));
        assert_eq!(refused("linked"), refused("empty").replace("/empty", "/linked"));
        assert!(refused("many").contains("more than 2000 files"));
        assert!(refused("large").contains("more than 16 MiB"));
        assert!(refused("deep").contains("more than 8 deep"));
        let end = dir.path().join("end");
        let args = |lenient| CopyAssetsArgs { from: image("large"), to: set.clone(), lenient, end: end.clone() };
        assert_eq!(run(&args(false)), ExitCode::FAILURE);
        assert!(!end.exists());
        assert_eq!(run(&args(true)), ExitCode::SUCCESS);
        assert!(fs::read_to_string(&end).unwrap().contains("more than 16 MiB"));
        assert_eq!(fs::read_to_string(set.join(ASSET_FAILURE)).unwrap(), fs::read_to_string(&end).unwrap());
        assert!(!set.join(ASSET_FILES).exists(), "what was copied before is of no use");
    }
}
