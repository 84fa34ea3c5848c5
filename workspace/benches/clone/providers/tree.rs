//! A tree that one of the ways has made, and what is done with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use yoi_workspace::mount::{TargetRoot, unbind};
use yoi_workspace::{CloneAccess, Uid};

use super::FILES;
use super::ways::Way;
use crate::loop_disk::{Disk, FileSystem, fill_repository, git, run, uid};

/// Where a way is tried: its file system, and the repository that it starts from.
pub struct Site {
    pub disk: Rc<Disk>,
    pub base: PathBuf,
    pub base_uid: Uid,
}

pub struct Disks(Vec<(Way, Site)>);

impl Disks {
    /// Makes the file systems, and for each way a repository of its own: `git worktree add` writes into the one that it starts from.
    pub fn new(temp: &Path) -> Self {
        let disks =
            [FileSystem::Btrfs, FileSystem::Ext4, FileSystem::Xfs].map(|kind| (kind, Rc::new(Disk::new(temp, &format!("{kind:?}"), kind))));
        let first = temp.join("repository");
        std::fs::create_dir_all(first.join("crate/src")).unwrap();
        write_crate(&first.join("crate"));
        fill_repository(&first, FILES);
        let sites = Way::ALL.map(|way| {
            let disk = disks.iter().find(|(kind, _)| *kind == way.file_system()).unwrap().1.clone();
            std::fs::create_dir_all(disk.at.join("made")).unwrap();
            let kind = way.provider();
            let (base_uid, base) = match kind {
                Some(kind) => disk.empty(kind),
                None => (uid(), disk.at.join(format!("base of {way:?}"))),
            };
            std::fs::create_dir_all(&base).unwrap();
            run(Command::new("cp").arg("-a").arg(first.join(".")).arg(&base));
            git(&base, &["status"]);
            if let Some(kind) = kind {
                disk.provider(kind).seal(base_uid).unwrap();
            }
            read_only_status(&base);
            disk.flush();
            (way, Site { disk, base, base_uid })
        });
        std::fs::remove_dir_all(first).unwrap();
        Self(sites.into())
    }

    pub fn of(&self, way: Way) -> &Site {
        &self.0.iter().find(|(other, _)| *other == way).unwrap().1
    }
}

/// A small program without dependencies, whose build is a real one.
fn write_crate(at: &Path) {
    std::fs::write(at.join("Cargo.toml"), "[package]\nname = \"small\"\nedition = \"2024\"\n\n[workspace]\n").unwrap();
    let mut main = String::from("fn main() {\n    let mut all = 0_u64;\n");
    for n in 0..40 {
        let module = format!("/// Of module {n}.\npub fn of(x: u64) -> u64 {{\n    (0..x).map(|y| y * {n}).sum()\n}}\n");
        std::fs::write(at.join(format!("src/m{n}.rs")), module).unwrap();
        main = format!("mod m{n};\n{main}    all += m{n}::of(all);\n");
    }
    std::fs::write(at.join("src/main.rs"), main + "    println!(\"{all}\");\n}\n").unwrap();
    std::fs::write(at.join(".gitignore"), "target/\n").unwrap();
}

pub struct Made {
    way: Way,
    pub path: PathBuf,
    /// Of a tree of Yoi's.
    pub uid: Option<Uid>,
    name: PathBuf,
}

impl Made {
    /// Makes a tree and shows it.
    pub fn make(site: &Site, way: Way) -> Self {
        let (new, parent) = (uid(), site.disk.at.join("made"));
        let name = PathBuf::from(new.to_string());
        let path = parent.join(&name);
        match way {
            Way::Btrfs | Way::Overlay | Way::Reflink | Way::Copy => {
                let provider = site.disk.provider(way.provider().unwrap());
                provider.clone_tree(new, site.base_uid, CloneAccess::ReadWrite).unwrap();
                site.disk.root().publish(new, &TargetRoot::open(&parent).unwrap(), &name, false).unwrap();
                return Self { way, path, uid: Some(new), name };
            }
            Way::CpReflink => run(Command::new("cp").args(["-a", "--reflink=always"]).arg(&site.base).arg(&path)),
            Way::Cp => run(Command::new("cp").args(["-a", "--reflink=never"]).arg(&site.base).arg(&path)),
            Way::Worktree => git(&site.base, &["worktree", "add", "-q", "--detach", path.to_str().unwrap()]),
            Way::CloneLocal => git(&parent, &["clone", "-q", "--local", site.base.to_str().unwrap(), path.to_str().unwrap()]),
        }
        site.disk.flush();
        Self { way, path, uid: None, name }
    }

    /// What no other tree shares, over what is in it.
    pub fn exclusive_part(&self, site: &Site) -> f64 {
        let usage = site.disk.provider(self.way.provider().unwrap()).measure(self.uid.unwrap()).unwrap();
        usage.exclusive_bytes as f64 / usage.logical_bytes as f64
    }

    /// Ends when the deletion is on the disk.
    pub fn destroy(&self, site: &Site) {
        match (self.uid, self.way) {
            (Some(uid), _) => {
                unbind(&TargetRoot::open(&site.disk.at.join("made")).unwrap(), &self.name).unwrap();
                site.disk.provider(self.way.provider().unwrap()).destroy(uid).unwrap();
                return;
            }
            (None, Way::Worktree) => git(&site.base, &["worktree", "remove", "--force", self.path.to_str().unwrap()]),
            (None, _) => run(Command::new("rm").arg("-rf").arg(&self.path)),
        }
        site.disk.flush();
    }
}

/// `git status` as a person calls it: it writes the index if that is out of date.
pub fn status(at: &Path) {
    git(at, &["status", "--porcelain"]);
}

/// The same with the settings that the runtime gives to an agent's git (`runtime/src/git_defaults.rs`).
pub fn agents_status(at: &Path) {
    git(at, &["-c", "core.checkStat=minimal", "-c", "core.trustctime=false", "status", "--porcelain"]);
}

/// `git status` that writes nothing, for a base and for what is compared again and again.
pub fn read_only_status(at: &Path) {
    git(at, &["--no-optional-locks", "status", "--porcelain"]);
}

/// A build from nothing: the base has no build products.
pub fn build(at: &Path) {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "-q", "--offline"]).current_dir(at.join("crate"));
    run(build.env_remove("CARGO_TARGET_DIR").env_remove("RUSTFLAGS").env_remove("CARGO_BUILD_TARGET"));
}
