//! All that was found out about the host, in one value.

use std::path::PathBuf;

use serde::Serialize;

use crate::check::{Check, Status, Subject};
use crate::checks::{self, Site, tools};
use crate::engine::{
    Accelerator, Engine, EngineChoice, EngineSetting, FirecrackerFound, FirecrackerStatus, choose,
    firecracker_status,
};
use crate::facts::{HostFacts, host_facts, unix_ms};
use crate::probe::{Deadlines, Freshness, GuestKernel, Probe, ProbeSettings, Probed, probe};
use crate::programs::Programs;
use crate::virtualization::{Finding, KERNEL_OPTION, Virtualization, classify};

const ENGINE: Subject = Subject { name: "engine", title: "Engine" };

/// What to examine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where PandaStack keeps its data; need not exist yet.
    pub data_directory: PathBuf,
    /// Where programs are found.
    pub programs: Programs,
    /// What the operator wants.
    pub engine: EngineSetting,
    /// The Firecracker that was found.
    pub firecracker: FirecrackerFound,
    /// Where the probe's result is kept, if anywhere.
    pub probe_cache: Option<PathBuf>,
    /// Whether a kept result may answer.
    pub freshness: Freshness,
    /// How long the probe guest may take.
    pub deadlines: Deadlines,
    /// The operator's kernel for guests, if there is one.
    pub guest_kernel: Option<GuestKernel>,
    /// Whether machines are to have their memory in huge pages.
    pub huge_pages: bool,
}

/// All that was found out about the host.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// When, in milliseconds since 1970.
    pub generated_at_unix_ms: u64,
    /// True when there is no problem.
    pub ok: bool,
    /// The engine that will be used.
    pub engine: EngineChoice,
    /// Whether Firecracker could be used.
    pub firecracker: FirecrackerStatus,
    /// What kind of virtualization the host has.
    pub virtualization: Finding,
    /// What the probe guest did; absent without a usable QEMU.
    pub probe: Option<Probe>,
    /// True when the probe's result is one that was kept.
    pub probe_from_cache: bool,
    /// What the host is.
    pub host: HostFacts,
    /// What was tried.
    pub checks: Vec<Check>,
}

impl Report {
    /// Adds what another part of the program tried.
    pub fn add(&mut self, check: Check) {
        self.ok &= check.status != Status::Problem;
        self.checks.push(check);
    }
}

/// Examines the host. Blocks for a second or two; everything it makes is gone when it returns.
pub fn examine(settings: &Settings) -> Report {
    let probed = probe(&ProbeSettings {
        programs: settings.programs.clone(),
        cache: settings.probe_cache.clone(),
        freshness: settings.freshness,
        deadlines: settings.deadlines,
        guest_kernel: settings.guest_kernel.clone(),
    });
    let finding = match &probed {
        Ok(probed) => classify(&probed.probe),
        Err(error) => Finding::not_tried(error.to_string()),
    };
    let found = probed.as_ref().ok().map(|probed| &probed.probe);
    let engine = choose(settings.engine, &finding, found, &settings.firecracker);
    let site = Site {
        programs: &settings.programs,
        data_directory: settings.data_directory.clone(),
        guest_kernel: settings.guest_kernel.as_ref().map(|kernel| kernel.path.clone()),
        trial: found.and_then(|probe| probe.guest_kernel.as_ref()),
        qemu: probed.as_ref().map(|probed| &probed.probe.qemu),
    };
    let mut all = vec![engine_check(&engine, &finding)];
    all.extend(checks::run(&site));
    if settings.huge_pages {
        all.push(checks::huge_pages::check(engine.engine));
    }
    let (probe, probe_from_cache) = match probed {
        Ok(Probed { probe, from_cache }) => (Some(probe), from_cache),
        Err(_) => (None, false),
    };
    Report {
        generated_at_unix_ms: unix_ms(),
        ok: all.iter().all(|check| check.status != Status::Problem),
        firecracker: firecracker_status(&settings.firecracker, &finding),
        engine,
        virtualization: finding,
        probe,
        probe_from_cache,
        host: host_facts(),
        checks: all,
    }
}

/// The choice as a check: does the engine work, and does it wall guests in?
fn engine_check(choice: &EngineChoice, finding: &Finding) -> Check {
    let name = engine_name(choice);
    let detail = format!("{name}: {}", choice.reason);
    match (choice.works, choice.forced, choice.security_boundary) {
        (false, true, _) => ENGINE.problem(detail, "set the engine to `auto`"),
        (false, false, _) => ENGINE.problem(detail, tools::install_qemu()),
        (true, _, true) => ENGINE.ok(detail),
        (true, _, false) => ENGINE.check(
            Status::Warning,
            format!(
                "{detail}. It is not a security boundary: run only code you trust, or use a host with hardware \
                 virtualization (bare metal, or a VM with nested virtualization)"
            ),
            (finding.kind == Virtualization::Pvm).then(|| {
                format!("supply a kernel that was built for this host's PVM (CONFIG_PVM_GUEST=y): {KERNEL_OPTION}")
            }),
        ),
    }
}

/// The engine's name for people.
pub(crate) fn engine_name(choice: &EngineChoice) -> &'static str {
    match (choice.engine, choice.pvm) {
        (Engine::Qemu { accel: Accelerator::Kvm }, false) => "QEMU with KVM",
        (Engine::Qemu { accel: Accelerator::Kvm }, true) => "QEMU with KVM (PVM)",
        (Engine::Qemu { accel: Accelerator::Tcg }, _) => "QEMU with TCG",
        (Engine::Firecracker, false) => "Firecracker",
        (Engine::Firecracker, true) => "Firecracker (PVM)",
    }
}
