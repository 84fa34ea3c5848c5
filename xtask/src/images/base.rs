//! Images of a small Debian from the machine's own package sources: what agents and populators run in, with git, a shell and a compiler, and the
//! git server of tests.

use super::oci::{self, Image};
use crate::command::{command, run};
use crate::instance::{cache, repository};
use crate::progress;
use crate::tree::ImageTree;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use yoi_host::images::Archive;

/// A Debian of some packages.
struct Root {
    /// In the name of the file that is kept, and for people.
    name: &'static str,
    packages: &'static str,
    /// Run with the folder of the root at the end.
    hook: &'static str,
}

const AGENT: Root = Root {
    name: "agent",
    // libatomic1 and libstdc++6 are for Node, which programs in images of their own bring. openssh-server and rsync are for people who come in by
    // `kubectl yoi ssh`, where that is allowed.
    packages: "bash,ca-certificates,coreutils,curl,dash,diffutils,findutils,git,git-lfs,grep,jq,less,libatomic1,libc6-dev,libstdc++6,\
               make,openssh-client,openssh-server,patch,procps,ripgrep,rsync,sed,tcc,xz-utils",
    // uid and gid 1000 own the trees, so the same must have a name and a home. The host keys would be those of everybody who has the image.
    hook: r#"set -eu
echo 'agent:x:1000:1000:agent:/home/agent:/bin/bash' >> "$1/etc/passwd"
echo 'agent:x:1000:' >> "$1/etc/group"
mkdir -p "$1/home/agent"
chown 1000:1000 "$1/home/agent"
chroot "$1" git config --system --add safe.directory '*'
chroot "$1" git lfs install --system --skip-repo
ln -sf tcc "$1/usr/bin/cc"
rm -rf "$1"/etc/ssh/ssh_host_* "$1"/var/cache/debconf/*-old "$1"/var/log/* "$1/etc/hostname" "$1/etc/resolv.conf" "$1/etc/machine-id""#,
};

const GIT_SERVER: Root = Root {
    name: "git-server",
    packages: "git,lighttpd,lighttpd-mod-openssl,openssh-server",
    // The host keys are made with the package, and would be those of everybody who has the image.
    hook: r#"set -eu
echo 'git:x:1000:1000:git:/srv/git:/bin/sh' >> "$1/etc/passwd"
echo 'git:x:1000:' >> "$1/etc/group"
rm -rf "$1"/etc/ssh/ssh_host_* "$1"/var/cache/debconf/*-old "$1"/var/log/* "$1/etc/hostname" "$1/etc/resolv.conf" "$1/etc/machine-id""#,
};

pub fn agent() -> Result<Archive> {
    oci::write(&image("agent")?)
}

/// What the tests of private repositories run: git over https with users, by lighttpd, and over ssh, by sshd. They bring the settings and keys. Tests of skills
/// of an image take it, too: it has those of this repository.
pub fn git_server() -> Result<Archive> {
    let mut tree = ImageTree::new();
    tree.folder("opt/agents/skills", &repository().join(".agents/skills"))?;
    oci::write(&Image::of_tar("git-server", GIT_SERVER.tar()?, "1000:1000", "/bin/sh", "/srv/git").with(&tree)?)
}

/// The agents' image with this project's own history in it: the example's git server.
pub fn example_git() -> Result<Archive> {
    let folder = tempfile::tempdir()?;
    let bare = folder.path().join("project.git");
    // One thread, so that the same history packs to the same bytes.
    let mut clone = command("git", ["-c", "pack.threads=1", "clone", "--quiet", "--bare", "--no-local"]);
    // Git refuses root another user's repository, except where sudo says that it is that user who calls; so it was for a root shell.
    clone.env("SUDO_UID", fs::metadata(repository())?.uid().to_string());
    run(clone.arg(repository()).arg(&bare))?;
    fs::remove_dir_all(bare.join("hooks"))?;
    let mut tree = ImageTree::new();
    tree.folder("srv/git/project.git", &bare)?;
    oci::write(&image("example-git")?.with(&tree)?)
}

pub fn image(name: &str) -> Result<Image> {
    Ok(Image::of_tar(name, AGENT.tar()?, "1000:1000", "/bin/bash", "/home/agent"))
}

impl Root {
    /// The tar of it in the cache.
    fn tar(&self) -> Result<PathBuf> {
        let Root { name, packages, hook } = self;
        let key = hex::encode(&Sha256::digest(format!("{packages}{hook}{}{}", suite(), std::env::consts::ARCH))[..8]);
        let tar = cache().join(format!("{name}-root-{key}.tar"));
        if !tar.exists() {
            make(self, &tar)?;
        }
        Ok(tar)
    }
}

fn make(root: &Root, tar: &Path) -> Result<()> {
    let step = progress::start(format!("Make the Debian of the image {} (about a minute, the first time only)", root.name));
    fs::create_dir_all(cache())?;
    let work = tempfile::tempdir_in(cache())?;
    // mmdebstrap may run as another user below this folder.
    fs::set_permissions(work.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let fresh = work.path().join("root.tar");
    let hook = work.path().join("hook.sh");
    fs::write(&hook, root.hook)?;
    let mut mmdebstrap = command("mmdebstrap", ["--variant=essential", "--skip=output/dev", "--include", root.packages]);
    mmdebstrap.args(["--aptopt=Acquire::Languages \"none\"", "--aptopt=APT::Install-Recommends \"false\""]);
    for folder in ["doc", "man", "info", "locale"] {
        mmdebstrap.arg(format!("--dpkgopt=path-exclude=/usr/share/{folder}/*"));
    }
    mmdebstrap.arg("--dpkgopt=path-include=/usr/share/doc/*/copyright");
    mmdebstrap.arg(format!("--customize-hook=sh {} \"$1\"", hook.display()));
    mmdebstrap.arg(suite()).arg(&fresh).args(sources()).env("SOURCE_DATE_EPOCH", "0").env("TMPDIR", work.path());
    run(&mut mmdebstrap)?;
    fs::rename(&fresh, tar).with_context(|| format!("failed to keep {}", tar.display()))?;
    step.done("");
    Ok(())
}

/// The machine's own release where it is Debian, so that its package sources fit.
fn suite() -> String {
    let about = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| about.lines().find_map(|line| line.strip_prefix(key)).map(|value| value.trim_matches('"').to_owned());
    let debian = value("ID=").is_some_and(|id| id == "debian" || id == "ubuntu");
    value("VERSION_CODENAME=").filter(|_| debian).unwrap_or_else(|| "bookworm".into())
}

/// The files that name the distribution's own packages, not those of other vendors. Without any, mmdebstrap knows the public mirror.
fn sources() -> Vec<PathBuf> {
    let known =
        ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list.d/ubuntu.sources", "/etc/apt/sources.list"].map(PathBuf::from);
    let names_suite = |path: &PathBuf| fs::read_to_string(path).is_ok_and(|text| text.contains(&suite()));
    known.into_iter().find(names_suite).into_iter().collect()
}
