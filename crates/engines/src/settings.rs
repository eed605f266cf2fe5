//! From what an operator set to an open engine, one step after the other; callers that need less stop earlier.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use host::{
    Deadlines, EngineChoice, EngineSetting, Finding, FirecrackerFound, Freshness, Probe, ProbeSettings,
    Programs,
};
use machine::cgroup::{CgroupSetting, Cgroups};
use machine::firecracker::{FirecrackerConfig, usable_version};
use machine::qemu::{Accelerator, QemuConfig};
use machine::{Engine, HugePages, Rates};

use crate::{EngineConfig, OpenError};

/// Where QEMU's packages put the firmware of small machines.
const FIRMWARE: [&str; 2] = ["/usr/share/qemu/qboot.rom", "/usr/local/share/qemu/qboot.rom"];

/// What decides about the engine of a host.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The engine that is wanted.
    pub engine: EngineSetting,
    /// How this host is probed, and with which programs.
    pub probe: ProbeSettings,
    /// Whether machine processes are held to their share of the host.
    pub cgroups: CgroupSetting,
    /// How fast machines may use their devices.
    pub rates: Rates,
    /// In which pages machines have their memory.
    pub huge_pages: HugePages,
}

/// An engine that can be used.
pub struct Opened {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// Why this one.
    pub choice: EngineChoice,
    /// What it was opened with.
    pub config: EngineConfig,
}

impl Settings {
    /// Settings with the usual deadlines. The result of probing is kept in `probe_cache` until the host starts anew.
    pub fn new(engine: EngineSetting, programs: Programs, probe_cache: PathBuf) -> Self {
        let probe = ProbeSettings {
            programs,
            cache: Some(probe_cache),
            freshness: Freshness::UseCache,
            deadlines: Deadlines::default(),
            guest_kernel: None,
        };
        Self {
            engine,
            probe,
            cgroups: CgroupSetting::default(),
            rates: Rates::default(),
            huge_pages: HugePages::default(),
        }
    }

    /// The Firecracker of this host, and whether it is a release that can be used.
    pub fn firecracker(&self) -> FirecrackerFound {
        let programs = &self.probe.programs;
        let Some(program) = programs.firecracker() else {
            return match &programs.firecracker {
                None => FirecrackerFound::Missing,
                Some(path) => FirecrackerFound::Unusable {
                    reason: format!("there is no program at {}, named as firecracker", path.display()),
                },
            };
        };
        match usable_version(&program) {
            Ok(version) => FirecrackerFound::Usable { version: version.to_string() },
            Err(error) => FirecrackerFound::Unusable { reason: error.to_string() },
        }
    }

    /// Finds out what runs guests here; boots a tiny one unless that was done since the host started.
    pub fn find_out(&self) -> Result<(Finding, Probe), OpenError> {
        let probed = host::probe(&self.probe).map_err(OpenError::Probe)?;
        Ok((host::classify(&probed.probe), probed.probe))
    }

    /// Decides what runs machines here. That it works is for the caller to see, or for [`Settings::open`].
    pub fn choose(&self) -> Result<EngineChoice, OpenError> {
        let (finding, probe) = self.find_out()?;
        Ok(host::choose(self.engine, &finding, Some(&probe), &self.firecracker()))
    }

    /// What the engine chosen is opened with. The roots of its jails will be made in `jails`.
    pub fn configure(&self, choice: &EngineChoice, jails: &Path) -> Result<EngineConfig, OpenError> {
        let programs = &self.probe.programs;
        let cpu = host::cpu_identity().map_err(OpenError::Cpu)?;
        let host_cpu =
            format!("{} {}-{}-{} {}", cpu.model_name, cpu.family, cpu.model, cpu.stepping, cpu.flags_digest);
        let tsc_khz = host::tsc_khz().khz;
        let jail_roots = jails.to_owned();
        let (rates, huge_pages) = (self.rates, self.huge_pages);
        let cgroups = Cgroups::open(self.cgroups).map_err(OpenError::Cgroups)?;
        let accelerator = match choice.engine {
            host::Engine::Qemu { accel: host::Accelerator::Kvm } => Accelerator::Kvm,
            host::Engine::Qemu { accel: host::Accelerator::Tcg } => Accelerator::Tcg,
            host::Engine::Firecracker => {
                let program = programs.firecracker().ok_or(OpenError::Missing { name: "firecracker" })?;
                let config =
                    FirecrackerConfig { program, host_cpu, tsc_khz, jail_roots, cgroups, rates, huge_pages };
                return Ok(EngineConfig::Firecracker(config));
            }
        };
        if rates.network_bytes.is_some() {
            return Err(OpenError::NetworkRate);
        }
        if huge_pages != HugePages::Off {
            return Err(OpenError::HugePages);
        }
        let program = programs.qemu().ok_or(OpenError::Missing { name: "qemu-system-x86_64" })?;
        let firmware = FIRMWARE.iter().map(PathBuf::from).find(|path| path.exists());
        let firmware = firmware.ok_or(OpenError::Missing { name: "QEMU's firmware qboot.rom" })?;
        let config =
            QemuConfig { program, firmware, accelerator, host_cpu, tsc_khz, jail_roots, cgroups, rates };
        Ok(EngineConfig::Qemu(config))
    }

    /// Chooses and opens; refuses an engine that was tried and does not work.
    pub fn open(&self, jails: &Path) -> Result<Opened, OpenError> {
        let choice = self.choose()?;
        if !choice.works {
            return Err(OpenError::NoneWorks { reason: choice.reason });
        }
        let config = self.configure(&choice, jails)?;
        Ok(Opened { engine: config.clone().open()?, choice, config })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(engine: EngineSetting, programs: Programs, directory: &Path) -> Settings {
        Settings::new(engine, programs, directory.join("host-probe.json"))
    }

    #[test]
    fn a_firecracker_that_was_named_and_is_not_there_is_told_of() {
        let directory = tempfile::tempdir().unwrap();
        let named = Programs { firecracker: Some("/nonexistent/firecracker".into()), ..Programs::default() };
        let found = settings(EngineSetting::Auto, named, directory.path()).firecracker();
        assert!(
            matches!(&found, FirecrackerFound::Unusable { reason } if reason.contains("/nonexistent")),
            "{found:?}"
        );
    }

    #[test]
    fn qemu_has_no_huge_pages() {
        let directory = tempfile::tempdir().unwrap();
        let mut settings = settings(EngineSetting::QemuTcg, Programs::default(), directory.path());
        settings.huge_pages = HugePages::TwoMib;
        let choice = EngineChoice {
            engine: host::Engine::Qemu { accel: host::Accelerator::Tcg },
            works: true,
            forced: true,
            pvm: false,
            security_boundary: false,
            reason: String::new(),
        };
        let refused = settings.configure(&choice, directory.path());
        assert!(matches!(refused, Err(OpenError::HugePages)), "{refused:?}");
    }

    #[test]
    fn without_a_qemu_nothing_can_be_probed() {
        let directory = tempfile::tempdir().unwrap();
        let none = Programs { search: vec![directory.path().to_owned()], ..Programs::default() };
        let opened =
            settings(EngineSetting::Auto, none, directory.path()).open(&directory.path().join("jails"));
        assert!(matches!(opened.map(|opened| opened.choice), Err(OpenError::Probe(_))));
        assert!(!directory.path().join("jails").exists());
    }
}
