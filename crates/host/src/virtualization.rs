//! What kind of virtualization the host has, judged from what the probe guest did. Pure.

use serde::{Deserialize, Serialize};

use crate::probe::{KernelTrial, KvmDevice, Probe};

/// The kernel module of software virtualization without hardware help.
const PVM_MODULE: &str = "kvm_pvm";
/// How the operator supplies a kernel.
pub(crate) const KERNEL_OPTION: &str = "--kernel FILE (or PANDASTACK_KERNEL)";

/// What kind of virtualization a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Virtualization {
    /// The processor's own, proven by a stock guest that ran.
    HardwareKvm,
    /// Software virtualization: runs only guest kernels built for it, which the operator must supply.
    Pvm,
    /// None that works.
    None,
    /// Could not be found out, because there is no QEMU to try with.
    NotTried,
}

/// The kind, and why it was judged so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The kind.
    pub kind: Virtualization,
    /// Why, for people.
    pub reason: String,
    /// True when a guest ran under KVM.
    pub runs_guests: bool,
}

impl Finding {
    pub(crate) fn not_tried(reason: impl Into<String>) -> Finding {
        Finding { kind: Virtualization::NotTried, reason: reason.into(), runs_guests: false }
    }
}

/// Judges. The device alone proves nothing: only a guest that ran does.
pub fn classify(probe: &Probe) -> Finding {
    let pvm_loaded = probe.modules.iter().any(|module| module == PVM_MODULE);
    let flag = probe.cpu_flag.as_deref();
    let processor = match flag {
        Some(flag) => format!("the processor has {flag}"),
        None => "the processor shows neither vmx nor svm".to_owned(),
    };
    let trial = probe.guest_kernel.as_ref();
    let ran = trial.filter(|trial| trial.kvm.passed());
    let (kind, reason) = match (&probe.device, ran) {
        (KvmDevice::Absent, _) => (Virtualization::None, format!("there is no /dev/kvm; {processor}")),
        (KvmDevice::Refused { reason }, _) => {
            (Virtualization::None, format!("/dev/kvm could not be opened ({reason}); {processor}"))
        }
        (KvmDevice::Opens, Some(trial)) if !probe.kvm.passed() => {
            let kind = match flag.is_some() && !pvm_loaded {
                true => Virtualization::HardwareKvm,
                false => Virtualization::Pvm,
            };
            let (path, time) = (trial.file.path.display(), trial.kvm.elapsed_ms);
            let reason = format!(
                "a stock guest does not run under KVM and {processor}, but the kernel {path} boots under it in {time} ms"
            );
            (kind, reason)
        }
        (KvmDevice::Opens, _) => match (probe.kvm.passed(), flag.is_some(), pvm_loaded) {
            (true, true, _) => {
                let time = probe.kvm.elapsed_ms;
                (
                    Virtualization::HardwareKvm,
                    format!("{processor} and a stock guest ran under KVM in {time} ms"),
                )
            }
            (true, false, _) => (
                Virtualization::Pvm,
                format!("a stock guest ran under KVM although {processor}: software virtualization"),
            ),
            (false, _, true) => (
                Virtualization::Pvm,
                format!(
                    "/dev/kvm opens, but it is {PVM_MODULE} (software virtualization), {processor}, and a stock guest \
                     did not pass: {}. {}",
                    probe.kvm.detail,
                    pvm_needs(trial)
                ),
            ),
            (false, _, false) => (
                Virtualization::None,
                format!("/dev/kvm opens, but a stock guest did not pass: {}; {processor}", probe.kvm.detail),
            ),
        },
    };
    Finding { kind, reason, runs_guests: probe.under_kvm().passed() }
}

/// What is missing on a host with software virtualization.
fn pvm_needs(trial: Option<&KernelTrial>) -> String {
    let Some(trial) = trial else {
        return format!(
            "It needs a guest kernel built for PVM (CONFIG_PVM_GUEST=y), which the operator supplies: {KERNEL_OPTION}"
        );
    };
    let (path, kvm) = (trial.file.path.display(), &trial.kvm.detail);
    if trial.tcg.passed() {
        return format!(
            "The kernel given, {path}, did not boot under it ({kvm}), though it boots under emulation: check that it was built for \
             PVM (CONFIG_PVM_GUEST=y) and for the version of PVM that this host runs"
        );
    }
    format!(
        "The kernel given, {path}, did not boot under it ({kvm}), nor under emulation ({}): check that it is a kernel for x86-64 with \
         CONFIG_PVH, CONFIG_BLK_DEV_INITRD and CONFIG_SERIAL_8250_CONSOLE built in, and for PVM with CONFIG_PVM_GUEST",
        trial.tcg.detail
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tests::{FAILED, PASSED, probe, with_kernel};

    #[test]
    fn kinds_follow_from_what_the_guest_did() {
        let check = |flag, modules: &[&str], kvm, expected| {
            let finding = classify(&probe(flag, modules, kvm, PASSED));
            assert_eq!(finding.kind, expected, "{}", finding.reason);
        };
        check(Some("vmx"), &["kvm", "kvm_intel"], PASSED, Virtualization::HardwareKvm);
        check(Some("svm"), &["kvm", "kvm_amd"], PASSED, Virtualization::HardwareKvm);
        check(Some("vmx"), &["kvm", "kvm_intel"], FAILED, Virtualization::None);
        check(None, &["kvm", "kvm_pvm"], FAILED, Virtualization::Pvm);
        check(Some("vmx"), &["kvm", "kvm_pvm"], FAILED, Virtualization::Pvm);
        check(None, &["kvm", "kvm_pvm"], PASSED, Virtualization::Pvm);
        check(None, &["kvm"], FAILED, Virtualization::None);
    }

    #[test]
    fn a_kernel_of_the_operators_decides_where_stock_guests_do_not_run() {
        use crate::probe::BootOutcome::{Crashed, NotTried};
        let pvm = || probe(None, &["kvm", "kvm_pvm"], FAILED, PASSED);
        let check = |probe: &Probe, runs: bool, words: &[&str]| {
            let finding = classify(probe);
            assert_eq!(
                (finding.kind, finding.runs_guests),
                (Virtualization::Pvm, runs),
                "{}",
                finding.reason
            );
            for word in words {
                assert!(finding.reason.contains(word), "`{word}` is not in {}", finding.reason);
            }
        };
        check(&pvm(), false, &["--kernel FILE", "PANDASTACK_KERNEL", "CONFIG_PVM_GUEST"]);
        check(&with_kernel(pvm(), PASSED, NotTried), true, &["/boot/vmlinux-pvm boots under it in 700 ms"]);
        let stock = ["/boot/vmlinux-pvm, did not boot under it (as the kernel did)", "boots under emulation"];
        check(&with_kernel(pvm(), Crashed, PASSED), false, &stock);
        check(&with_kernel(pvm(), Crashed, FAILED), false, &["nor under emulation", "CONFIG_BLK_DEV_INITRD"]);
        let hardware = with_kernel(probe(Some("vmx"), &["kvm_intel"], PASSED, PASSED), Crashed, PASSED);
        assert_eq!(classify(&hardware).kind, Virtualization::HardwareKvm);
        assert!(classify(&hardware).runs_guests);
    }

    #[test]
    fn no_device_is_none_whatever_is_loaded() {
        let mut absent = probe(Some("vmx"), &["kvm_pvm"], FAILED, PASSED);
        absent.device = KvmDevice::Absent;
        assert_eq!(classify(&absent).kind, Virtualization::None);
        absent.device = KvmDevice::Refused { reason: "Permission denied".into() };
        let finding = classify(&absent);
        assert_eq!(finding.kind, Virtualization::None);
        assert!(finding.reason.contains("Permission denied"));
    }
}
