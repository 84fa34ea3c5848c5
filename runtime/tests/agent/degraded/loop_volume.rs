//! A small disk, so that errors come from the kernel.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// An ext4 file system on a loop device, mounted over a folder.
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
    /// `None`, and a skipped test, where mounting is not allowed.
    pub fn over(at: &Path, mebibytes: u64) -> Option<Self> {
        let image = at.with_extension("img");
        std::fs::File::create(&image).unwrap().set_len(mebibytes << 20).unwrap();
        // No blocks are reserved for root, so that the disk is full for every user.
        if !run("mkfs.ext4", &[&"-q", &"-F", &"-m", &"0", &image]) {
            crate::skip::skip("no mkfs.ext4");
            return None;
        }
        Self::mount(&image, at)
    }

    /// A copy of the bytes that have reached the disk: the volume after a power loss at this moment.
    pub fn after_power_loss(&self, at: &Path) -> Option<Self> {
        let image = at.with_extension("img");
        std::fs::copy(&self.image, &image).unwrap();
        std::fs::create_dir(at).unwrap();
        Self::mount(&image, at)
    }

    fn mount(image: &Path, at: &Path) -> Option<Self> {
        // A power loss shows nothing if the journal commits by itself, which ext4 does every 5 s by default.
        if !run("mount", &[&"-o", &"loop,commit=600", &image, &at]) {
            crate::skip::skip("no right to mount a small disk");
            return None;
        }
        Some(Self { image: image.to_owned(), at: at.to_owned() })
    }

    /// Makes all that was written to it durable, and nothing of other file systems.
    pub fn flush(&self) {
        rustix::fs::syncfs(std::fs::File::open(&self.at).unwrap()).unwrap();
    }

    fn ballast(&self) -> PathBuf {
        self.at.join("ballast")
    }

    /// Fills the volume to the last block.
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

    /// Makes the kernel refuse further writes, as after an error of the device.
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
