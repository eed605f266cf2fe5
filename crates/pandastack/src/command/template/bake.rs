//! Templates of this host, made ready ahead of their first use, without a server.

use std::sync::Mutex;

use anyhow::{Context, bail};
use domain::SnapshotId;
use image::template::{TemplateSpec, catalogue};
use node::{BakeProgress, BakeStage, Node};
use serde_json::json;

use crate::config::Settings;
use crate::engine::open_node;
use crate::output::{self, Format};

/// A template by its name.
fn find(name: &str) -> anyhow::Result<TemplateSpec> {
    match image::template::find(name) {
        Some(spec) => Ok(spec),
        None => {
            let names: Vec<_> = catalogue().into_iter().map(|spec| spec.name).collect();
            bail!("there is no template `{name}`; there are: {}", names.join(", "))
        }
    }
}

/// Makes a template ready, telling a person how far it is.
pub(crate) async fn bake(node: &Node, name: &str) -> anyhow::Result<SnapshotId> {
    let spec = find(name)?;
    let last = Mutex::new(String::new());
    let report = |progress: BakeProgress| {
        let line = match progress.stage {
            BakeStage::Image(step) => format!("{}: {}", step.stage.name(), step.message),
            BakeStage::Booting => "booting it for the first and only time".to_owned(),
            BakeStage::Warming(command) => format!("warming up: {command}"),
            BakeStage::Saving => "saving it".to_owned(),
            BakeStage::Ready => "ready".to_owned(),
        };
        let mut last = last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *last != line {
            output::say(format!("{}: {line}", progress.template));
            *last = line;
        }
    };
    node.template(&spec, &report).await.with_context(|| format!("prepare template {name}"))
}

pub(super) async fn run(settings: &Settings, name: &str, format: Format) -> anyhow::Result<()> {
    let node = open_node(settings).await?;
    let baked = async {
        node.look_anew().await.context("forget what was found earlier")?;
        bake(&node, name).await
    };
    let baked = baked.await;
    node.close().await;
    let id = baked?;
    output::result(format, &json!({ "template": name, "snapshot": id }), || id.to_string())?;
    Ok(())
}
