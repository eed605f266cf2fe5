//! The device that is the guest link: the virtio-serial port of that name.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::root::{await_path, await_some};

/// The port's name, as the machine was made with it.
const NAME: &str = "pandastack.link";

/// Waits for the port and opens it.
pub(super) fn open() -> io::Result<OwnedFd> {
    let device = await_some(find)?;
    await_path(&device)?;
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(device)?;
    Ok(OwnedFd::from(file))
}

fn find() -> Option<PathBuf> {
    for port in fs::read_dir("/sys/class/virtio-ports").ok()?.flatten() {
        let name = fs::read_to_string(port.path().join("name")).unwrap_or_default();
        if name.trim_end() == NAME {
            return Some(Path::new("/dev").join(port.file_name()));
        }
    }
    None
}
