//! What is closed to the agent's processes: the session volume, the token, the manifest, a program's preset and credentials.

use std::path::{Path, PathBuf};

use yoi_engine::error_text::error_text;
use yoi_engine::frame::{Frame, FrameSupport};
use yoi_engine::processes::ProcessSupervisor;
use yoi_wire::identity;

use crate::args::RuntimeSettings;

/// The folders as a Pod mounts them. Files in them are replaced when they change, so the folders are closed whole.
fn mounted() -> impl Iterator<Item = PathBuf> {
    let folders =
        [identity::SESSION_MOUNT, identity::TOKEN_MOUNT, identity::MANIFEST_MOUNT, identity::PRESET_MOUNT, identity::CREDENTIALS_MOUNT];
    folders.into_iter().map(PathBuf::from)
}

/// The frame of an agent. `program_home` is the one path of the session volume that is open: it is made here.
pub fn of_agent(settings: &RuntimeSettings, program_home: Option<&Path>) -> Frame {
    if let Some(home) = program_home
        && let Err(error) = std::fs::create_dir_all(home)
    {
        tracing::error!(%error, home = %home.display(), "HOME of the program not made");
    }
    let mut closed: Vec<PathBuf> = mounted().collect();
    closed.extend([settings.session.clone(), settings.token.clone(), settings.manifest_path.clone()]);
    if let Some(program) = &settings.manifest.program {
        closed.extend(program.credentials.as_ref().map(PathBuf::from));
        closed.extend(program.preset_file.as_ref().map(PathBuf::from));
    }
    Frame { write: program_home.map(Path::to_owned).into_iter().collect(), closed, volumes: true }
}

/// The frame of git in a reader.
pub fn of_reader(session: &Path, token: &Path) -> Frame {
    Frame { write: Vec::new(), closed: mounted().chain([session.to_owned(), token.to_owned()]).collect(), volumes: true }
}

/// Puts all programs that `processes` starts from now on into the frame, in which they also write the tree, HOME and folders for temporary files.
/// Returns what the kernel lacks for it, a sentence for people.
pub fn enter(processes: &mut ProcessSupervisor, mut frame: Frame, wanted: bool) -> Option<String> {
    if !wanted {
        return Some("the frame of the agent's processes was switched off when the runtime was started".to_owned());
    }
    let support = FrameSupport::of_this_kernel();
    if !support.governs_files() {
        return support.lacks();
    }
    open_own_folders(&mut frame, &[processes.root(), processes.temp(), Path::new("/tmp"), processes.home()]);
    match processes.enter_frame(frame) {
        Ok(()) => support.lacks(),
        Err(error) => {
            tracing::error!(error = error_text(&error), "frame not entered");
            Some(format!("the node's kernel refuses the frame of the agent's processes: {}", error_text(&error)))
        }
    }
}

/// Opens folders of the agent's to write. They outlive the container, and below `/tmp` the agent may have put a link to a closed folder in the place of one:
/// that stays closed.
fn open_own_folders(frame: &mut Frame, folders: &[&Path]) {
    let canonical = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let closed: Vec<PathBuf> = frame.closed.iter().map(|path| canonical(path)).collect();
    for folder in folders {
        let leads_to = canonical(folder);
        if !closed.iter().any(|closed| leads_to.starts_with(closed)) {
            frame.write.push(leads_to);
        } else if !frame.write.contains(&folder.to_path_buf()) {
            tracing::error!(folder = %folder.display(), leads_to = %leads_to.display(), "folder of the agent is a link to what is closed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_folder_of_the_agent_opens_nothing_that_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for folder in ["session/sessions", "session/homes/claude", "tmp/other"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for (link, target) in [("tmp/mine", "session/sessions"), ("tmp/whole", "session"), ("tmp/sound", "tmp/other")] {
            std::os::unix::fs::symlink(root.join(target), root.join(link)).unwrap();
        }
        let home = root.join("session/homes/claude");
        let mut frame = Frame { write: vec![home.clone()], closed: vec![root.join("session")], volumes: true };
        let folders = ["tmp", "tmp/mine", "tmp/whole", "tmp/sound", "tmp/none"].map(|folder| root.join(folder));
        open_own_folders(&mut frame, &[&folders[0], &folders[1], &folders[2], &folders[3], &folders[4], &home]);
        assert_eq!(frame.write, [home, root.join("tmp"), root.join("tmp/other"), root.join("tmp/none")]);
    }
}
