//! The view of the host's root in the mounter's mount namespace: needs root, and says so where it cannot run.

use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use yoi_test_support::wait_until;

use crate::real_disk::in_memory;

struct Mounter(Child);

impl Drop for Mounter {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

impl Mounter {
    /// The paths below the view at which something is mounted, as the mounter sees them.
    fn mounts_below(&self, view: &Path) -> Vec<PathBuf> {
        let table = std::fs::read_to_string(format!("/proc/{}/mountinfo", self.0.id())).unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        points.filter_map(|point| Some(point.strip_prefix(view).ok()?.to_owned())).filter(|below| !below.as_os_str().is_empty()).collect()
    }
}

#[test]
fn a_mounter_with_a_dataset_keeps_no_mount_of_the_host_but_those_that_programs_need() {
    if !rustix::process::geteuid().is_root() {
        crate::skip::skip("needs root for mounts");
        return;
    }
    let dir = in_memory();
    let path = |name: &str| dir.path().join(name);
    ["host", "kubelet", "data"].iter().for_each(|name| std::fs::create_dir(path(name)).unwrap());
    let script = r#"mount --rbind / "$1/host" && mount -t tmpfs pod "$1/host/mnt" && mount -t tmpfs lib "$1/host/usr/share" &&
        touch "$1/mounted" && read -r go <"$1/go"
        exec "$2" mounter --kubelet-dir="$1/kubelet" --data-root="$1/data" --mounter-socket="$1/socket" --zfs-dataset=tank/yoi --host-root="$1/host""#;
    rustix::fs::mkfifoat(rustix::fs::CWD, path("go"), rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
    let mounter = Mounter(command.arg(dir.path()).arg(env!("CARGO_BIN_EXE_yoi-agent-shim")).spawn().unwrap());
    wait_until("the host's root is mounted", || path("mounted").exists().then_some(()));
    let before = mounter.mounts_below(&path("host"));
    assert!(before.contains(&"mnt".into()) && before.contains(&"proc".into()), "{before:?}");
    std::fs::write(path("go"), "go\n").unwrap();
    wait_until("the mounter is served", || path("socket").exists().then_some(()));
    let after = mounter.mounts_below(&path("host"));
    assert!(["proc", "sys", "dev", "usr/share"].iter().all(|name| after.contains(&name.into())), "{after:?}");
    let kept = ["bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"];
    assert!(after.iter().all(|below| kept.iter().any(|name| below.starts_with(name))), "{after:?}");
}
