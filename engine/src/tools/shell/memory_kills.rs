//! How often the kernel has killed a process of this container because its memory limit was reached.

use std::fs;
use std::path::{Path, PathBuf};

/// The counter of the control group in which this process and all programs that it starts run.
#[derive(Clone, Debug)]
pub struct MemoryKills {
    /// The file with a line `oom_kill N`: `memory.events` in version 2 of control groups, `memory.oom_control` in version 1.
    file: Option<PathBuf>,
}

impl MemoryKills {
    /// The counter of this process's group.
    #[must_use]
    pub fn of_this_process() -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self { file: candidates(&groups, Path::new("/sys/fs/cgroup")).into_iter().find(|file| count(file).is_some()) }
    }

    #[cfg(test)]
    pub fn in_file(file: PathBuf) -> Self {
        Self { file: Some(file) }
    }

    /// Kills so far; `None` where the kernel does not tell.
    #[must_use]
    pub fn count(&self) -> Option<u64> {
        count(self.file.as_deref()?)
    }
}

/// Where the counter may be, by the content of `/proc/self/cgroup`. A container that shares the host's view of groups sees its own group
/// mounted at `mount`.
fn candidates(groups: &str, mount: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next()) else { continue };
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            all.extend([mount.join(path).join("memory.events"), mount.join("memory.events")]);
        } else if controllers.split(',').any(|controller| controller == "memory") {
            let mount = mount.join("memory");
            all.extend([mount.join(path).join("memory.oom_control"), mount.join("memory.oom_control")]);
        }
    }
    all
}

fn count(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found_in_both_versions_of_control_groups() {
        let names = |groups| {
            let found = candidates(groups, Path::new("/c"));
            found.iter().map(|path| path.to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("0::/\n"), ["/c/memory.events", "/c/memory.events"]);
        assert_eq!(names("0::/pods/a\n"), ["/c/pods/a/memory.events", "/c/memory.events"]);
        let version1 = "12:cpu,cpuacct:/pods/a\n4:memory:/pods/a:b\n1:name=systemd:/x\n";
        assert_eq!(names(version1), ["/c/memory/pods/a:b/memory.oom_control", "/c/memory/memory.oom_control"]);
        assert_eq!(names(""), Vec::<String>::new());
    }

    #[test]
    fn the_number_of_kills_is_read_and_its_absence_is_not_zero() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.events");
        let kills = MemoryKills::in_file(file.clone());
        assert_eq!(kills.count(), None);
        fs::write(&file, "low 0\nhigh 7\nmax 3\noom 2\noom_kill 2\noom_group_kill 5\n").unwrap();
        assert_eq!(kills.count(), Some(2));
        fs::write(&file, "oom_kill_disable 0\nunder_oom 0\noom_kill 41\n").unwrap();
        assert_eq!(kills.count(), Some(41));
        fs::write(&file, "oom_kill_disable 0\nunder_oom 0\n").unwrap();
        assert_eq!(kills.count(), None);
    }
}
