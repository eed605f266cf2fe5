//! Boots a kernel of the operator's to its first program, once, and says how far it came.
//!
//! Software virtualization such as PVM runs only guest kernels that were built for it, so the probe guest proves nothing there. A
//! kernel does: it is started as the engine starts it, uncompressed, with a file system in memory that holds one program of ours. That
//! program says a number nobody could have known and ends the machine. It needs no drivers beyond the serial port.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::boot::{Boot, BootOutcome, gave_up, machine, memory_file, seed};
use super::first_program;
use crate::engine::Accelerator;
use crate::program::{Ended, Program, first_lines};
use crate::tsc::tsc_khz;

/// Memory of the machine: room for a large kernel twice.
const MEMORY_MIB: &str = "384";

/// A kernel that the operator supplies.
#[derive(Debug, Clone)]
pub struct GuestKernel {
    /// Where it is.
    pub path: PathBuf,
    /// Gives the uncompressed kernel in that file, or says for people why there is none. How kernels are packed is known elsewhere.
    pub unpack: fn(&Path) -> Result<Vec<u8>, String>,
}

/// Which file a result is about. Two equal values mean the same content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelFile {
    /// Where it is.
    pub path: PathBuf,
    /// Its size; 0 when it cannot be looked at.
    pub size_bytes: u64,
    /// When it was last written, in nanoseconds since 1970.
    pub modified_ns: i64,
}

/// How a kernel of the operator's did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelTrial {
    /// The kernel.
    pub file: KernelFile,
    /// Under KVM.
    pub kvm: Boot,
    /// Under TCG; only tried where it did not run under KVM, to tell a bad kernel from one that KVM here cannot run.
    pub tcg: Boot,
}

impl KernelFile {
    pub(super) fn of(path: &Path) -> KernelFile {
        let found = path.metadata().ok();
        let modified = |found: &std::fs::Metadata| {
            found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec())
        };
        KernelFile {
            path: path.to_owned(),
            size_bytes: found.as_ref().map_or(0, std::fs::Metadata::len),
            modified_ns: found.as_ref().map_or(0, modified),
        }
    }
}

/// Boots an uncompressed kernel under `accelerator`. QEMU is gone when this returns, and there was never a file on disk.
pub(super) fn boot(qemu: &Path, kernel: &[u8], accelerator: Accelerator, deadline: Duration) -> Boot {
    let not_started = |detail: String| Boot { outcome: BootOutcome::NotStarted, elapsed_ms: 0, detail };
    let answer = format!("pandastack-probe {:016x}", seed());
    let files =
        memory_file(kernel).and_then(|kernel| Ok((kernel, memory_file(&first_program::archive(&answer))?)));
    let ((_kernel, kernel), (_archive, archive)) = match files {
        Ok(files) => files,
        Err(error) => return not_started(format!("could not write the guest: {error}")),
    };
    let answered = |said: &[u8]| said.windows(answer.len()).any(|window| window == answer.as_bytes());
    let run = Program::new(qemu, deadline)
        .args(arguments(accelerator, &kernel, &archive))
        .run(|said, complaints| answered(said) || gave_up(complaints));
    let finished = match run {
        Ok(finished) => finished,
        Err(error) => return not_started(error.to_string()),
    };
    let (outcome, detail) = if answered(&finished.stdout) {
        (BootOutcome::Passed, "it booted to its first program".to_owned())
    } else {
        let reached = match last_line(&finished.stdout) {
            Some(line) => format!("the last it said was `{line}`"),
            None => "it said nothing".to_owned(),
        };
        let complaint = first_lines(&finished.stderr);
        let complaint =
            complaint.split(';').next().filter(|text| !text.is_empty()).unwrap_or("QEMU said nothing");
        match finished.ended {
            Ended::TimedOut => {
                (BootOutcome::TimedOut, format!("it did not boot within {} s; {reached}", deadline.as_secs()))
            }
            Ended::Stopped => (BootOutcome::Crashed, format!("{reached}; {complaint}")),
            Ended::Exited(status) => {
                (BootOutcome::Crashed, format!("{reached}; QEMU ended ({status}): {complaint}"))
            }
        }
    };
    Boot { outcome, elapsed_ms: u64::try_from(finished.elapsed.as_millis()).unwrap_or(u64::MAX), detail }
}

/// The last line of a console that has something to read in it, cut to a length for people.
fn last_line(said: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(said).into_owned();
    let line = text.lines().rev().map(str::trim).find(|line| line.chars().any(char::is_alphanumeric))?;
    Some(line.chars().filter(|one| !one.is_control()).take(160).collect())
}

/// The machine the engine boots kernels in, without disks and network.
fn arguments(accelerator: Accelerator, kernel: &str, archive: &str) -> Vec<String> {
    let mitigations = match accelerator {
        Accelerator::Kvm => "",
        Accelerator::Tcg => " mitigations=off",
    };
    // Without the clock's frequency a kernel measures it against an emulated timer, which hangs on a busy host.
    let line = format!(
        "console=ttyS0 quiet reboot=t panic=-1 tsc_early_khz={} tsc=reliable{mitigations}",
        tsc_khz().khz
    );
    let mut all = machine(accelerator, MEMORY_MIB, "qboot.rom");
    all.extend(["-kernel", kernel, "-initrd", archive, "-append", &line].map(str::to_owned));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_no_kernel_does_not_boot() {
        let Some(qemu) = crate::programs::Programs::default().qemu() else {
            panic!("this host has no QEMU");
        };
        let tried = boot(&qemu, b"not a kernel", Accelerator::Tcg, Duration::from_secs(60));
        assert!(!tried.passed(), "{tried:?}");
        assert_eq!(tried.outcome, BootOutcome::Crashed, "{tried:?}");
    }

    #[test]
    fn the_last_words_are_found() {
        assert_eq!(last_line(b"[ 0.1] one\r\n[ 0.2] two\r\n\r\n").as_deref(), Some("[ 0.2] two"));
        assert_eq!(last_line(b"\x1b[?7l\r\n").as_deref(), Some("[?7l"));
        assert_eq!(last_line(b"\r\n \r\n"), None);
    }

    #[test]
    fn a_file_is_told_from_what_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("vmlinux");
        let absent = KernelFile::of(&path);
        std::fs::write(&path, "one").unwrap();
        let first = KernelFile::of(&path);
        std::fs::write(&path, "longer").unwrap();
        assert!(first != absent && KernelFile::of(&path) != first);
    }
}
