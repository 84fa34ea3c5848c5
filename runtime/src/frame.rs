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
    Frame { write: program_home.map(Path::to_owned).into_iter().collect(), closed }
}

/// The frame of git in a reader.
pub fn of_reader(session: &Path, token: &Path) -> Frame {
    Frame { write: Vec::new(), closed: mounted().chain([session.to_owned(), token.to_owned()]).collect() }
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
    frame.write.extend([processes.root(), processes.temp(), Path::new("/tmp"), processes.home()].map(Path::to_owned));
    match processes.enter_frame(frame) {
        Ok(()) => support.lacks(),
        Err(error) => {
            tracing::error!(error = error_text(&error), "frame not entered");
            Some(format!("the node's kernel refuses the frame of the agent's processes: {}", error_text(&error)))
        }
    }
}
