//! One run of the guest: QEMU emulates the machine instruction by instruction. /dev/kvm is never used, because a machine that is a guest itself may have one
//! that hangs.

use super::debian::Debian;
use crate::command::{self, command, tail, wait};
use crate::progress;
use anyhow::{Context, Result, bail};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long the guest may take to switch itself off after its command has ended.
const POWER_OFF: Duration = Duration::from_secs(60);

/// A run of the guest.
pub struct Run<'a> {
    /// A line of shell. It runs in a writable folder, which goes when the run ends.
    pub script: &'a str,
    /// Programs and data that are copied into that folder.
    pub files: &'a [PathBuf],
    /// The disks of the guest, /dev/vda and on. Each write to one is also in the file beside it whose name ends with `.log`, in the format of dm-log-writes.
    pub disks: &'a [PathBuf],
    pub limit: Duration,
}

impl Run<'_> {
    /// Runs the script, copies what it prints to standard output, and returns its exit code. Fails with the end of the console if the guest ends without
    /// one, or is not done after the time limit.
    pub fn on(&self, debian: &Debian) -> Result<i32> {
        let folder = tempfile::tempdir()?;
        let share = folder.path().join("share");
        let console = folder.path().join("console");
        fs::create_dir(&share)?;
        for file in self.files {
            let name = file.file_name().with_context(|| format!("{} names no file", file.display()))?;
            fs::copy(file, share.join(name)).with_context(|| format!("failed to copy {}", file.display()))?;
        }
        // Nothing in the guest loads what a device needs.
        let first = if self.disks.is_empty() { "" } else { "modprobe virtio_blk\n" };
        fs::write(share.join("run"), format!("{first}{}", self.script))?;
        fs::write(share.join("out"), "")?;
        fs::set_permissions(&share, fs::Permissions::from_mode(0o777))?;

        // The guest ends with this process, however that ends.
        let mut qemu = command("setpriv", ["--pdeathsig", "KILL", "qemu-system-x86_64"]);
        qemu.args(["-accel", "tcg,thread=multi,tb-size=512", "-M", "q35", "-cpu", "max", "-smp", "2", "-m", "4G"]);
        qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        qemu.arg("-serial").arg(format!("file:{}", console.display()));
        qemu.arg("-kernel").arg(&debian.kernel).arg("-initrd").arg(&debian.initramfs);
        qemu.args(["-append", "console=ttyS0 quiet panic=-1"]);
        for (name, path, more) in [("root", debian.root.as_path(), ",readonly=on"), ("share", &share, "")] {
            let path = path.display();
            qemu.args(["-fsdev", &format!("local,id={name},path={path},security_model=none,multidevs=remap{more}")]);
            qemu.args(["-device", &format!("virtio-9p-pci,fsdev={name},mount_tag={name}")]);
        }
        for (n, disk) in self.disks.iter().enumerate() {
            add_disk(&mut qemu, n, disk)?;
        }
        qemu.stdout(Stdio::null()).stderr(fs::File::create(folder.path().join("qemu"))?);
        let mut child = qemu.spawn().with_context(|| format!("failed to start {}", command::command_line(&qemu)))?;
        let mut out = fs::File::open(share.join("out"))?;
        let ended = wait("the end of the guest", self.limit, || {
            print_new(&mut out)?;
            let ended = child.try_wait()?.is_some();
            Ok((ended || share.join("rc").exists()).then_some(ended))
        });
        if let Ok(false) = ended {
            // A clean end: what the disks of the guest log is written at the end of QEMU.
            _ = wait("the guest switched off", POWER_OFF, || Ok(child.try_wait()?.map(drop)));
        }
        if child.try_wait()?.is_none() {
            child.kill()?;
            child.wait()?;
        }
        print_new(&mut out)?;
        let code = fs::read_to_string(share.join("rc")).ok().and_then(|text| text.trim().parse().ok());
        let Some(code) = code else {
            let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
            progress::note(&tail(&read(&console), 60));
            progress::note(&tail(&read(&folder.path().join("qemu")), 10));
            ended?;
            bail!("the guest died before its command ended; its console is above");
        };
        Ok(code)
    }
}

/// The longest log of a disk. Its file takes what was written to it.
const LOG_SIZE: u64 = 2 << 30;

fn add_disk(qemu: &mut Command, n: usize, disk: &Path) -> Result<()> {
    let mut log = disk.as_os_str().to_owned();
    log.push(".log");
    let file = fs::File::create(&log).with_context(|| format!("failed to make {}", log.display()))?;
    file.set_len(LOG_SIZE)?;
    for (name, path) in [("disk", disk.as_os_str()), ("log", &log)] {
        let path = path.display();
        qemu.args(["-blockdev", &format!("driver=file,node-name={name}-file{n},filename={path}")]);
        qemu.args(["-blockdev", &format!("driver=raw,node-name={name}{n},file={name}-file{n}")]);
    }
    qemu.args(["-blockdev", &format!("driver=blklogwrites,node-name=logged{n},file=disk{n},log=log{n},log-sector-size=512")]);
    // The order is that of the command line. A discard would be in the log without what is read afterwards.
    qemu.args(["-device", &format!("virtio-blk-pci,drive=logged{n},discard=off,write-zeroes=off")]);
    Ok(())
}

/// Copies what was appended to the file to standard output.
fn print_new(file: &mut fs::File) -> Result<()> {
    let mut new = Vec::new();
    // Each time from where it was: the host must not rely on what it has read ahead.
    let at = file.stream_position()?;
    file.seek(SeekFrom::Start(at))?;
    file.read_to_end(&mut new)?;
    let mut out = std::io::stdout().lock();
    out.write_all(&new)?;
    Ok(out.flush()?)
}
