//! Where PID 1 speaks when there is no link yet.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::AsRawFd;

/// Makes the console our standard input, output and error, or `/dev/null` where there is none.
pub(super) fn adopt() {
    let open = |path| OpenOptions::new().read(true).write(true).open(path);
    if let Ok(console) = open("/dev/console").or_else(|_| open("/dev/null")) {
        for target in 0..3 {
            if console.as_raw_fd() != target {
                // SAFETY: no pointers; both are valid descriptor numbers, and nothing of ours uses 0 to 2.
                unsafe { libc::dup2(console.as_raw_fd(), target) };
            }
        }
        if console.as_raw_fd() < 3 {
            std::mem::forget(console);
        }
    }
}

/// Says something in the kernel's log, which the console shows.
pub(super) fn say(text: &str) {
    if let Ok(mut log) = OpenOptions::new().write(true).open("/dev/kmsg") {
        // Without a log there is nobody to tell.
        let _ = writeln!(log, "<3>guest: {text}");
    }
}
