//! Places at which a test may kill the process, to prove that it can be killed anywhere.
//!
//! [`reached`] marks the border between two steps of which the first may happen without the second. In the
//! program it is nothing. In a test process that was told to, it raises `SIGKILL` when it is called for the nth time.

/// Marks a border between two steps.
#[cfg(not(test))]
#[inline]
pub(crate) fn reached() {}

#[cfg(test)]
pub(crate) use armed::{arm, reached, run_killed_at};

#[cfg(test)]
mod armed {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::sync::atomic::{AtomicU32, Ordering};

    const VARIABLE: &str = "STORAGE_TEST_KILL_AT";

    /// Borders left until death; 0 is never.
    static LEFT: AtomicU32 = AtomicU32::new(0);

    pub(crate) fn reached() {
        let dies = LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if dies == Ok(1) {
            let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
            unreachable!("SIGKILL cannot be survived");
        }
    }

    /// Counts the borders from now on, in a process started by [`run_killed_at`].
    pub(crate) fn arm() {
        if let Ok(count) = std::env::var(VARIABLE) {
            LEFT.store(count.parse().unwrap(), Ordering::Relaxed);
        }
    }

    /// Runs the ignored test `name` of this program in a process of its own that dies at its nth border. Returns
    /// whether it died there; `false` means that it came to its end before.
    pub(crate) fn run_killed_at(border: u32, name: &str, variables: &[(&str, &std::path::Path)]) -> bool {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
            .envs(variables.iter().copied())
            .env(VARIABLE, border.to_string())
            .output()
            .unwrap();
        if output.status.signal() == Some(9) {
            return true;
        }
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.contains("1 passed"), "{name} is no test: {text}");
        false
    }
}
