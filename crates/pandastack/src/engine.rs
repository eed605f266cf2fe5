//! Chooses the engine for this host and opens a node with it. Only this crate names a concrete engine.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use host::{Deadlines, EngineChoice, FirecrackerFound, Freshness, ProbeSettings, Programs};
use machine::Engine;
use machine::firecracker::{FirecrackerConfig, FirecrackerEngine, usable_version};
use machine::qemu::{Accelerator, QemuConfig, QemuEngine};
use node::Node;

use crate::config::{EngineSetting, Settings};

/// Where QEMU's packages put the firmware of small machines.
const FIRMWARE: [&str; 2] = ["/usr/share/qemu/qboot.rom", "/usr/local/share/qemu/qboot.rom"];

/// The programs this host offers.
pub(crate) fn programs(settings: &Settings) -> Programs {
    Programs { qemu: settings.qemu.clone(), firecracker: settings.firecracker.clone(), ..Programs::default() }
}

/// The Firecracker of this host.
pub(crate) fn firecracker(settings: &Settings) -> FirecrackerFound {
    let Some(program) = programs(settings).firecracker() else {
        return match &settings.firecracker {
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

/// Where the result of probing this host is kept.
pub(crate) fn probe_cache(settings: &Settings) -> PathBuf {
    settings.node.data_dir.join("host-probe.json")
}

pub(crate) fn host_setting(setting: EngineSetting) -> host::EngineSetting {
    match setting {
        EngineSetting::Auto => host::EngineSetting::Auto,
        EngineSetting::QemuKvm => host::EngineSetting::QemuKvm,
        EngineSetting::QemuTcg => host::EngineSetting::QemuTcg,
        EngineSetting::Firecracker => host::EngineSetting::Firecracker,
    }
}

/// Decides what runs machines here; boots a tiny guest unless that was done since the host started.
pub(crate) fn choose(settings: &Settings) -> anyhow::Result<EngineChoice> {
    let probed = host::probe(&ProbeSettings {
        programs: programs(settings),
        cache: Some(probe_cache(settings)),
        freshness: Freshness::UseCache,
        deadlines: Deadlines::default(),
    })
    .context("find a QEMU to probe this host with")?;
    let finding = host::classify(&probed.probe);
    let firecracker = firecracker(settings);
    Ok(host::choose(host_setting(settings.engine), &finding, Some(&probed.probe), &firecracker))
}

fn open_engine(settings: &Settings, jails: &Path) -> anyhow::Result<Arc<dyn Engine>> {
    let choice = choose(settings)?;
    if !choice.works {
        bail!("no engine works on this host: {}", choice.reason);
    }
    if !choice.security_boundary {
        tracing::info!(
            "guests run by software emulation, which is not a security boundary: {}",
            choice.reason
        );
    }
    let cpu = host::cpu_identity().context("identify the CPU")?;
    let host_cpu =
        format!("{} {}-{}-{} {}", cpu.model_name, cpu.family, cpu.model, cpu.stepping, cpu.flags_digest);
    let accelerator = match choice.engine {
        host::Engine::Qemu { accel: host::Accelerator::Kvm } => Accelerator::Kvm,
        host::Engine::Qemu { accel: host::Accelerator::Tcg } => Accelerator::Tcg,
        host::Engine::Firecracker => {
            let config = FirecrackerConfig {
                program: programs(settings).firecracker().context("find firecracker")?,
                host_cpu,
                tsc_khz: host::tsc_khz().khz,
                jail_roots: jails.to_owned(),
            };
            let engine = FirecrackerEngine::open(config).context("open the Firecracker engine")?;
            return Ok(Arc::new(engine));
        }
    };
    let firmware = FIRMWARE.iter().map(PathBuf::from).find(|path| path.exists());
    let config = QemuConfig {
        program: programs(settings).qemu().context("find qemu-system-x86_64")?,
        firmware: firmware.context("find QEMU's firmware qboot.rom")?,
        accelerator,
        host_cpu,
        tsc_khz: host::tsc_khz().khz,
        jail_roots: jails.to_owned(),
    };
    Ok(Arc::new(QemuEngine::open(config).context("open the QEMU engine")?))
}

/// Opens the node of this host.
pub(crate) async fn open_node(settings: &Settings) -> anyhow::Result<Node> {
    let opened =
        Node::open(settings.node.clone(), |jails| open_engine(settings, jails).map_err(Into::into)).await;
    opened.with_context(|| format!("open the data directory {}", settings.node.data_dir.display()))
}
