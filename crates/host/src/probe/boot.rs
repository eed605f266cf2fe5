//! Boots the probe guest once and says how far it came.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, SystemTime};

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use super::rom::{self, REPLY_BYTES, Reply, Rom};
use crate::engine::Accelerator;
use crate::program::{Ended, Program, first_lines};

/// What QEMU prints when the kernel gives up on a guest; the guest then stands still until the deadline.
const KVM_GAVE_UP: &str = "KVM internal error";

/// One try of the probe guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boot {
    /// How it ended.
    pub outcome: BootOutcome,
    /// From the start of QEMU to its end.
    pub elapsed_ms: u64,
    /// What happened, for people.
    pub detail: String,
}

/// How a try of the probe guest ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BootOutcome {
    /// The guest gave the right answer in time.
    Passed,
    /// It was still at it when its time was over.
    TimedOut,
    /// QEMU ended, or KVM gave up, before the answer.
    Crashed,
    /// Something answered that is not our guest.
    WrongReply,
    /// QEMU did not start at all.
    NotStarted,
    /// There was no point in trying.
    NotTried,
}

impl Boot {
    /// True when the guest gave the right answer in time.
    pub fn passed(&self) -> bool {
        self.outcome == BootOutcome::Passed
    }

    pub(crate) fn not_tried(reason: impl Into<String>) -> Boot {
        Boot { outcome: BootOutcome::NotTried, elapsed_ms: 0, detail: reason.into() }
    }
}

/// Boots the guest under `accelerator`. QEMU is gone when this returns, and there was never a file on disk.
pub(crate) fn boot(qemu: &Path, accelerator: Accelerator, deadline: Duration) -> Boot {
    let rom = Rom::new(seed());
    let (_held, firmware) = match memory_file(&rom.image) {
        Ok(made) => made,
        Err(error) => {
            let detail = format!("could not write the probe guest: {error}");
            return Boot { outcome: BootOutcome::NotStarted, elapsed_ms: 0, detail };
        }
    };
    let run = Program::new(qemu, deadline)
        .args(machine(accelerator, "16", &firmware))
        .run(|said, complaints| !matches!(rom.judge(said), Reply::Partial(_)) || gave_up(complaints));
    let finished = match run {
        Ok(finished) => finished,
        Err(error) => {
            return Boot { outcome: BootOutcome::NotStarted, elapsed_ms: 0, detail: error.to_string() };
        }
    };
    let (outcome, detail) = judge(&rom, finished.ended, &finished.stdout, &finished.stderr);
    Boot { outcome, elapsed_ms: u64::try_from(finished.elapsed.as_millis()).unwrap_or(u64::MAX), detail }
}

fn judge(rom: &Rom, ended: Ended, said: &[u8], complaints: &[u8]) -> (BootOutcome, String) {
    let bytes = match rom.judge(said) {
        Reply::Complete => return (BootOutcome::Passed, "the probe guest gave the right answer".into()),
        Reply::Wrong => {
            let shown = String::from_utf8_lossy(&said[..said.len().min(REPLY_BYTES * 2)]).into_owned();
            return (BootOutcome::WrongReply, format!("not the probe guest's answer: {shown:?}"));
        }
        Reply::Partial(bytes) => bytes,
    };
    let reached = format!("the guest reached {}", rom::stage(bytes));
    let complaint = first_lines(complaints);
    let complaint = if complaint.is_empty() { "QEMU said nothing".to_owned() } else { complaint };
    match ended {
        Ended::TimedOut => (BootOutcome::TimedOut, reached),
        // The rest is a dump of registers.
        Ended::Stopped => {
            let complaint = complaint.split(';').next().unwrap_or_default();
            (BootOutcome::Crashed, format!("{reached}; {complaint}"))
        }
        Ended::Exited(status) => {
            (BootOutcome::Crashed, format!("{reached}; QEMU ended ({status}): {complaint}"))
        }
    }
}

pub(super) fn gave_up(complaints: &[u8]) -> bool {
    complaints.windows(KVM_GAVE_UP.len()).any(|window| window == KVM_GAVE_UP.as_bytes())
}

/// The machine the engine uses, reduced to RAM and a serial port.
pub(super) fn machine(accelerator: Accelerator, memory_mib: &str, firmware: &str) -> Vec<String> {
    let processor = match accelerator {
        Accelerator::Kvm => "host",
        Accelerator::Tcg => "max",
    };
    [
        "-M",
        "microvm,pic=on,pit=on,rtc=on,isa-serial=on,auto-kernel-cmdline=off",
        "-accel",
        accelerator.qemu_name(),
        "-cpu",
        processor,
        "-m",
        memory_mib,
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-serial",
        "stdio",
        "-bios",
        firmware,
    ]
    .map(str::to_owned)
    .to_vec()
}

/// A file in memory for QEMU, and its path: QEMU takes paths, and this one leads to a file that this process holds open.
pub(super) fn memory_file(content: &[u8]) -> std::io::Result<(File, String)> {
    let mut file = File::from(memfd_create("pandastack-probe", MemfdFlags::CLOEXEC)?);
    file.write_all(content)?;
    let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
    Ok((file, path))
}

/// Different at every boot, so that no earlier answer fits.
pub(super) fn seed() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    now.as_nanos() as u64 ^ (u64::from(std::process::id()) << 40)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fake_qemu(directory: &Path, script: &str) -> std::path::PathBuf {
        use std::os::unix::fs::PermissionsExt;
        let path = directory.join("qemu");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn a_qemu_that_hangs_is_killed_at_the_deadline() {
        let directory = tempfile::tempdir().unwrap();
        let qemu = fake_qemu(directory.path(), "printf R; sleep 1000");
        let tried = boot(&qemu, Accelerator::Tcg, Duration::from_millis(400));
        assert_eq!(tried.outcome, BootOutcome::TimedOut);
        assert!((400..10_000).contains(&tried.elapsed_ms), "{tried:?}");
        assert!(tried.detail.contains("real mode"), "{tried:?}");
    }

    #[test]
    fn crashes_impostors_and_absent_programs_are_told_apart() {
        let directory = tempfile::tempdir().unwrap();
        let long = Duration::from_secs(30);
        let check = |script: &str, outcome: BootOutcome, words: &str| {
            let tried = boot(&fake_qemu(directory.path(), script), Accelerator::Kvm, long);
            assert_eq!(tried.outcome, outcome, "{tried:?}");
            assert!(tried.detail.contains(words), "{tried:?}");
            assert!(tried.elapsed_ms < 25_000, "{tried:?}");
        };
        check("echo no such accelerator >&2; exit 1", BootOutcome::Crashed, "no such accelerator");
        check("printf 'SeaBIOS '; sleep 1000", BootOutcome::WrongReply, "SeaBIOS");
        check("printf RPL; echo 'KVM internal error.' >&2; sleep 1000", BootOutcome::Crashed, "cmpxchg16b");
        let absent = boot(&directory.path().join("absent"), Accelerator::Tcg, long);
        assert_eq!(absent.outcome, BootOutcome::NotStarted);
    }
}
