//! What templates cost: making, baking, room on the disk, restoring. And that a larger disk makes no restore slower.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Mutex;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use domain::SnapshotId;
use image::template::{self, TemplateSpec};
use node::{BakeProgress, BakeStage, CreateFrom, CreateRequest, Node};
use serde_json::{Value, json};

use crate::floor::against;
use crate::guest::run;
use crate::samples::{Samples, say};
use crate::setup::snapshot_directory;

/// Options of `templates`.
#[derive(Debug, Args)]
pub(crate) struct Templates {
    /// Restores of each.
    #[arg(long, default_value_t = 20)]
    restores: usize,
    /// Which ones; those that are not there yet are made, which takes minutes and gigabytes.
    #[arg(default_values = ["minimal", "base", "code-interpreter"])]
    names: Vec<String>,
}

/// A template that is ready to be restored.
struct Ready {
    name: String,
    snapshot: SnapshotId,
    restores: Restores,
}

#[derive(Default)]
struct Restores {
    confirmed: Samples,
    first_output: Samples,
}

pub(crate) async fn measure(node: &Node, data_dir: &Path, options: &Templates) -> anyhow::Result<Value> {
    let mut report = serde_json::Map::new();
    let mut ready = Vec::new();
    for name in &options.names {
        let spec = template::find(name).with_context(|| format!("there is no template {name}"))?;
        let (one, made) = make(node, data_dir, &spec).await?;
        report.insert(spec.name, json!({ "made": made }));
        ready.push(one);
    }
    restore_all(node, &mut ready, options.restores).await?;
    for one in &ready {
        if let Some(Value::Object(about)) = report.get_mut(&one.name) {
            about.insert("restores".to_owned(), one.restores.tell(&one.name));
        }
    }
    report.insert("larger disk".to_owned(), larger_disk(node, data_dir, options.restores).await?);
    Ok(Value::Object(report))
}

/// Makes and bakes a template, unless it is there, and tells what that took.
async fn make(node: &Node, data_dir: &Path, spec: &TemplateSpec) -> anyhow::Result<(Ready, Value)> {
    let started = Instant::now();
    // When its first boot began: what came before was making its parts.
    let booted = Mutex::new(None);
    let report = |progress: BakeProgress| {
        if matches!(progress.stage, BakeStage::Booting) {
            let mut booted = booted.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            booted.get_or_insert_with(|| started.elapsed().as_secs_f64());
        }
    };
    let snapshot = node.template(spec, &report).await;
    let snapshot = snapshot.with_context(|| format!("prepare template {}", spec.name))?;
    let all = started.elapsed().as_secs_f64();
    let booted = booted.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let directory = snapshot_directory(data_dir, &snapshot);
    let stored = |name: &str| {
        let about = directory.join(name).metadata().with_context(|| format!("measure {name}"))?;
        anyhow::Ok((about.len() >> 20, (about.blocks() * 512) >> 20))
    };
    let (disk, memory) = (stored("disk")?, stored("memory")?);
    let took = match booted {
        Some(built) => format!("made in {built:.1} s, baked in {:.1} s", all - built),
        None => "was there already".to_owned(),
    };
    say(&format!(
        "{}: {took}; disk {} MiB of {} MiB, memory {} MiB of {} MiB",
        spec.name, disk.1, disk.0, memory.1, memory.0
    ));
    let made = json!({
        "build_s": booted, "bake_s": booted.map(|built| all - built), "disk_mib": disk.0, "disk_stored_mib": disk.1,
        "memory_mib": memory.0, "memory_stored_mib": memory.1,
    });
    Ok((Ready { name: spec.name.clone(), snapshot, restores: Restores::default() }, made))
}

/// In turns, because a host's speed changes from one second to the next.
async fn restore_all(node: &Node, templates: &mut [Ready], rounds: usize) -> anyhow::Result<()> {
    for _ in 0..rounds {
        for one in &mut *templates {
            let started = Instant::now();
            let request = CreateRequest::new(CreateFrom::Snapshot(one.snapshot.clone()));
            match node.create(request).await {
                Ok((sandbox, _)) => {
                    one.restores.confirmed.add(Ok::<_, anyhow::Error>(started.elapsed().as_secs_f64() * 1e3));
                    let output = run(&sandbox, &["/bin/echo", "hi"]).await;
                    one.restores.first_output.add(output.map(|_| started.elapsed().as_secs_f64() * 1e3));
                    sandbox.delete().await.context("delete a sandbox")?;
                }
                Err(error) => one.restores.confirmed.add(Err(error)),
            }
        }
    }
    Ok(())
}

impl Restores {
    fn tell(&self, name: &str) -> Value {
        self.confirmed.tell(&format!("{name}: identity confirmed"));
        self.first_output.tell(&format!("{name}: first command's output"));
        json!({ "confirmed": self.confirmed, "first_output": self.first_output })
    }
}

/// The same machine, once with its own disk and once with one that holds many times as much.
async fn larger_disk(node: &Node, data_dir: &Path, rounds: usize) -> anyhow::Result<Value> {
    let small = template::minimal();
    let large = TemplateSpec {
        name: "minimal-on-a-larger-disk".to_owned(),
        rootfs: template::base().rootfs,
        ..small.clone()
    };
    let (small, of_small) = make(node, data_dir, &small).await?;
    let (large, of_large) = make(node, data_dir, &large).await?;
    let mut both = [small, large];
    restore_all(node, &mut both, rounds).await?;
    let [small, large] =
        both.each_ref().map(|one| (one.restores.confirmed.summary().p50, one.restores.tell(&one.name)));
    let ratio = large.0 / small.0;
    against("restore with the larger disk / with its own", ratio, 1.1);
    Ok(
        json!({ "small": small.1, "large": large.1, "of_small": of_small, "of_large": of_large, "ratio": ratio }),
    )
}
