//! Templates made ready ahead of their first use: by the server that is named, or in the data directory of this host.

use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, bail};
use client::Api;
use domain::SnapshotId;
use image::template::{TemplateSpec, catalogue};
use node::{BakeProgress, BakeStage, Node};
use serde_json::json;

use crate::config::Settings;
use crate::engine::open_node;
use crate::moving_line::MovingLine;
use crate::output::{self, Format, say};
use crate::table::fields;

/// How often a server is asked how far it is.
const ASKED_EVERY: Duration = Duration::from_millis(500);

/// Names of the templates that come with PandaStack.
pub(super) fn all() -> Vec<String> {
    catalogue().into_iter().map(|spec| spec.name).collect()
}

/// A template by its name.
fn find(name: &str) -> anyhow::Result<TemplateSpec> {
    match image::template::find(name) {
        Some(spec) => Ok(spec),
        None => {
            bail!("there is no template `{name}`; there are: {}", all().join(", "))
        }
    }
}

/// Makes a template ready, telling a person how far it is.
pub(crate) async fn bake(node: &Node, name: &str) -> anyhow::Result<SnapshotId> {
    let spec = find(name)?;
    let line = Mutex::new(MovingLine::new(format!("preparing {name}")));
    let report = |progress: BakeProgress| {
        let step = match progress.stage {
            BakeStage::Image(step) => format!("{}: {}", step.stage.name(), step.message),
            BakeStage::Booting => "booting it for the first and only time".to_owned(),
            BakeStage::Warming(command) => format!("warming up: {command}"),
            BakeStage::Saving => "saving it".to_owned(),
            BakeStage::Ready => return,
        };
        line.lock().unwrap_or_else(std::sync::PoisonError::into_inner).step(&step);
    };
    node.template(&spec, &report).await.with_context(|| format!("prepare template {name}"))
}

/// A data directory that is in use has a server in most cases, which can do the same.
fn or_ask_the_server(error: anyhow::Error) -> anyhow::Error {
    match format!("{error:#}").contains("is in use") {
        true => error.context(
            "a server that runs is asked with its address: `pandastack --api URL template prepare NAME`",
        ),
        false => error,
    }
}

/// Has a server make templates ready, one after the other, and waits for each unless told not to.
pub(super) async fn there(api: &Api, names: &[String], wait: bool, format: Format) -> anyhow::Result<()> {
    for name in names {
        let mut template = api.prepare_template(name).await?;
        let mut line = MovingLine::new(format!("preparing {name}"));
        while wait && template.status == "preparing" {
            line.step(template.progress.as_deref().unwrap_or("waiting for its turn"));
            tokio::time::sleep(ASKED_EVERY).await;
            template = api.template(name).await?;
        }
        drop(line);
        if wait && template.status != "ready" {
            bail!("template {name} could not be prepared; a sandbox of it says why");
        }
        output::result(format, &template, || fields(&template))?;
    }
    Ok(())
}

/// Makes templates ready in the data directory of this host, one after the other; each is told when it is.
pub(super) async fn here(settings: &Settings, names: &[String], format: Format) -> anyhow::Result<()> {
    for name in names {
        find(name)?;
    }
    say(format!("preparing in {}", settings.node.data_dir.display()));
    let node = open_node(settings).await.map_err(or_ask_the_server)?;
    let baked = async {
        node.look_anew().await.context("forget what was found earlier")?;
        for name in names {
            let id = bake(&node, name).await?;
            output::result(format, &json!({ "template": name, "snapshot": id }), || id.to_string())?;
        }
        Ok(())
    };
    let baked = baked.await;
    node.close().await;
    baked
}
