//! The host's root in the mounter's mount namespace: a read-only view, from which the host's own `zfs` is run.

use std::path::Path;

use rustix::mount::{MountPropagationFlags, UnmountFlags};
use yoi_workspace::{SysError, mountinfo};

/// What programs of the host need of it: themselves, their settings, and what the kernel shows.
const KEPT: [&str; 9] = ["bin", "dev", "etc", "lib", "lib64", "proc", "sbin", "sys", "usr"];

/// Detaches everything that is mounted below `host_root`, but for what programs need, and makes that read-only, too: the runtime makes so only what is
/// on top. The host's own mounts stay as they are.
///
/// The container runtime shows all mounts of the host there. The kubelet's and the data root's would stand in the table a second time, and each
/// that the host ends later would be kept in use.
pub fn detach_mounts(host_root: &Path) -> Result<(), SysError> {
    let wrap = |step| move |e: rustix::io::Errno| SysError { step, source: e.into() };
    // Else what is detached here would be detached on the host, too.
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change(host_root, private).map_err(wrap("make the mounts private"))?;
    let is_kept = |path: &Path| KEPT.iter().any(|name| path.starts_with(host_root.join(name)));
    for mount in mountinfo::read()?.iter().rev() {
        let path = &mount.mount_point;
        if path.starts_with(host_root) && path != host_root && !is_kept(path) {
            match rustix::mount::unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
                // It went with the mount that it was in.
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
                Err(e) => return Err(wrap("detach a mount")(e)),
            }
        }
    }
    yoi_workspace::mount::make_read_only(host_root)
}
