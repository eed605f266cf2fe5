//! A node to measure.

use std::path::{Path, PathBuf};

use anyhow::Context;
use domain::SnapshotId;
use engines::{EngineConfig, Settings};
use host::{EngineSetting, Programs};
use node::{CreateFrom, CreateRequest, Node, NodeConfig, RestoreTimings, Sandbox};

use crate::Arguments;
use crate::samples::say;

pub(crate) struct Bench {
    pub(crate) node: Node,
    pub(crate) template: SnapshotId,
    pub(crate) data_dir: PathBuf,
    pub(crate) engine: EngineConfig,
}

impl Bench {
    pub(crate) async fn open(arguments: &Arguments, machines_waiting: usize) -> anyhow::Result<Self> {
        let OpenNode { node, engine } = open_node(arguments, machines_waiting).await?;
        let spec = image::template::find(&arguments.template)
            .with_context(|| format!("there is no template {}", arguments.template))?;
        say(&format!("preparing template {}", spec.name));
        let template = node.template(&spec, &|_| {}).await.context("prepare the template")?;
        Ok(Self { node, template, data_dir: arguments.data_dir.clone(), engine })
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

/// Which engine is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum EngineWanted {
    /// The one that this host would be given.
    #[default]
    Auto,
    /// QEMU, with KVM where it works.
    Qemu,
    /// QEMU with KVM.
    QemuKvm,
    /// QEMU without KVM.
    QemuTcg,
    /// Firecracker.
    Firecracker,
}

impl EngineWanted {
    fn setting(self) -> EngineSetting {
        match self {
            EngineWanted::Auto => EngineSetting::Auto,
            EngineWanted::Qemu => EngineSetting::Qemu,
            EngineWanted::QemuKvm => EngineSetting::QemuKvm,
            EngineWanted::QemuTcg => EngineSetting::QemuTcg,
            EngineWanted::Firecracker => EngineSetting::Firecracker,
        }
    }
}

/// A node, and what its machines run with.
pub(crate) struct OpenNode {
    pub(crate) node: Node,
    pub(crate) engine: EngineConfig,
}

pub(crate) async fn open_node(arguments: &Arguments, machines_waiting: usize) -> anyhow::Result<OpenNode> {
    let mut config = NodeConfig::new(&arguments.data_dir);
    config.machines_waiting = machines_waiting;
    let programs = Programs { firecracker: arguments.firecracker.clone(), ..Programs::default() };
    let probe_cache = arguments.data_dir.join("host-probe.json");
    let settings = Settings::new(arguments.engine.setting(), programs, probe_cache);
    let mut engine = None;
    let opening = Node::open(config, |jails| {
        let opened = settings.open(jails)?;
        say(&format!("engine: {}", opened.choice.reason));
        engine = Some(opened.config);
        Ok(opened.engine)
    });
    let node = opening.await.context("open a node")?;
    Ok(OpenNode { node, engine: engine.context("the node opened no engine")? })
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
