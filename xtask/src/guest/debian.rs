//! The guest's kernel, modules and root, from Debian's own packages.

use crate::cache;
use crate::command::{command, run};
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Linux 6.1 and OpenZFS 2.1, whatever the machine has, from the public mirror that mmdebstrap knows, with updates and security.
const SUITE: &str = "bookworm";
/// The module is in `contrib`, and is compiled here: its licence and that of Linux do not go together in one binary that is given away.
const COMPONENTS: &str = "main,contrib";

/// The installation of zfs-dkms compiles the module for every kernel whose headers are there.
const MODULE_PACKAGES: &str = "ca-certificates,dkms,kmod,linux-headers-amd64,zfs-dkms";
const MODULES: &str = include_str!("modules.sh");

const ROOT_PACKAGES: &str =
    "acl,attr,btrfs-progs,busybox-static,cmake,e2fsprogs,gcc,git,kmod,libc6-dev,make,mount,procps,util-linux,xfsprogs,zfsutils-linux";
const ROOT: &str = include_str!("root.sh");
const INIT: &str = include_str!("init.sh");

/// What QEMU boots.
pub struct Debian {
    pub kernel: PathBuf,
    pub initramfs: PathBuf,
    pub root: PathBuf,
    /// Of the kernel and of OpenZFS, for people.
    pub versions: String,
}

fn modules_key() -> String {
    cache::key([SUITE, COMPONENTS, MODULE_PACKAGES, MODULES])
}

/// Makes what is not in the cache.
pub fn ensure() -> Result<Debian> {
    let about = "Compile OpenZFS for the guest's kernel (about 6 minutes, the first time only)";
    let modules = cache::folder("guest-modules", &modules_key(), about, |fresh| {
        let mut mmdebstrap = mmdebstrap(fresh, MODULE_PACKAGES, MODULES)?;
        mmdebstrap.args(["--variant=apt", "--skip=output/dev"]);
        debootstrap_to(mmdebstrap, fresh, Path::new("/dev/null"))
    })?;
    let key = cache::key([SUITE, COMPONENTS, ROOT_PACKAGES, ROOT, INIT, &modules_key()]);
    let made = cache::folder("guest", &key, "Make the guest's Debian (about a minute, the first time only)", |fresh| {
        fs::write(fresh.join("init"), INIT)?;
        fs::set_permissions(fresh.join("init"), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        let mut mmdebstrap = mmdebstrap(fresh, ROOT_PACKAGES, ROOT)?;
        mmdebstrap.args(["--variant=essential", "--skip=output/dev"]).env("MODULES", &modules);
        for folder in ["doc", "man", "info", "locale"] {
            mmdebstrap.arg(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
        }
        debootstrap_to(mmdebstrap, fresh, &fresh.join("root"))
    })?;
    let versions = fs::read_to_string(modules.join("versions")).context("failed to read the versions of the guest's kernel")?;
    Ok(Debian {
        kernel: modules.join("vmlinuz"),
        initramfs: made.join("initramfs"),
        root: made.join("root"),
        versions: versions.trim().replace('\n', ", "),
    })
}

/// mmdebstrap with these packages; `hook` runs in the finished root, as a script with the root as its argument and `$OUT` for what it leaves.
fn mmdebstrap(out: &Path, packages: &str, hook: &str) -> Result<Command> {
    fs::write(out.join("hook"), hook)?;
    let mut mmdebstrap = command("mmdebstrap", ["--mode=root", "--include", packages]);
    mmdebstrap.args(["--aptopt=Acquire::Languages \"none\"", "--aptopt=APT::Install-Recommends \"false\""]);
    mmdebstrap.arg("--customize-hook=sh \"$OUT/hook\" \"$1\"").env("OUT", out).env("DEBIAN_FRONTEND", "noninteractive");
    Ok(mmdebstrap)
}

fn debootstrap_to(mut mmdebstrap: Command, out: &Path, root: &Path) -> Result<()> {
    let work = tempfile::tempdir_in(out)?;
    // mmdebstrap runs apt as another user.
    fs::set_permissions(work.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    mmdebstrap.args(["--components", COMPONENTS, SUITE]).arg(root).env("TMPDIR", work.path());
    run(&mut mmdebstrap)?;
    fs::remove_file(out.join("hook"))?;
    Ok(())
}
