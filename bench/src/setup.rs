//! A node to measure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context;
use domain::SnapshotId;
use engines::{EngineConfig, Settings};
use host::{EngineSetting, Programs};
use machine::Engine;
use node::{
    ArchiveConfig, CreateFrom, CreateRequest, Node, NodeConfig, PrestartedVmms, RestoreTimings, Sandbox,
};
use serde::Deserialize;
use serde::de::IntoDeserializer;

use crate::Arguments;
use crate::samples::say;

pub(crate) struct Bench {
    pub(crate) node: Node,
    pub(crate) template: SnapshotId,
    pub(crate) data_dir: PathBuf,
    pub(crate) engine: EngineConfig,
}

impl Bench {
    pub(crate) async fn open(arguments: &Arguments, prestarted_vmms: PrestartedVmms) -> anyhow::Result<Self> {
        let OpenNode { node, engine } = open_node(arguments, Kind::waiting(prestarted_vmms)).await?;
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

    /// Waits until the node has made ready what it makes ahead of need.
    pub(crate) async fn settle(&self) {
        const QUIET: Duration = Duration::from_secs(1);
        let look = || (self.node.stats().prestarted_vmms, self.node.stats().networks_ready);
        let (mut seen, mut since) = (look(), Instant::now());
        while since.elapsed() < QUIET {
            tokio::time::sleep(Duration::from_millis(10)).await;
            if look() != seen {
                (seen, since) = (look(), Instant::now());
            }
        }
    }

    /// Where the template's files are.
    pub(crate) fn template_file(&self, name: &str) -> PathBuf {
        snapshot_directory(&self.data_dir, &self.template).join(name)
    }

    pub(crate) async fn close(self) {
        close_node(self.node).await;
    }
}

/// Which engine is measured, by the name that it has in settings.
pub(crate) fn engine_wanted(name: &str) -> Result<EngineSetting, serde::de::value::Error> {
    EngineSetting::deserialize(name.into_deserializer())
}

/// What kind of node is measured.
pub(crate) struct Kind<'a> {
    pub(crate) prestarted_vmms: PrestartedVmms,
    pub(crate) archive: Option<ArchiveConfig>,
    /// What is put in place of the engine.
    pub(crate) change: &'a (dyn Fn(Arc<dyn Engine>) -> Arc<dyn Engine> + Sync),
}

impl Kind<'_> {
    /// An ordinary node with so many machine processes started ahead of need.
    pub(crate) fn waiting(prestarted_vmms: PrestartedVmms) -> Self {
        Self { prestarted_vmms, archive: None, change: &|engine| engine }
    }
}

/// A node, and what its machines run with.
pub(crate) struct OpenNode {
    pub(crate) node: Node,
    pub(crate) engine: EngineConfig,
}

pub(crate) async fn open_node(arguments: &Arguments, kind: Kind<'_>) -> anyhow::Result<OpenNode> {
    let mut config = NodeConfig::new(&arguments.data_dir);
    config.prestarted_vmms = kind.prestarted_vmms;
    config.archive = kind.archive;
    let programs = Programs { firecracker: arguments.firecracker.clone(), ..Programs::default() };
    let probe_cache = arguments.data_dir.join("host-probe.json");
    let settings = Settings::new(arguments.engine, programs, probe_cache);
    let mut engine = None;
    let opening = Node::open(config, |jails| {
        let opened = settings.open(jails)?;
        say(&format!("engine: {}", opened.choice.reason));
        engine = Some(opened.config);
        Ok((kind.change)(opened.engine))
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
