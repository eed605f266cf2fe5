//! Finds out what really runs guests here, by booting one: under KVM and under TCG, each with a deadline.
//!
//! A `/dev/kvm` that opens is not a KVM that works, so the device, the loaded modules and the processor's flags are
//! only written down as facts; the probe guest decides. A kernel that the operator supplies is booted too: software virtualization may
//! run it and nothing else. The result is kept in a file for as long as nothing it depends on has changed.

mod boot;
mod cache;
mod first_program;
mod kernel;
mod rom;

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::boot::{Boot, BootOutcome};
pub use self::kernel::{GuestKernel, KernelFile, KernelTrial};
use crate::cpu::cpu_identity;
use crate::engine::Accelerator;
use crate::facts::{kernel_text, unix_ms};
use crate::programs::Programs;
use crate::qemu::{QemuBinary, QemuError};

/// What the probe found. Facts and outcomes only; `classify` and `choose` judge them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The QEMU that was used.
    pub qemu: QemuBinary,
    /// What happens when `/dev/kvm` is opened.
    pub device: KvmDevice,
    /// `vmx` or `svm`, when the processor shows it.
    pub cpu_flag: Option<String>,
    /// Modules of the kernel whose name starts with `kvm`, loaded or built in.
    pub modules: Vec<String>,
    /// The probe guest under KVM.
    pub kvm: Boot,
    /// The probe guest under TCG.
    pub tcg: Boot,
    /// The operator's kernel, where one is set.
    pub guest_kernel: Option<KernelTrial>,
    /// When, in milliseconds since 1970.
    pub probed_at_unix_ms: u64,
}

/// What happens when `/dev/kvm` is opened for reading and writing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KvmDevice {
    /// It opens, which by itself proves nothing.
    Opens,
    /// There is none.
    Absent,
    /// It is there, but not for us.
    Refused {
        /// The system's words.
        reason: String,
    },
}

/// How to probe.
#[derive(Debug, Clone)]
pub struct ProbeSettings {
    /// Where QEMU is.
    pub programs: Programs,
    /// Where to keep the result, if anywhere.
    pub cache: Option<PathBuf>,
    /// Whether a kept result may answer.
    pub freshness: Freshness,
    /// How long the guest may take under each accelerator.
    pub deadlines: Deadlines,
    /// The operator's kernel, if there is one: it is tried too.
    pub guest_kernel: Option<GuestKernel>,
}

/// Whether a kept result may answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Freshness {
    /// Use the kept result while nothing it depends on has changed.
    UseCache,
    /// Boot the guest now.
    ProbeNow,
}

/// How long the probe guest may take, from the start of QEMU to its answer.
#[derive(Debug, Clone, Copy)]
pub struct Deadlines {
    /// Under KVM: ~0.1 s on hardware; what interprets needs 25 s or more.
    pub kvm: Duration,
    /// Under TCG: ~0.2 s; the rest is for busy hosts.
    pub tcg: Duration,
    /// The operator's kernel under KVM: a second or less; what interprets needs minutes.
    pub kernel_kvm: Duration,
    /// The operator's kernel under TCG: 5 s; the rest is for busy hosts.
    pub kernel_tcg: Duration,
}

/// How often as long as under TCG a guest may take under KVM. On hardware it is quicker; what interprets takes a hundred times as
/// long.
const KVM_TO_TCG: u32 = 2;

impl Deadlines {
    /// The time under KVM: longer on a host so slow, or so busy, that TCG took long too.
    fn kvm_after(&self, tcg: &Boot) -> Duration {
        match tcg.passed() {
            true => self.kvm.max(Duration::from_millis(tcg.elapsed_ms) * KVM_TO_TCG),
            false => self.kvm,
        }
    }
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            kvm: Duration::from_secs(5),
            tcg: Duration::from_secs(30),
            kernel_kvm: Duration::from_secs(30),
            kernel_tcg: Duration::from_secs(120),
        }
    }
}

/// A probe and whether it was made now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probed {
    /// What was found.
    pub probe: Probe,
    /// True when a kept result answered.
    pub from_cache: bool,
}

/// Probes, or answers from the cache. Blocks: up to all deadlines, usually well under a second, or a few with a kernel.
pub fn probe(settings: &ProbeSettings) -> Result<Probed, QemuError> {
    let qemu = QemuBinary::identify(&settings.programs.qemu().ok_or(QemuError::Missing)?)?;
    let device = open_device();
    let guest_kernel = settings.guest_kernel.as_ref().map(|kernel| KernelFile::of(&kernel.path));
    let key = cache::Key::of(&qemu, &device, guest_kernel.as_ref());
    if let (Some(path), Freshness::UseCache) = (&settings.cache, settings.freshness) {
        match cache::load(path, &key) {
            Ok(probe) => return Ok(Probed { probe, from_cache: true }),
            Err(why) => tracing::debug!(path = %path.display(), %why, "no kept probe result; probing"),
        }
    }
    let tcg = boot::boot(&qemu.path, Accelerator::Tcg, settings.deadlines.tcg);
    let kvm = match &device {
        KvmDevice::Opens => boot::boot(&qemu.path, Accelerator::Kvm, settings.deadlines.kvm_after(&tcg)),
        KvmDevice::Absent => Boot::not_tried("there is no /dev/kvm"),
        KvmDevice::Refused { reason } => Boot::not_tried(format!("/dev/kvm could not be opened: {reason}")),
    };
    let guest_kernel =
        settings.guest_kernel.as_ref().map(|kernel| try_kernel(kernel, &qemu, &device, settings.deadlines));
    let cpu_flag = cpu_identity().ok().and_then(|cpu| cpu.virtualization_flag().map(str::to_owned));
    let probed_at_unix_ms = unix_ms();
    let modules = kvm_modules();
    let probe = Probe { qemu, device, cpu_flag, modules, kvm, tcg, guest_kernel, probed_at_unix_ms };
    if let Some(path) = &settings.cache
        && probe.is_conclusive()
        && let Err(error) = cache::store(path, &key, &probe)
    {
        tracing::warn!(path = %path.display(), %error, "could not keep the probe result; the next start probes again");
    }
    Ok(Probed { probe, from_cache: false })
}

fn try_kernel(
    kernel: &GuestKernel,
    qemu: &QemuBinary,
    device: &KvmDevice,
    deadlines: Deadlines,
) -> KernelTrial {
    let file = KernelFile::of(&kernel.path);
    let unpacked = match (kernel.unpack)(&kernel.path) {
        Ok(unpacked) => unpacked,
        Err(reason) => {
            let bad = Boot { outcome: BootOutcome::NotStarted, elapsed_ms: 0, detail: reason };
            return KernelTrial { file, kvm: bad.clone(), tcg: bad };
        }
    };
    let kvm = match device {
        KvmDevice::Opens => kernel::boot(&qemu.path, &unpacked, Accelerator::Kvm, deadlines.kernel_kvm),
        KvmDevice::Absent | KvmDevice::Refused { .. } => {
            Boot::not_tried("there is no /dev/kvm to try it with")
        }
    };
    let tcg = match kvm.passed() {
        true => Boot::not_tried("it boots under KVM"),
        false => kernel::boot(&qemu.path, &unpacked, Accelerator::Tcg, deadlines.kernel_tcg),
    };
    KernelTrial { file, kvm, tcg }
}

impl Probe {
    /// What came of running a guest under KVM: the operator's kernel decides where the probe guest does not run.
    pub(crate) fn under_kvm(&self) -> &Boot {
        match &self.guest_kernel {
            Some(trial) if !self.kvm.passed() => &trial.kvm,
            _ => &self.kvm,
        }
    }

    /// True when trying again would not find anything else until something changes. A processor that could, but did
    /// not, or a QEMU that did not run at all, may only have met a bad moment: such a result is not kept.
    fn is_conclusive(&self) -> bool {
        let kvm_settled = self.kvm.passed() || self.device != KvmDevice::Opens || self.cpu_flag.is_none();
        let kernel_settled = self.guest_kernel.as_ref().is_none_or(|trial| match trial.kvm.outcome {
            BootOutcome::Passed => true,
            BootOutcome::Crashed | BootOutcome::NotTried => trial.tcg.passed(),
            // A host that was busy for a moment slows down both: one that emulates in less time had enough of it.
            BootOutcome::TimedOut => trial.tcg.passed() && trial.tcg.elapsed_ms < trial.kvm.elapsed_ms,
            BootOutcome::WrongReply | BootOutcome::NotStarted => false,
        });
        self.tcg.passed() && kvm_settled && kernel_settled
    }
}

fn open_device() -> KvmDevice {
    match std::fs::File::options().read(true).write(true).open("/dev/kvm") {
        Ok(_) => KvmDevice::Opens,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => KvmDevice::Absent,
        Err(error) => KvmDevice::Refused { reason: error.to_string() },
    }
}

fn kvm_modules() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/module") else { return Vec::new() };
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.starts_with("kvm"))
        .take(16)
        .collect();
    names.sort();
    names
}

/// The id of this boot of the kernel; empty when the kernel does not tell.
pub(crate) fn boot_id() -> String {
    kernel_text("/proc/sys/kernel/random/boot_id")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::qemu::QemuVersion;

    pub(crate) const PASSED: BootOutcome = BootOutcome::Passed;
    pub(crate) const FAILED: BootOutcome = BootOutcome::TimedOut;

    /// A probe as it could have come out.
    pub(crate) fn probe(flag: Option<&str>, modules: &[&str], kvm: BootOutcome, tcg: BootOutcome) -> Probe {
        let boot = |outcome| Boot { outcome, elapsed_ms: 42, detail: "as the test says".into() };
        Probe {
            qemu: QemuBinary {
                path: "/usr/bin/qemu-system-x86_64".into(),
                version: QemuVersion { major: 10, minor: 0 },
                version_text: "10.0.2".into(),
                size_bytes: 1,
                modified_ns: 2,
            },
            device: KvmDevice::Opens,
            cpu_flag: flag.map(str::to_owned),
            modules: modules.iter().map(|name| (*name).to_owned()).collect(),
            kvm: boot(kvm),
            tcg: boot(tcg),
            guest_kernel: None,
            probed_at_unix_ms: 1_700_000_000_000,
        }
    }

    /// The same on a host whose operator supplied a kernel.
    pub(crate) fn with_kernel(probe: Probe, kvm: BootOutcome, tcg: BootOutcome) -> Probe {
        let took = |outcome| if outcome == FAILED { 30_000 } else { 700 };
        let boot = |outcome| Boot { outcome, elapsed_ms: took(outcome), detail: "as the kernel did".into() };
        let file = KernelFile { path: "/boot/vmlinux-pvm".into(), size_bytes: 1, modified_ns: 2 };
        Probe { guest_kernel: Some(KernelTrial { file, kvm: boot(kvm), tcg: boot(tcg) }), ..probe }
    }

    #[test]
    fn a_slow_host_gets_more_time() {
        let took = |outcome, elapsed_ms| Boot { outcome, elapsed_ms, detail: String::new() };
        let deadlines = Deadlines::default();
        assert_eq!(deadlines.kvm_after(&took(PASSED, 200)), deadlines.kvm);
        assert_eq!(deadlines.kvm_after(&took(PASSED, 7000)), Duration::from_secs(14));
        assert_eq!(deadlines.kvm_after(&took(FAILED, 30_000)), deadlines.kvm);
    }

    #[test]
    fn only_settled_results_are_kept() {
        assert!(probe(Some("vmx"), &[], PASSED, PASSED).is_conclusive());
        assert!(probe(None, &["kvm_pvm"], FAILED, PASSED).is_conclusive());
        assert!(!probe(Some("vmx"), &[], FAILED, PASSED).is_conclusive(), "may have been a busy moment");
        assert!(!probe(None, &[], FAILED, FAILED).is_conclusive(), "may have been a busy moment");
        let pvm = |kvm, tcg| with_kernel(probe(None, &["kvm_pvm"], FAILED, PASSED), kvm, tcg).is_conclusive();
        assert!(pvm(PASSED, BootOutcome::NotTried));
        assert!(pvm(BootOutcome::Crashed, PASSED));
        assert!(pvm(FAILED, PASSED), "emulated in a fraction of the time");
        assert!(!pvm(FAILED, FAILED) && !pvm(BootOutcome::Crashed, FAILED), "may have been a busy moment");
        let mut slow = with_kernel(probe(None, &["kvm_pvm"], FAILED, PASSED), FAILED, PASSED);
        slow.guest_kernel.as_mut().unwrap().tcg.elapsed_ms = 45_000;
        assert!(!slow.is_conclusive(), "the host was busy");
    }
}
