//! Drivers, loaded in the order of a list that whoever made the initramfs wrote.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;

use super::console;
use crate::kernel::check_long;

/// One path per line.
const LIST: &str = "/modules.list";

/// Loads them all. One that fails is said so and skipped: the next step tells whether it was needed.
pub(super) fn load_all() -> io::Result<()> {
    let list = match fs::read_to_string(LIST) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    for path in list.lines().filter(|line| !line.is_empty()) {
        match load(path) {
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
