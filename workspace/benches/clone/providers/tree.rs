//! A tree that one of the ways has made, and what is done with it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use yoi_workspace::{CloneAccess, Uid};

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
    pub fn new(temp: &Path, ways: &[Way], files: usize) -> Self {
        let mut disks: Vec<(FileSystem, Rc<Disk>)> = Vec::new();
        let first = temp.join("repository");
        std::fs::create_dir_all(first.join("program")).unwrap();
        write_program(&first.join("program"));
        fill_repository(&first, files);
        let fill = |base: &Path| {
            run(Command::new("cp").arg("-a").arg(first.join(".")).arg(base));
            git(base, &["status"]);
        };
        let mut sites = Vec::new();
        for way in ways {
            let kind = way.file_system();
            let made = disks.iter().find(|(made, _)| *made == kind).map(|(_, disk)| disk.clone());
            let disk = made.unwrap_or_else(|| {
                disks.push((kind, Rc::new(Disk::new(temp, &format!("{kind:?}"), kind))));
                disks[disks.len() - 1].1.clone()
            });
            let (base_uid, base) = match way.provider() {
                Some(kind) => disk.base(kind, fill),
                None => {
                    let base = disk.at.join(format!("base of {way:?}"));
                    std::fs::create_dir(&base).unwrap();
                    fill(&base);
                    (uid(), base)
                }
            };
            read_only_status(&base);
            disk.flush();
            sites.push((*way, Site { disk, base, base_uid }));
        }
        std::fs::remove_dir_all(first).unwrap();
        Self(sites)
    }

    pub fn of(&self, way: Way) -> &Site {
        &self.0.iter().find(|(other, _)| *other == way).unwrap().1
    }
}

/// A small program in C, whose build is a real one.
fn write_program(at: &Path) {
    let mut main = String::from("#include <stdio.h>\nint main(void) {\n    unsigned long all = 1;\n");
    let mut objects = String::from("main.o");
    for n in 0..8 {
        let module =
            format!("unsigned long of{n}(unsigned long x) {{\n    for (int y = 0; y < {n}; y++) x = x * 31 + y;\n    return x;\n}}\n");
        std::fs::write(at.join(format!("m{n}.c")), module).unwrap();
        main = format!("unsigned long of{n}(unsigned long);\n{main}    all += of{n}(all);\n");
        objects += &format!(" m{n}.o");
    }
    std::fs::write(at.join("main.c"), main + "    return printf(\"%lu\\n\", all) < 0;\n}\n").unwrap();
    std::fs::write(at.join("Makefile"), format!("program: {objects}\n\tcc -o $@ $^\n")).unwrap();
    std::fs::write(at.join(".gitignore"), "*.o\nprogram\n").unwrap();
}

pub struct Made {
    way: Way,
    pub path: PathBuf,
    /// Of a tree of Yoi's.
    pub uid: Option<Uid>,
}

impl Made {
    /// Makes a tree and shows it.
    pub fn make(site: &Site, way: Way) -> Self {
        let new = uid();
        let parent = site.disk.at.join("shown");
        let path = parent.join(new.to_string());
        match way {
            Way::Btrfs | Way::Overlay | Way::Reflink | Way::Copy | Way::Zfs => {
                site.disk.provider(way.provider().unwrap()).clone_tree(new, site.base_uid, CloneAccess::ReadWrite).unwrap();
                return Self { way, path: site.disk.show(new, false), uid: Some(new) };
            }
            Way::CpReflink => run(Command::new("cp").args(["-a", "--reflink=always"]).arg(&site.base).arg(&path)),
            Way::Cp => run(Command::new("cp").args(["-a", "--reflink=never"]).arg(&site.base).arg(&path)),
            Way::Worktree => git(&site.base, &["worktree", "add", "-q", "--detach", path.to_str().unwrap()]),
            Way::CloneLocal => git(&parent, &["clone", "-q", "--local", site.base.to_str().unwrap(), path.to_str().unwrap()]),
        }
        site.disk.flush();
        Self { way, path, uid: None }
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
                site.disk.hide(uid);
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
    run(Command::new("make").arg("-C").arg(at.join("program")));
}
