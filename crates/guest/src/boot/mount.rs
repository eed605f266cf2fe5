//! Mounts.

use std::ffi::{CStr, CString};
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::Path;
use std::ptr;

use guest_link::tool::CopyWhat;

use super::console;
use crate::kernel::check;
use crate::tool::copy::Copier;

/// Of file systems that hold no programs.
pub(crate) const PLAIN: libc::c_ulong = libc::MS_NOSUID | libc::MS_NOEXEC | libc::MS_NODEV;

/// What the initramfs itself needs; later moved to the root disk.
pub(super) fn early() -> io::Result<()> {
    mount(c"proc", c"/proc", c"proc", PLAIN, c"")?;
    mount(c"sysfs", c"/sys", c"sysfs", PLAIN, c"")?;
    mount(c"devtmpfs", c"/dev", c"devtmpfs", libc::MS_NOSUID, c"mode=0755")
}

/// What programs expect of a running system. `/tmp` stays on the disk.
pub(super) fn runtime() -> io::Result<()> {
    mount(
        c"devpts",
        c"/dev/pts",
        c"devpts",
        libc::MS_NOSUID | libc::MS_NOEXEC,
        c"gid=5,mode=620,ptmxmode=666",
    )?;
    mount(c"tmpfs", c"/dev/shm", c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV, c"mode=1777")?;
    run()?;
    mount(c"cgroup2", c"/sys/fs/cgroup", c"cgroup2", PLAIN, c"")?;
    match DirBuilder::new().mode(0o1777).create("/run/lock") {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    for (target, link) in [
        ("/proc/self/fd", "/dev/fd"),
        ("/proc/self/fd/0", "/dev/stdin"),
        ("/proc/self/fd/1", "/dev/stdout"),
        ("/proc/self/fd/2", "/dev/stderr"),
    ] {
        match symlink(target, link) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// `/run` in memory, with what the disk has there: images have directories in it that their programs expect.
fn run() -> io::Result<()> {
    let flags = libc::MS_NOSUID | libc::MS_NODEV;
    let is_empty = fs::read_dir("/run").map_or(true, |mut entries| entries.next().is_none());
    if is_empty {
        return mount(c"tmpfs", c"/run", c"tmpfs", flags, c"mode=0755");
    }
    mount(c"tmpfs", c"/dev/new-run", c"tmpfs", flags, c"mode=0755")?;
    let copied =
        Copier::new(None, None).copy(Path::new("/run"), Path::new("/dev/new-run"), CopyWhat::Contents);
    if let Err(trouble) = copied {
        console::say(&format!("could not bring along what the disk has in /run: {trouble}"));
    }
    move_to(c"/dev/new-run", c"/run")?;
    fs::remove_dir("/dev/new-run")
}

/// Mounts, making the directory if it can be made.
pub(super) fn mount(
    source: &CStr,
    target: &CStr,
    kind: &CStr,
    flags: libc::c_ulong,
    options: &CStr,
) -> io::Result<()> {
    make_directory(target);
    // SAFETY: all pointers are C strings that outlive the call.
    check(unsafe {
        libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, options.as_ptr().cast())
    })?;
    Ok(())
}

/// Moves a mount.
pub(super) fn move_to(source: &CStr, target: &CStr) -> io::Result<()> {
    make_directory(target);
    // SAFETY: both pointers are C strings; the others may be null for a move.
    check(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), ptr::null(), libc::MS_MOVE, ptr::null()) })?;
    Ok(())
}

fn make_directory(path: &CStr) {
    if let Ok(path) = path.to_str() {
        // It exists, or the mount will say that it does not.
        let _ = fs::create_dir(path);
    }
}

/// A C string of a path.
pub(crate) fn c_path(path: &Path) -> io::Result<CString> {
    use std::os::unix::ffi::OsStrExt;
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}
