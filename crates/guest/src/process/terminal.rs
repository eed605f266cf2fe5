//! Pseudo-terminals.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;

use guest_link::message::TerminalSize;

use crate::kernel::check;

/// A new terminal of the given size, owned by `uid`: our end and the program's.
pub(crate) fn open(size: TerminalSize, uid: u32) -> io::Result<(File, File)> {
    let flags = libc::O_NOCTTY | libc::O_CLOEXEC;
    let master = OpenOptions::new().read(true).write(true).custom_flags(flags).open("/dev/ptmx")?;
    let unlocked: libc::c_int = 0;
    // SAFETY: `TIOCSPTLCK` reads one int.
    check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCSPTLCK, &raw const unlocked) })?;
    // SAFETY: `TIOCGPTPEER` takes open flags by value and returns a descriptor.
    let slave = check(unsafe { libc::ioctl(master.as_raw_fd(), libc::TIOCGPTPEER, libc::O_RDWR | flags) })?;
    // SAFETY: fresh and owned by nobody else.
    let slave = unsafe { File::from_raw_fd(slave) };
    resize(&master, size)?;
    if uid != 0 {
        std::os::unix::fs::fchown(&slave, Some(uid), None)?;
    }
    Ok((master, slave))
}

/// Changes the size; the program in front gets `SIGWINCH`.
pub(crate) fn resize(master: &impl AsFd, size: TerminalSize) -> io::Result<()> {
    let size = libc::winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: `TIOCSWINSZ` reads one `winsize`.
    check(unsafe { libc::ioctl(master.as_fd().as_raw_fd(), libc::TIOCSWINSZ, &raw const size) })?;
    Ok(())
}
