//! A session volume that stood ready before its agent came: what somebody else has written on it is no session of this agent.

use std::path::Path;

use yoi_engine::open_session::disk;
use yoi_session::Lock;
use yoi_wire::hub::ReportReason;

use crate::status::NotReady;

/// What a file system makes by itself.
const OF_FILE_SYSTEM: &str = "lost+found";

/// Why the volume at `session` cannot hold a new session: something is on it that the Pod `pod_uid` has not written. `None` when it can, or when it cannot be
/// read, which opening the session says better.
#[must_use]
pub fn not_empty(session: &Path, pod_uid: &str) -> Option<NotReady> {
    let holders = Lock::holders(&*disk(), session).unwrap_or_default();
    // The container starts again.
    if !holders.is_empty() && holders.iter().all(|holder| holder.pod_uid == pod_uid) {
        return None;
    }
    let names = std::fs::read_dir(session).ok()?.flatten().map(|entry| entry.file_name());
    let found = names.filter(|name| name != OF_FILE_SYSTEM).min()?;
    // Whoever wrote it has chosen the name.
    let found = found.to_string_lossy().escape_debug().to_string();
    let message = format!(
        "{found} is on the session volume, which stood ready and was to be empty: somebody wrote into its claim before this agent took it"
    );
    Some(NotReady { reason: ReportReason::SessionNotEmpty, message, volume_run_generation: None })
}

#[cfg(test)]
mod tests {
    use yoi_session::Holder;

    use super::*;

    #[test]
    fn a_volume_is_new_while_nobody_but_this_pod_has_written_on_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir(path.join(OF_FILE_SYSTEM)).unwrap();
        assert_eq!(not_empty(path, "p"), None);
        let holder = Holder { run_generation: 1, pod_uid: "p".to_owned() };
        drop(Lock::take(disk(), path, holder).unwrap());
        std::fs::create_dir(path.join("sessions")).unwrap();
        assert_eq!(not_empty(path, "p"), None, "its container starts again");
        let why = not_empty(path, "q").unwrap();
        assert_eq!(why.reason, ReportReason::SessionNotEmpty);
        assert!(why.message.starts_with("lock is on the session volume"), "{}", why.message);
    }
}
