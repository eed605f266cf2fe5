//! Runs a trial inside namespaces of its own, so that nothing it does reaches the host or outlives it.
#![allow(unsafe_code)]

use rustix::mount::{MountPropagationFlags, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Runs `trial` on a thread of its own in a fresh network namespace, which vanishes with all that is in it.
/// Programs the trial starts run there too.
pub(crate) fn in_fresh_network<T: Send>(trial: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    in_fresh(UnshareFlags::NEWNET, trial)
}

/// Runs `trial` on a thread of its own in a copy of the host's mounts. What it mounts is not seen outside; what the
/// host unmounts meanwhile is unmounted here as well.
pub(crate) fn in_fresh_mounts<T: Send>(trial: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    in_fresh(UnshareFlags::NEWNS, trial)
}

fn in_fresh<T: Send>(namespaces: UnshareFlags, trial: impl FnOnce() -> T + Send) -> std::io::Result<T> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            // SAFETY: only namespaces (and with mounts, this thread's working directory) are unshared; they belong
            // to the thread alone, file descriptors stay shared, and the thread ends with this closure.
            unsafe { unshare_unsafe(namespaces) }?;
            if namespaces.contains(UnshareFlags::NEWNS) {
                mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
            }
            Ok(trial())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(kind: &str) -> String {
        std::fs::read_link(format!("/proc/thread-self/ns/{kind}")).unwrap().display().to_string()
    }

    #[test]
    fn a_trial_is_elsewhere_and_its_caller_stays() {
        let before = (namespace("net"), namespace("mnt"));
        assert_ne!(in_fresh_network(|| namespace("net")).unwrap(), before.0);
        assert_ne!(in_fresh_mounts(|| namespace("mnt")).unwrap(), before.1);
        assert_eq!((namespace("net"), namespace("mnt")), before);
    }
}
