//! Drivers, loaded in the order of a list that whoever made the initramfs wrote.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

use super::{bus, console};
use crate::kernel::check_long;
use crate::system::disks;

/// One path per line.
const LIST: &str = "/modules.list";

/// The driver of disks, which is told which ones to take.
const DISKS: &str = "/virtio_blk.ko";

/// Drivers that only some machines need, by part of their names: loading them would be for nothing in those without the device. They come
/// after that of the bus.
const NEEDED_BY: [(&str, &str); 2] = [("vsock", bus::SOCKET), ("/virtio_balloon.ko", bus::BALLOON)];

/// Loads them all. One that fails is said so and skipped: the next step tells whether it was needed.
pub(super) fn load_all() -> io::Result<()> {
    let list = match fs::read_to_string(LIST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for path in list.lines().filter(|line| !line.is_empty()) {
        if NEEDED_BY.iter().any(|(name, device)| path.contains(name) && !bus::has(device)) {
            continue;
        }
        let loaded = if path.ends_with(DISKS) { disks::load_driver(|| load(path)) } else { load(path) };
        match loaded {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                console::say(&format!("could not load {path}: {error}"));
            }
            _ => {}
        }
    }
    Ok(())
}

fn load(path: &str) -> io::Result<()> {
    let file = File::open(path)?;
    // SAFETY: the parameters are a C string; the kernel reads the module from the descriptor.
    check_long(unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) })?;
    Ok(())
}
