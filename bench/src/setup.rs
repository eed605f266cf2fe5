//! A node to measure.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use domain::SnapshotId;
use host::{Deadlines, EngineSetting, FirecrackerFound, Freshness, ProbeSettings, Programs};
use machine::Engine;
use machine::qemu::{Accelerator, QemuConfig, QemuEngine};
use node::{CreateFrom, CreateRequest, Node, NodeConfig, RestoreTimings, Sandbox};

use crate::Arguments;
use crate::samples::say;

pub(crate) const FIRMWARE: &str = "/usr/share/qemu/qboot.rom";

pub(crate) struct Bench {
    pub(crate) node: Node,
    pub(crate) template: SnapshotId,
    pub(crate) data_dir: PathBuf,
    pub(crate) qemu: PathBuf,
    pub(crate) accelerator: Accelerator,
}

impl Bench {
    pub(crate) async fn open(arguments: &Arguments, machines_waiting: usize) -> anyhow::Result<Self> {
        let OpenNode { node, qemu, accelerator } = open_node(arguments, machines_waiting).await?;
        let spec = image::template::find(&arguments.template)
            .with_context(|| format!("there is no template {}", arguments.template))?;
        say(&format!("preparing template {}", spec.name));
        let template = node.template(&spec, &|_| {}).await.context("prepare the template")?;
        Ok(Self { node, template, data_dir: arguments.data_dir.clone(), qemu, accelerator })
    }

    pub(crate) async fn create(&self) -> anyhow::Result<(Sandbox, RestoreTimings)> {
        let request = CreateRequest::new(CreateFrom::Snapshot(self.template.clone()));
        Ok(self.node.create(request).await?)
    }

    /// Where the template's files are.
    pub(crate) fn template_file(&self, name: &str) -> PathBuf {
        snapshot_directory(&self.data_dir, &self.template).join(name)
    }

    pub(crate) async fn close(self) {
        close_node(self.node).await;
    }
}

/// A node, and what its machines run with.
pub(crate) struct OpenNode {
    pub(crate) node: Node,
    pub(crate) qemu: PathBuf,
    pub(crate) accelerator: Accelerator,
}

pub(crate) async fn open_node(arguments: &Arguments, machines_waiting: usize) -> anyhow::Result<OpenNode> {
    let programs = Programs::default();
    let qemu = programs.qemu().context("find qemu-system-x86_64")?;
    let mut config = NodeConfig::new(&arguments.data_dir);
    config.machines_waiting = machines_waiting;
    std::fs::create_dir_all(&arguments.data_dir).context("make the data directory")?;
    let probed = host::probe(&ProbeSettings {
        programs,
        cache: Some(arguments.data_dir.join("host-probe.json")),
        freshness: Freshness::UseCache,
        deadlines: Deadlines::default(),
    })?;
    // The floor is QEMU's, so that is what is measured.
    let finding = host::classify(&probed.probe);
    let choice = host::choose(EngineSetting::Auto, &finding, Some(&probed.probe), &FirecrackerFound::Missing);
    let accelerator = match choice.engine {
        host::Engine::Qemu { accel: host::Accelerator::Kvm } => Accelerator::Kvm,
        _ => Accelerator::Tcg,
    };
    let program = qemu.clone();
    let make_engine = |jails: &std::path::Path| {
        let config = QemuConfig {
            program,
            firmware: FIRMWARE.into(),
            accelerator,
            host_cpu: host::cpu_identity().map_or_else(|_| "unknown".to_owned(), |cpu| cpu.flags_digest),
            tsc_khz: host::tsc_khz().khz,
            jail_roots: jails.to_owned(),
        };
        Ok(Arc::new(QemuEngine::open(config)?) as Arc<dyn Engine>)
    };
    let node = Node::open(config, make_engine).await.context("open a node")?;
    Ok(OpenNode { node, qemu, accelerator })
}

/// Removes its sandboxes and ends it.
pub(crate) async fn close_node(node: Node) {
    for sandbox in node.sandboxes() {
        if let Err(error) = sandbox.delete().await {
            say(&format!("could not remove {}: {error}", sandbox.id()));
        }
    }
    node.close().await;
}

/// Where a snapshot's files are.
pub(crate) fn snapshot_directory(data_dir: &Path, id: &SnapshotId) -> PathBuf {
    data_dir.join("pool/snapshots").join(id.as_str())
}
