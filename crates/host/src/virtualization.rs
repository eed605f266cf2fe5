//! What kind of virtualization the host has, judged from what the probe guest did. Pure.

use serde::{Deserialize, Serialize};

use crate::probe::{KvmDevice, Probe};

/// The kernel module of software virtualization without hardware help.
const PVM_MODULE: &str = "kvm_pvm";

/// What kind of virtualization a host has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Virtualization {
    /// The processor's own, proven by a stock guest that ran.
    HardwareKvm,
    /// Software virtualization: runs at speed only guest kernels built for it, which the operator must supply.
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
}

impl Finding {
    pub(crate) fn not_tried(reason: impl Into<String>) -> Finding {
        Finding { kind: Virtualization::NotTried, reason: reason.into() }
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
    let (kind, reason) = match &probe.device {
        KvmDevice::Absent => (Virtualization::None, format!("there is no /dev/kvm; {processor}")),
        KvmDevice::Refused { reason } => {
            (Virtualization::None, format!("/dev/kvm could not be opened ({reason}); {processor}"))
        }
        KvmDevice::Opens => match (probe.kvm.passed(), flag.is_some(), pvm_loaded) {
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
                     did not pass: {}. It needs a guest kernel built for PVM, supplied by the operator",
                    probe.kvm.detail
                ),
            ),
            (false, _, false) => (
                Virtualization::None,
                format!("/dev/kvm opens, but a stock guest did not pass: {}; {processor}", probe.kvm.detail),
            ),
        },
    };
    Finding { kind, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::tests::{FAILED, PASSED, probe};

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
