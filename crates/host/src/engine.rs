//! Which engine will run the machines, and why. Pure: it decides from what the probe found.

use serde::{Deserialize, Serialize};

use crate::probe::Probe;
use crate::virtualization::{Finding, Virtualization};

/// What executes a QEMU guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accelerator {
    /// The processor, through the kernel.
    Kvm,
    /// QEMU's own translator: works anywhere, slower, and not a security boundary.
    Tcg,
}

impl Accelerator {
    /// The name QEMU's `-accel` takes.
    pub fn qemu_name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }
}

/// A program that runs machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "name")]
pub enum Engine {
    /// QEMU's `microvm` machine.
    Qemu {
        /// What executes the guest.
        accel: Accelerator,
    },
    /// Firecracker, on KVM.
    Firecracker,
}

/// What the operator wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineSetting {
    /// The best engine that passed its probe.
    #[default]
    Auto,
    /// QEMU, with the best accelerator that passed its probe.
    Qemu,
    /// QEMU with KVM, whatever the probe says.
    QemuKvm,
    /// QEMU with TCG, whatever the probe says.
    QemuTcg,
    /// Firecracker, whatever the probe says.
    Firecracker,
}

/// The Firecracker of this host, as whoever knows which releases can be used found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirecrackerFound {
    /// There is none.
    Missing,
    /// There is one that cannot be used.
    Unusable {
        /// Why, for people.
        reason: String,
    },
    /// There is one that can be used, if KVM works.
    Usable {
        /// Its version.
        version: String,
    },
}

/// The engine that will be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineChoice {
    /// The engine.
    pub engine: Engine,
    /// Why this one, for people.
    pub reason: String,
    /// True when a setting decided, not the probe.
    pub forced: bool,
    /// True when a hostile guest is held by more than a program's correctness. TCG is not such a boundary.
    pub security_boundary: bool,
    /// True when the probe guest ran under this engine. False means: machines will not start.
    pub works: bool,
    /// True when KVM here is software virtualization, which runs only kernels built for it.
    pub pvm: bool,
}

/// Whether Firecracker could be used on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirecrackerStatus {
    /// A program is there and hardware KVM works.
    pub available: bool,
    /// Why, for people.
    pub reason: String,
}

/// Decides. `probe` is absent when there was no QEMU to probe with.
pub fn choose(
    setting: EngineSetting,
    finding: &Finding,
    probe: Option<&Probe>,
    firecracker: &FirecrackerFound,
) -> EngineChoice {
    let status = firecracker_status(firecracker, finding);
    let is_pvm = finding.kind == Virtualization::Pvm;
    if setting == EngineSetting::Firecracker || (setting == EngineSetting::Auto && status.available) {
        let forced = setting == EngineSetting::Firecracker;
        let why = if forced { "the engine setting demands it; " } else { "" };
        return EngineChoice {
            engine: Engine::Firecracker,
            reason: format!("{why}{}", status.reason),
            forced,
            security_boundary: true,
            works: status.available,
            pvm: is_pvm,
        };
    }
    let (accel, forced) = match setting {
        EngineSetting::QemuKvm => (Accelerator::Kvm, true),
        EngineSetting::QemuTcg => (Accelerator::Tcg, true),
        EngineSetting::Auto | EngineSetting::Qemu if finding.runs_guests => (Accelerator::Kvm, false),
        EngineSetting::Auto | EngineSetting::Qemu | EngineSetting::Firecracker => (Accelerator::Tcg, false),
    };
    let boot = probe.map(|probe| match accel {
        Accelerator::Kvm => probe.under_kvm(),
        Accelerator::Tcg => &probe.tcg,
    });
    let works = boot.is_some_and(|boot| boot.passed());
    let shown = match boot {
        None => "it could not be tried, because no usable QEMU was found".to_owned(),
        Some(boot) if works => format!("the probe guest answered in {} ms", boot.elapsed_ms),
        Some(boot) => format!("the probe guest did not pass: {}", boot.detail),
    };
    let why = match (forced, accel) {
        (true, _) => "the engine setting demands it".to_owned(),
        (false, Accelerator::Kvm) if is_pvm => "PVM works".to_owned(),
        (false, Accelerator::Kvm) => "KVM works".to_owned(),
        (false, Accelerator::Tcg) => match finding.kind {
            Virtualization::Pvm => {
                let given = probe.is_some_and(|probe| probe.guest_kernel.is_some());
                let what = if given { "the kernel given" } else { "stock guests" };
                format!("KVM here is software virtualization (kvm_pvm) and does not run {what}")
            }
            _ => format!("KVM is not used: {}", finding.reason),
        },
    };
    EngineChoice {
        engine: Engine::Qemu { accel },
        reason: format!("{why}; {shown}"),
        forced,
        security_boundary: accel == Accelerator::Kvm,
        works,
        pvm: is_pvm && accel == Accelerator::Kvm,
    }
}

/// Says whether Firecracker could run here.
pub fn firecracker_status(found: &FirecrackerFound, finding: &Finding) -> FirecrackerStatus {
    let runs = finding.runs_guests;
    let works = match (runs, finding.kind) {
        (true, Virtualization::Pvm) => "PVM works",
        (true, _) => "hardware KVM works",
        (false, Virtualization::Pvm) => "PVM does not work",
        (false, _) => "hardware KVM does not work",
    };
    let reason = match (found, runs) {
        (FirecrackerFound::Usable { version }, true) => {
            format!("Firecracker {version} is there and {works}")
        }
        (FirecrackerFound::Usable { version }, false) => {
            format!("Firecracker {version} is there, but {works}")
        }
        (FirecrackerFound::Unusable { reason }, _) => reason.clone(),
        (FirecrackerFound::Missing, true) => {
            format!("{works}, but there is no firecracker program; `pandastack setup` installs it")
        }
        (FirecrackerFound::Missing, false) => {
            format!("there is no firecracker program, and {works}")
        }
    };
    FirecrackerStatus { available: runs && matches!(found, FirecrackerFound::Usable { .. }), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::BootOutcome;
    use crate::probe::tests::{FAILED, PASSED, probe, with_kernel};
    use crate::virtualization::classify;

    fn check(setting: EngineSetting, probe: &Probe, accel: Accelerator, works: bool) -> EngineChoice {
        let choice = choose(setting, &classify(probe), Some(probe), &FirecrackerFound::Missing);
        assert_eq!(choice.engine, Engine::Qemu { accel }, "{choice:?}");
        assert_eq!(choice.works, works, "{choice:?}");
        assert_eq!(choice.forced, setting != EngineSetting::Auto);
        assert_eq!(choice.security_boundary, accel == Accelerator::Kvm);
        choice
    }

    #[test]
    fn the_probe_decides_unless_a_setting_does() {
        let hardware = probe(Some("vmx"), &["kvm", "kvm_intel"], PASSED, PASSED);
        let pvm = probe(None, &["kvm", "kvm_pvm"], FAILED, PASSED);
        let broken = probe(None, &[], FAILED, FAILED);
        check(EngineSetting::Auto, &hardware, Accelerator::Kvm, true);
        check(EngineSetting::QemuTcg, &hardware, Accelerator::Tcg, true);
        let choice = check(EngineSetting::Auto, &pvm, Accelerator::Tcg, true);
        assert!(choice.reason.contains("kvm_pvm"), "{choice:?}");
        check(EngineSetting::QemuKvm, &pvm, Accelerator::Kvm, false);
        check(EngineSetting::Auto, &broken, Accelerator::Tcg, false);
    }

    #[test]
    fn a_kernel_that_boots_under_pvm_lets_both_engines_use_it() {
        let pvm = probe(None, &["kvm", "kvm_pvm"], FAILED, PASSED);
        let usable = FirecrackerFound::Usable { version: "1.15.1".into() };
        let good = with_kernel(pvm.clone(), PASSED, BootOutcome::NotTried);
        let choice = check(EngineSetting::Auto, &good, Accelerator::Kvm, true);
        assert!(choice.pvm && choice.reason.contains("PVM works"), "{choice:?}");
        assert!(check(EngineSetting::QemuKvm, &good, Accelerator::Kvm, true).pvm);
        assert!(!check(EngineSetting::QemuTcg, &good, Accelerator::Tcg, true).pvm);
        let choice = choose(EngineSetting::Auto, &classify(&good), Some(&good), &usable);
        assert!(choice.engine == Engine::Firecracker && choice.works && choice.pvm, "{choice:?}");

        let stock = with_kernel(pvm, BootOutcome::Crashed, PASSED);
        let choice = check(EngineSetting::Auto, &stock, Accelerator::Tcg, true);
        assert!(!choice.pvm && choice.reason.contains("does not run the kernel given"), "{choice:?}");
        let choice = check(EngineSetting::QemuKvm, &stock, Accelerator::Kvm, false);
        assert!(choice.reason.contains("as the kernel did"), "{choice:?}");
        let choice = choose(EngineSetting::Firecracker, &classify(&stock), Some(&stock), &usable);
        assert!(!choice.works && choice.reason.contains("PVM does not work"), "{choice:?}");
    }

    #[test]
    fn without_qemu_nothing_works() {
        let choice =
            choose(EngineSetting::Auto, &Finding::not_tried("no QEMU"), None, &FirecrackerFound::Missing);
        assert!(!choice.works);
        assert!(choice.reason.contains("no usable QEMU"), "{choice:?}");
    }

    #[test]
    fn firecracker_needs_a_program_and_hardware() {
        let usable = FirecrackerFound::Usable { version: "1.15.1".into() };
        let broken = FirecrackerFound::Unusable { reason: "it is too old".into() };
        let hardware = probe(Some("vmx"), &["kvm", "kvm_intel"], PASSED, PASSED);
        let pvm = probe(None, &["kvm", "kvm_pvm"], FAILED, PASSED);
        let chosen = |setting, probe: &Probe, found: &FirecrackerFound| {
            choose(setting, &classify(probe), Some(probe), found)
        };
        let choice = chosen(EngineSetting::Auto, &hardware, &usable);
        assert!(choice.engine == Engine::Firecracker && choice.works && !choice.forced, "{choice:?}");
        for (probe, found) in [(&pvm, &usable), (&hardware, &broken), (&hardware, &FirecrackerFound::Missing)]
        {
            let choice = chosen(EngineSetting::Auto, probe, found);
            assert!(matches!(choice.engine, Engine::Qemu { .. }), "{choice:?}");
            let choice = chosen(EngineSetting::Firecracker, probe, found);
            assert!(choice.engine == Engine::Firecracker && !choice.works && choice.forced, "{choice:?}");
        }
        let choice = chosen(EngineSetting::Auto, &hardware, &broken);
        assert_eq!(choice.engine, Engine::Qemu { accel: Accelerator::Kvm });
        assert!(chosen(EngineSetting::Firecracker, &hardware, &broken).reason.contains("too old"));
        let choice = chosen(EngineSetting::QemuTcg, &hardware, &usable);
        assert_eq!(choice.engine, Engine::Qemu { accel: Accelerator::Tcg });
        let choice = chosen(EngineSetting::Qemu, &hardware, &usable);
        assert_eq!(choice.engine, Engine::Qemu { accel: Accelerator::Kvm });
        assert!(choice.works && !choice.forced, "{choice:?}");
        let choice = chosen(EngineSetting::Qemu, &pvm, &usable);
        assert_eq!(choice.engine, Engine::Qemu { accel: Accelerator::Tcg });
    }
}
