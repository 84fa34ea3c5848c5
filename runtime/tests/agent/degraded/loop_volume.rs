//! A small disk of its own, with the kernel's own errors.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An ext4 on a loop device over a folder.
pub struct LoopVolume {
    image: PathBuf,
    at: PathBuf,
}

fn run(program: &str, args: &[&dyn AsRef<std::ffi::OsStr>]) -> bool {
    let done = Command::new(program).args(args.iter().map(|arg| arg.as_ref())).output();
    let ok = done.as_ref().is_ok_and(|done| done.status.success());
    if !ok {
        println!("{program}: {done:?}");
    }
    ok
}

impl LoopVolume {
    /// `None`, said aloud, where there is no right to mount.
    pub fn over(at: &Path, mebibytes: u64) -> Option<Self> {
        let image = at.with_extension("img");
        std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        // Nothing kept back for root: full is full for everybody.
        if !run("mkfs.ext4", &[&"-q", &"-F", &"-m", &"0", &image]) {
            crate::skip::skip("no mkfs.ext4");
            return None;
        }
        Self::mount(&image, at)
    }

    /// What a machine would find that lost its power now: the bytes that have reached the disk.
    pub fn after_power_loss(&self, at: &Path) -> Option<Self> {
        let image = at.with_extension("img");
        std::fs::copy(&self.image, &image).unwrap();
        std::fs::create_dir(at).unwrap();
        Self::mount(&image, at)
    }

    fn mount(image: &Path, at: &Path) -> Option<Self> {
        if !run("mount", &[&"-o", &"loop", &image, &at]) {
            crate::skip::skip("no right to mount a small disk");
            return None;
        }
        Some(Self { image: image.to_owned(), at: at.to_owned() })
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Not a block is left.
    pub fn fill(&self) {
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(self.ballast()).unwrap();
        for size in [1 << 20, 64 << 10, 4 << 10, 1] {
            while file.write_all(&vec![b'#'; size]).is_ok() {}
        }
        let _ = file.sync_all();
    }

    pub fn make_room(&self) {
        std::fs::remove_file(self.ballast()).unwrap();
    }

    /// As after an error of the device: the kernel writes no more.
    pub fn break_down(&self) {
        assert!(run("mount", &[&"-o", &"remount,abort", &self.at]));
    }

    pub fn mounted_anew(self) -> Self {
        let (image, at) = (self.image.clone(), self.at.clone());
        drop(self);
        Self::mount(&image, &at).unwrap()
    }
}

impl Drop for LoopVolume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.at).output();
    }
}
