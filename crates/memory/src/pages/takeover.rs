//! Goes on with the faults of a process whose server was killed.
//!
//! The process holds its own descriptor, so faults are not lost with the server: whoever waits is woken and asks again. What
//! *is* lost is which memory the guest had given back before. That reads as it was packed instead of zeros, which a balloon
//! allows: a guest expects nothing of memory it gave back.

use std::io;
use std::os::unix::ffi::OsStrExt;

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags};

use super::handover::Handover;
use super::regions::Regions;
use super::userfault::{LINK, Userfault};

/// Most descriptors of a process that are looked at.
const DESCRIPTORS_MAX: usize = 4096;

/// Why a process could not be taken over again. Its guest waits; the owner ends it.
#[derive(Debug, thiserror::Error)]
pub enum TakeOverError {
    /// The process has ended.
    #[error("process {pid} has ended")]
    Gone {
        /// The process asked for.
        pid: u32,
    },
    /// The process has no userfaultfd, or several.
    #[error("process {pid} has {count} descriptors for faults, not one")]
    Descriptors {
        /// The process asked for.
        pid: u32,
        /// How many it has.
        count: usize,
    },
    /// The kernel refused.
    #[error("could not {action} of process {pid}")]
    Kernel {
        /// The process asked for.
        pid: u32,
        /// What was tried.
        action: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl Handover {
    /// Takes the descriptor for faults out of a process that had handed it to somebody who is gone, and has every thread that
    /// waits ask again. `regions` are those of the first handover. The caller knows that `pid` is the process it means.
    pub fn take_over(pid: u32, regions: Regions) -> Result<Handover, TakeOverError> {
        let failed = |action| move |source: io::Error| explain(pid, action, source);
        let process = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or(TakeOverError::Gone { pid })?;
        // Opened before the descriptors are listed: what is taken comes from the process that was looked at.
        let handle = rustix::process::pidfd_open(process, PidfdFlags::empty())
            .map_err(|errno| explain(pid, "open a handle", errno.into()))?;
        let numbers = userfault_numbers(pid).map_err(failed("list the descriptors"))?;
        let [number] = numbers[..] else {
            return Err(TakeOverError::Descriptors { pid, count: numbers.len() });
        };
        let descriptor: OwnedFd = rustix::process::pidfd_getfd(&handle, number, PidfdGetfdFlags::empty())
            .map_err(|errno| explain(pid, "take a descriptor", errno.into()))?;
        let userfault = Userfault::new(descriptor).map_err(failed("use the descriptor"))?;
        for part in regions.parts() {
            userfault
                .wake(part.address, part.length)
                .map_err(|errno| explain(pid, "wake the threads", errno.into()))?;
        }
        Handover::new(userfault, regions, pid).map_err(failed("open the pages"))
    }
}

fn userfault_numbers(pid: u32) -> io::Result<Vec<i32>> {
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd"))?.take(DESCRIPTORS_MAX) {
        let path = entry?.path();
        // A descriptor may be closed between being listed and being looked at.
        let Ok(link) = std::fs::read_link(&path) else { continue };
        if link.as_os_str().as_bytes() == LINK.as_bytes() {
            numbers.extend(path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok()));
        }
    }
    Ok(numbers)
}

fn explain(pid: u32, action: &'static str, source: io::Error) -> TakeOverError {
    match source.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) => TakeOverError::Gone { pid },
        _ => TakeOverError::Kernel { pid, action, source },
    }
}
