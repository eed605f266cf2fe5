//! A clean stop: processes asked, then killed, file systems made consistent, machine stopped.
//!
//! ```text
//! Asked ──all gone, or grace over──► Killed ──all gone, or a second──► file systems ──► machine off
//! ```

use std::fs;

use crate::kernel::{self, check};
use crate::system;

/// How long killed processes get to vanish. What does not is stuck in the kernel.
const KILL_NS: u64 = 1_000_000_000;

/// How often an orphan that we are not told about is looked for.
const LOOK_NS: u64 = 50_000_000;

pub(crate) struct Shutdown {
    killed: bool,
    until_ns: u64,
    look_ns: u64,
}

impl Shutdown {
    /// Asks every process to end.
    pub(crate) fn begin(grace_ms: u32) -> Shutdown {
        let now = kernel::monotonic_ns();
        signal_all(libc::SIGTERM);
        // Stopped ones could not obey.
        signal_all(libc::SIGCONT);
        Shutdown { killed: false, until_ns: now + u64::from(grace_ms) * 1_000_000, look_ns: now + LOOK_NS }
    }

    /// When to look again.
    pub(crate) fn next_deadline_ns(&self) -> u64 {
        self.until_ns.min(self.look_ns)
    }

    /// Goes on as far as possible; does not return once the machine can be stopped.
    pub(crate) fn advance(&mut self) {
        let now = kernel::monotonic_ns();
        self.look_ns = now + LOOK_NS;
        let gone = !has_children();
        if !gone && now < self.until_ns {
            return;
        }
        if !gone && !self.killed {
            self.killed = true;
            self.until_ns = now + KILL_NS;
            signal_all(libc::SIGKILL);
            return;
        }
        stop();
    }
}

/// Signals every process but ourselves.
fn signal_all(signal: i32) {
    // SAFETY: no pointers. Nobody to signal is fine.
    unsafe { libc::kill(-1, signal) };
}

/// Whether any process but ourselves is left: as PID 1 we are parent or foster parent of them all.
fn has_children() -> bool {
    // SAFETY: all zeroes is a valid `siginfo_t`, and the kernel fills it. With `WNOWAIT` nothing is collected.
    let result = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &raw mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
    };
    check(result).is_ok()
}

/// Makes file systems consistent and stops the machine.
pub(crate) fn stop() -> ! {
    system::sync();
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let targets = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    // The newest first, the root last.
    for target in targets.collect::<Vec<_>>().into_iter().rev() {
        let Ok(target) = std::ffi::CString::new(target) else { continue };
        // SAFETY: `target` is a C string; the other pointers may be null. What cannot be unmounted is made read-only, which
        // flushes it; what cannot even be that was flushed above.
        unsafe {
            if target.as_c_str() == c"/" || libc::umount2(target.as_ptr(), libc::MNT_DETACH) < 0 {
                let flags = libc::MS_REMOUNT | libc::MS_RDONLY;
                libc::mount(std::ptr::null(), target.as_ptr(), std::ptr::null(), flags, std::ptr::null());
            }
        }
    }
    system::sync();
    halt()
}

/// Stops the machine at once. The machine monitor takes a reboot as the end.
pub(crate) fn halt() -> ! {
    loop {
        // SAFETY: no pointers.
        unsafe {
            libc::reboot(libc::RB_AUTOBOOT);
            libc::pause();
        }
    }
}
