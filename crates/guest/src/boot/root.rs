//! The root disk, and the change from the initramfs to it.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use super::mount::{c_path, mount, move_to};
use crate::kernel::{self, check};

/// The root disk is the first one.
const DISK: &str = "/dev/vda";

/// Where it is mounted before it becomes the root.
const PLACE: &str = "/root-disk";

/// Nothing in the background: the kernel would go through the whole disk some time after the boot, in every sandbox again if a
/// snapshot was taken before that.
const OPTIONS: &CStr = c"noinit_itable,no_prefetch_block_bitmaps";

/// How long its driver may take to find it.
const WAIT_NS: u64 = 10_000_000_000;

/// Mounts the root disk, makes it the root and frees the memory of the initramfs.
pub(super) fn switch() -> io::Result<()> {
    await_path(Path::new(DISK))?;
    let arguments = fs::read_to_string("/proc/cmdline")?;
    let read_only = arguments.split_ascii_whitespace().any(|argument| argument == "pandastack.root=ro");
    let flags = if read_only { libc::MS_RDONLY } else { 0 };
    let place = c_path(Path::new(PLACE))?;
    mount(&c_path(Path::new(DISK))?, &place, c"ext4", flags | libc::MS_NOATIME, OPTIONS)?;
    for name in ["proc", "sys", "dev"] {
        move_to(&c_path(&Path::new("/").join(name))?, &c_path(&Path::new(PLACE).join(name))?)?;
    }
    let initramfs = fs::metadata("/")?.dev();
    std::env::set_current_dir(PLACE)?;
    clear(Path::new("/"), initramfs);
    move_to(c".", c"/")?;
    // SAFETY: the path is a C string.
    check(unsafe { libc::chroot(c".".as_ptr()) })?;
    std::env::set_current_dir("/")
}

/// Waits until a device appears.
pub(crate) fn await_path(path: &Path) -> io::Result<()> {
    await_some(|| path.exists().then_some(()))
}

/// Asks again and again, for a bounded time. Only at boot: nothing else runs that could be disturbed.
pub(super) fn await_some<T>(mut ask: impl FnMut() -> Option<T>) -> io::Result<T> {
    let until = kernel::monotonic_ns() + WAIT_NS;
    loop {
        if let Some(found) = ask() {
            return Ok(found);
        }
        if kernel::monotonic_ns() > until {
            return Err(io::ErrorKind::NotFound.into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Removes everything on the initramfs and nothing beyond it.
fn clear(directory: &Path, device: u64) {
    let Ok(items) = fs::read_dir(directory) else { return };
    for item in items.flatten() {
        let path = item.path();
        // What cannot be removed costs memory and nothing else.
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.dev() != device => {}
            Ok(metadata) if metadata.is_dir() => {
                clear(&path, device);
                let _ = fs::remove_dir(&path);
            }
            _ => {
                let _ = fs::remove_file(&path);
            }
        }
    }
}
