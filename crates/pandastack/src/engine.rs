//! What this program's settings mean for the engine, and a node with it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use host::{EngineChoice, Finding, FirecrackerFound, GuestKernel, Probe, Programs};
use image::KernelSource;
use machine::Engine;
use node::Node;

use crate::config::{CgroupSetting, EngineSetting, HugePagesSetting, Settings};
use crate::output::Hinted;

/// The programs this host offers.
pub(crate) fn programs(settings: &Settings) -> Programs {
    Programs {
        qemu: settings.qemu.clone(),
        firecracker: settings.firecracker.clone(),
        firecracker_installed: Some(firecracker_installed(settings)),
        ..Programs::default()
    }
}

/// Where `pandastack setup` puts Firecracker.
pub(crate) fn firecracker_installed(settings: &Settings) -> PathBuf {
    settings.node.data_dir.join("bin/firecracker")
}

/// The Firecracker of this host.
pub(crate) fn firecracker(settings: &Settings) -> FirecrackerFound {
    wanted(settings).firecracker()
}

/// The operator's kernel for guests, if there is one.
pub(crate) fn guest_kernel(settings: &Settings) -> Option<GuestKernel> {
    match &settings.node.kernel {
        KernelSource::File { vmlinux, .. } => Some(GuestKernel { path: vmlinux.clone(), unpack }),
        KernelSource::Debian { .. } => None,
    }
}

fn unpack(kernel: &Path) -> Result<Vec<u8>, String> {
    image::unpack_kernel(kernel).map_err(|error| format!("{:#}", anyhow::Error::from(error)))
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

/// What is wanted of the engine, and how this host is probed for it.
fn wanted(settings: &Settings) -> engines::Settings {
    let mut wanted =
        engines::Settings::new(host_setting(settings.engine), programs(settings), probe_cache(settings));
    wanted.probe.guest_kernel = guest_kernel(settings);
    wanted.cgroups = match settings.cgroups {
        CgroupSetting::Auto => machine::cgroup::CgroupSetting::Auto,
        CgroupSetting::Required => machine::cgroup::CgroupSetting::Required,
        CgroupSetting::Off => machine::cgroup::CgroupSetting::Off,
    };
    wanted.rates = settings.rates;
    wanted.huge_pages = match settings.huge_pages {
        HugePagesSetting::Off => machine::HugePages::Off,
        HugePagesSetting::TwoMib => machine::HugePages::TwoMib,
    };
    wanted
}

/// Finds out what runs guests here; boots a tiny one unless that was done since the host started.
pub(crate) fn find_out(settings: &Settings) -> anyhow::Result<(Finding, Probe)> {
    Ok(wanted(settings).find_out()?)
}

/// Decides what runs machines here.
pub(crate) fn choose(settings: &Settings) -> anyhow::Result<EngineChoice> {
    Ok(wanted(settings).choose()?)
}

fn open_engine(settings: &Settings, jails: &Path) -> anyhow::Result<Arc<dyn Engine>> {
    let engines::Opened { engine, choice, .. } = wanted(settings).open(jails)?;
    if !choice.security_boundary {
        tracing::info!(
            "guests run by software emulation, which is not a security boundary: {}",
            choice.reason
        );
    }
    if choice.pvm {
        tracing::info!("guests run on software virtualization (PVM): {}", choice.reason);
    }
    Ok(engine)
}

/// What only root may do is refused at once, before anything is made.
pub(crate) fn require_root(command: &str) -> anyhow::Result<()> {
    if rustix::process::geteuid().is_root() {
        return Ok(());
    }
    anyhow::bail!(Hinted {
        message: "this must run as root: it makes networks, mounts and machine processes".to_owned(),
        hint: Some(format!("run it with sudo: sudo pandastack {command}").trim_end().to_owned()),
    })
}

/// Opens the node of this host.
pub(crate) async fn open_node(settings: &Settings) -> anyhow::Result<Node> {
    require_root("")?;
    let opened =
        Node::open(settings.node.clone(), |jails| open_engine(settings, jails).map_err(Into::into)).await;
    opened.with_context(|| format!("open the data directory {}", settings.node.data_dir.display()))
}
