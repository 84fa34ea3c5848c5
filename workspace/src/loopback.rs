//! A Btrfs data root in a file, for nodes whose disk is something else.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{CWD, FallocateFlags, FileType, FlockOperation, Mode};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, UnmountFlags};

use crate::error::StepContext;
use crate::{SysError, atomic, host, mount, mountinfo};

const MKFS_DEADLINE: Duration = Duration::from_secs(120);
const ATTEMPTS: usize = 16;

/// Chunks of metadata are larger from this size of a file system on.
const LARGE: u64 = 50 << 30;

/// After so many chunks of data, Btrfs takes one chunk for metadata, whether or not it needs one yet. Without that, data takes the whole of an image that
/// fills up quickly and leaves 8 MiB for metadata: then no tree can be made or destroyed, not even a file be created after others were deleted, and the
/// kernel may make the file system read-only.
///
/// A chunk is a tenth of the image, at most 1 GiB for data, and at most 256 MiB (1 GiB in an image above 50 GiB) for metadata. So this keeps a fifth of an
/// image of 2 GiB for metadata, and a sixteenth of one of 10 GiB or more.
fn metadata_ratio(image_bytes: u64) -> &'static str {
    if image_bytes > LARGE { "16" } else { "4" }
}

/// Why the loop-backed file system is not mounted or not unmounted.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the message of a variant says what it is")]
pub enum LoopError {
    #[error("failed to make the image {image}")]
    Make { image: PathBuf, source: SysError },
    #[error("failed to make the image {image}: it takes {} MiB, and its disk has {} MiB free", .size >> 20, .free >> 20)]
    NoRoom { image: PathBuf, size: u64, free: u64 },
    #[error("failed to use the image {image}: it holds no Btrfs, and only a missing image is ever formatted")]
    NotBtrfs { image: PathBuf },
    #[error("failed to find the image {image}: it should hold trees, and only the first start makes an image")]
    NoImage { image: PathBuf },
    #[error("failed to attach the image {image} to a loop device")]
    Attach { image: PathBuf, source: SysError },
    #[error("failed to mount at {mountpoint}")]
    Mount { mountpoint: PathBuf, source: SysError },
    #[error("failed to mount at {mountpoint}: something else is mounted there")]
    Occupied { mountpoint: PathBuf },
    /// A process still uses it; try again later.
    #[error("failed to release {mountpoint}: it is in use")]
    Busy { mountpoint: PathBuf },
    #[error("failed to release {mountpoint}")]
    Release { mountpoint: PathBuf, source: SysError },
}

/// What [`ensure_loop_btrfs`] did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoopOutcome {
    /// The image is new and mounted.
    Formatted,
    /// The image was there and is now mounted.
    Attached,
    /// The image was mounted already.
    AlreadyMounted,
}

/// Mounts the Btrfs in `image` at `mountpoint`, unless it is mounted there already. Both paths are absolute, and the mountpoint's parent
/// exists.
///
/// A missing image is made: a file of `size` bytes with all its blocks allocated, formatted with single metadata under a temporary name,
/// then renamed. So a full disk never aborts the file system inside; without that much room the error is `NoRoom`. An existing image is
/// never formatted and keeps its size. The kernel frees the loop device with the last mount. Mount options: noatime, nosuid, nodev;
/// nodiscard, because a discard gives blocks of the image back to the disk; `user_subvol_rm_allowed`, so that an agent can delete a
/// subvolume that it made, because nested subvolumes block forks; and metadata_ratio, so that data leaves room for metadata.
pub fn ensure_loop_btrfs(image: &Path, size: u64, mountpoint: &Path) -> Result<LoopOutcome, LoopError> {
    ensure(image, Some(size), mountpoint)
}

/// Like [`ensure_loop_btrfs`], but a missing image is the error `NoImage`.
pub fn attach_loop_btrfs(image: &Path, mountpoint: &Path) -> Result<LoopOutcome, LoopError> {
    ensure(image, None, mountpoint)
}

fn ensure(image: &Path, size: Option<u64>, mountpoint: &Path) -> Result<LoopOutcome, LoopError> {
    let make = |source| LoopError::Make { image: image.to_owned(), source };
    let attach = |source| LoopError::Attach { image: image.to_owned(), source };
    let mount = |source| LoopError::Mount { mountpoint: mountpoint.to_owned(), source };
    // The lock lets one process do this at a time: two loop devices on one image would destroy it.
    let folder = File::open(image.parent().unwrap_or(Path::new("/"))).step("open the folder of the image").map_err(make)?;
    rustix::fs::flock(&folder, FlockOperation::LockExclusive).step("lock the folder of the image").map_err(make)?;

    let fresh = !image.try_exists().step("look for the image").map_err(make)?;
    match size {
        Some(size) if fresh => {
            let disk = rustix::fs::fstatvfs(&folder).step("look at the disk of the image").map_err(make)?;
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            if free < size {
                return Err(LoopError::NoRoom { image: image.to_owned(), size, free });
            }
            format_image(image, size, &folder).map_err(make)?;
        }
        None if fresh => return Err(LoopError::NoImage { image: image.to_owned() }),
        Some(_) | None => {}
    }
    let file = File::options().read(true).write(true).open(image).step("open the image").map_err(attach)?;
    if !is_btrfs_image(&file).map_err(attach)? {
        return Err(LoopError::NotBtrfs { image: image.to_owned() });
    }
    match rustix::fs::mkdir(mountpoint, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(e).step("make the mountpoint").map_err(mount),
    }
    let real = mountpoint.canonicalize().step("find the mountpoint").map_err(mount)?;
    let table = mountinfo::read().map_err(mount)?;
    if let Some(top) = table.iter().rfind(|m| m.mount_point == real) {
        let number = top.source.to_str().and_then(|s| s.strip_prefix("/dev/loop")).and_then(|n| n.parse::<u32>().ok());
        let ours = match number {
            Some(number) => open_if_backed_by(number, &file).map_err(attach)?.is_some(),
            None => false,
        };
        return if ours { Ok(LoopOutcome::AlreadyMounted) } else { Err(LoopError::Occupied { mountpoint: mountpoint.to_owned() }) };
    }
    let (number, device) = match find_attached(&file).map_err(attach)? {
        Some(found) => found,
        None => attach_new(&file).map_err(attach)?,
    };
    let image_bytes = file.metadata().step("look at the image").map_err(attach)?.len();
    mount_btrfs(&device_path(number), &real, metadata_ratio(image_bytes)).map_err(mount)?;
    drop(device);
    Ok(if fresh { LoopOutcome::Formatted } else { LoopOutcome::Attached })
}

/// Unmounts what [`ensure_loop_btrfs`] mounted. The kernel frees the loop device; the image stays. Not mounted is a success.
/// Errors: `Occupied`, `Busy`, `Release`.
pub fn release(mountpoint: &Path) -> Result<(), LoopError> {
    let wrap = |source| LoopError::Release { mountpoint: mountpoint.to_owned(), source };
    let real = match mountpoint.canonicalize() {
        Ok(real) => real,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e).step("find the mountpoint").map_err(wrap),
    };
    let table = mountinfo::read().map_err(wrap)?;
    let Some(top) = table.iter().rfind(|m| m.mount_point == real) else { return Ok(()) };
    if top.fs_type != "btrfs" || !top.source.to_string_lossy().starts_with("/dev/loop") {
        return Err(LoopError::Occupied { mountpoint: mountpoint.to_owned() });
    }
    match rustix::mount::unmount(&real, UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(LoopError::Busy { mountpoint: mountpoint.to_owned() }),
        Err(e) => Err(e).step("unmount").map_err(wrap),
    }
}

fn format_image(image: &Path, size: u64, folder: &File) -> Result<(), SysError> {
    let name = image.file_name().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput)).step("read the path of the image")?;
    let temporary = image.with_file_name(atomic::temporary_name(name));
    atomic::write_atomically_with(folder, name, 0o666, |file| {
        rustix::fs::fallocate(file, FallocateFlags::empty(), 0, size).step("reserve the blocks of the temporary image")?;
        let mut args: Vec<&OsStr> = ["-q", "-f", "-K", "-m", "single", "-d", "single"].map(AsRef::as_ref).to_vec();
        args.push(temporary.as_os_str());
        host::run("mkfs.btrfs", &args, MKFS_DEADLINE).map(drop)
    })
}

fn is_btrfs_image(file: &File) -> Result<bool, SysError> {
    let mut magic = [0; 8];
    match file.read_exact_at(&mut magic, 0x1_0040) {
        Ok(()) => Ok(&magic == b"_BHRfS_M"),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e).step("read the image"),
    }
}

const LOOP_SET_FLAGS: u32 = 4 | 16; // LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO
const LOOP_CTL_GET_FREE: u32 = 0x4C82;
const LOOP_CONFIGURE: u32 = 0x4C0A;
const LOOP_GET_STATUS64: u32 = 0x4C05;
const LOOP_MAJOR: u32 = 7;

/// `struct loop_info64`.
#[repr(C)]
struct LoopInfo {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    numbers: [u32; 3],
    flags: u32,
    names: [u8; 160],
    init: [u64; 2],
}

/// `struct loop_config`.
#[repr(C)]
struct LoopConfig {
    fd: u32,
    block_size: u32,
    info: LoopInfo,
    reserved: [u64; 8],
}

const EMPTY: LoopInfo =
    LoopInfo { device: 0, inode: 0, rdevice: 0, offset: 0, size_limit: 0, numbers: [0; 3], flags: 0, names: [0; 160], init: [0; 2] };

fn device_path(number: u32) -> String {
    format!("/dev/loop{number}")
}

/// Opens `/dev/loopN`. Makes the device node first if it is missing, as in a container whose /dev is static.
fn open_device(number: u32) -> Result<File, SysError> {
    let path = device_path(number);
    let open = || File::options().read(true).write(true).open(&path);
    match open() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let device = rustix::fs::makedev(LOOP_MAJOR, number);
            match rustix::fs::mknodat(CWD, &*path, FileType::BlockDevice, Mode::from_raw_mode(0o600), device) {
                Ok(()) | Err(Errno::EXIST) => open().step("open a loop device"),
                Err(e) => Err(e).step("make the node of a loop device"),
            }
        }
        other => other.step("open a loop device"),
    }
}

/// Opens the loop device; `None` if it is not backed by this image.
fn open_if_backed_by(number: u32, image: &File) -> Result<Option<File>, SysError> {
    let device = open_device(number)?;
    let mut info = EMPTY;
    // SAFETY: LOOP_GET_STATUS64 writes a loop_info64.
    if unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &mut info) } < 0 {
        return match io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            e => Err(e).step("ask a loop device"),
        };
    }
    let meta = image.metadata().step("stat the image")?;
    Ok((info.device == meta.dev() && info.inode == meta.ino()).then_some(device))
}

fn find_attached(image: &File) -> Result<Option<(u32, File)>, SysError> {
    for entry in std::fs::read_dir("/sys/block").step("list block devices")? {
        let entry = entry.step("list block devices")?;
        let number = entry.file_name().to_str().and_then(|n| n.strip_prefix("loop")).and_then(|n| n.parse::<u32>().ok());
        if let Some(number) = number
            && entry.path().join("loop").exists()
            && let Some(device) = open_if_backed_by(number, image)?
        {
            return Ok(Some((number, device)));
        }
    }
    Ok(None)
}

fn attach_new(image: &File) -> Result<(u32, File), SysError> {
    let control = File::options().read(true).write(true).open("/dev/loop-control").step("open the loop control device")?;
    for _ in 0..ATTEMPTS {
        // SAFETY: LOOP_CTL_GET_FREE takes no argument.
        let number = unsafe { libc::ioctl(control.as_raw_fd(), LOOP_CTL_GET_FREE as _) };
        let number = u32::try_from(number).map_err(|_| io::Error::last_os_error()).step("find a free loop device")?;
        let device = open_device(number)?;
        match configure(&device, image, LOOP_SET_FLAGS) {
            Ok(()) => return Ok((number, device)),
            // Another process took this device.
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => {}
            // The file system of the image has no direct I/O.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                configure(&device, image, LOOP_SET_FLAGS & !16).step("configure a loop device")?;
                return Ok((number, device));
            }
            Err(e) => return Err(e).step("configure a loop device"),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EBUSY)).step("win a free loop device")
}

fn configure(device: &File, image: &File, flags: u32) -> io::Result<()> {
    let fd = u32::try_from(image.as_raw_fd()).map_err(io::Error::other)?;
    let mut config = LoopConfig { fd, block_size: 0, info: LoopInfo { flags, ..EMPTY }, reserved: [0; 8] };
    // SAFETY: LOOP_CONFIGURE reads a loop_config.
    match unsafe { libc::ioctl(device.as_raw_fd(), LOOP_CONFIGURE as _, &mut config) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn mount_btrfs(source: &str, mountpoint: &Path, metadata_ratio: &str) -> Result<(), SysError> {
    let context: OwnedFd = rustix::mount::fsopen("btrfs", FsOpenFlags::FSOPEN_CLOEXEC).step("open the file system type btrfs")?;
    let fd = context.as_fd();
    rustix::mount::fsconfig_set_string(fd, "source", source).step("name the device")?;
    for option in ["user_subvol_rm_allowed", "nodiscard"] {
        rustix::mount::fsconfig_set_flag(fd, option).step("set a mount option")?;
    }
    rustix::mount::fsconfig_set_string(fd, "metadata_ratio", metadata_ratio).step("set a mount option")?;
    rustix::mount::fsconfig_create(fd).step("open the file system")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOATIME | MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let made = rustix::mount::fsmount(fd, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("make the mount")?;
    mount::attach_at(made, mountpoint)
}

const _: () = assert!(size_of::<LoopInfo>() == 232 && size_of::<LoopConfig>() == 304);
