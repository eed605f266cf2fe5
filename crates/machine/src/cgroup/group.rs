//! The group of one machine process.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tokio::sync::OnceCell;

use super::{Removed, remove};

/// The time over which the kernel measures what a group takes of processors.
const PERIOD_MICROSECONDS: u64 = 100_000;
/// What a machine process needs besides its virtual processors, in hundredths of one: devices are served beside them.
const PROCESSOR_PERCENT: u64 = 50;
/// Threads besides virtual processors. QEMU reads and writes disks with up to 64.
const THREADS: u32 = 128;
/// What a virtual processor weighs.
const WEIGHT: u32 = 100;
/// How much more until the guest has answered: somebody waits for that.
const FIRST: u32 = 10;
/// The most that a group weighs.
const WEIGHT_MAX: u32 = 10_000;
/// How long the kernel may need to let go of a group whose process has ended.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(2);
const REMOVE_POLL: Duration = Duration::from_millis(2);

/// What a machine process may take of its host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Virtual processors.
    pub(crate) vcpus: u32,
    /// Memory, the guest's and that of the process itself.
    pub(crate) memory_bytes: u64,
}

/// A group. Machines outlive the process that made theirs, so nothing happens on drop.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    directory: File,
    /// Virtual processors, where the kernel weighs groups.
    weighed: OnceLock<u32>,
    /// Once: later another machine may have the name.
    removed: OnceCell<()>,
}

impl Group {
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        let directory = File::open(&path)?;
        Ok(Self { path, directory, weighed: OnceLock::new(), removed: OnceCell::new() })
    }

    /// Writes down what whoever is in it may take.
    pub(super) fn limit(&self, share: Share, controllers: &[&str]) -> io::Result<()> {
        let write = |name: &str, value: String| self.write(name, &value);
        // Files that older kernels, or those without swap, do not have.
        let write_if_there = |name: &str, value: String| match write(name, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            outcome => outcome,
        };
        if controllers.contains(&"cpu") {
            let percent = u64::from(share.vcpus) * 100 + PROCESSOR_PERCENT;
            let quota = percent * PERIOD_MICROSECONDS / 100;
            write("cpu.max", format!("{quota} {PERIOD_MICROSECONDS}"))?;
            // What was not used can be used a little later: a machine that begins needs much for a moment.
            write_if_there("cpu.max.burst", quota.to_string())?;
            write("cpu.weight", weight(share.vcpus, FIRST))?;
            self.weighed.get_or_init(|| share.vcpus);
        }
        if controllers.contains(&"memory") {
            write("memory.max", share.memory_bytes.to_string())?;
            // The host may move out all of it, and nobody more than that.
            write_if_there("memory.swap.max", share.memory_bytes.to_string())?;
        }
        if controllers.contains(&"pids") {
            write("pids.max", (share.vcpus + THREADS).to_string())?;
        }
        Ok(())
    }

    /// Gives it its ordinary weight; tells whether it has one.
    pub(crate) fn deprioritize(&self) -> bool {
        self.weighed.get().is_some_and(|vcpus| self.write("cpu.weight", &weight(*vcpus, 1)).is_ok())
    }

    fn write(&self, name: &str, value: &str) -> io::Result<()> {
        File::options().write(true).open(self.path.join(name))?.write_all(value.as_bytes())
    }

    /// Removes the group of a process that has ended. Safe to repeat; all return when it is gone.
    pub(crate) async fn remove(&self) {
        let removing = async {
            let begun = Instant::now();
            loop {
                match remove(&self.path) {
                    Ok(Removed::InUse) if begun.elapsed() < REMOVE_TIMEOUT => {
                        tokio::time::sleep(REMOVE_POLL).await;
                    }
                    outcome => return self.tell(&outcome),
                }
            }
        };
        self.removed.get_or_init(|| removing).await;
    }

    /// The same from where nothing can be awaited.
    pub(crate) fn remove_blocking(&self) {
        // Whoever was first removes it.
        if self.removed.set(()).is_err() {
            return;
        }
        let begun = Instant::now();
        loop {
            match remove(&self.path) {
                Ok(Removed::InUse) if begun.elapsed() < REMOVE_TIMEOUT => std::thread::sleep(REMOVE_POLL),
                outcome => return self.tell(&outcome),
            }
        }
    }

    fn tell(&self, outcome: &io::Result<Removed>) {
        match outcome {
            Ok(Removed::Gone) => {}
            Ok(Removed::InUse) => {
                tracing::warn!(path = %self.path.display(), "the group of a machine stays until the next start")
            }
            Err(error) => {
                tracing::warn!(path = %self.path.display(), %error, "the group of a machine stays until the next start")
            }
        }
    }
}

fn weight(vcpus: u32, times: u32) -> String {
    (vcpus * WEIGHT * times).min(WEIGHT_MAX).to_string()
}

impl AsFd for Group {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }
}
