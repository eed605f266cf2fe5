//! What idle sandboxes cost.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde::Serialize;
use serde_json::{Value, json};

use crate::floor::{against, cpu_ms};
use crate::guest::run;
use crate::samples::say;
use crate::setup::Bench;

/// How long idle sandboxes are watched.
const WATCHED: Duration = Duration::from_secs(15);
/// Until what a create leaves behind (a first command, late kernel work) is over.
const SETTLED: Duration = Duration::from_secs(10);

pub(crate) async fn measure(bench: &Bench, count: usize) -> anyhow::Result<Value> {
    let mut sandboxes = Vec::new();
    for _ in 0..count {
        sandboxes.push(bench.create().await?.0);
    }
    let pids: Vec<u32> = sandboxes
        .iter()
        .map(|sandbox| Ok(sandbox.state().record.vm.as_ref().context("no machine")?.process.pid))
        .collect::<anyhow::Result<_>>()?;
    let fresh = watch(&pids).await?;
    fresh.tell(&format!("{count} idle sandboxes, as they were made"));
    for sandbox in &sandboxes {
        run(sandbox, &["/bin/echo", "hi"]).await?;
    }
    let used = watch(&pids).await?;
    used.tell("    and after a first command in each, whose translated code the emulator keeps");
    for sandbox in sandboxes {
        sandbox.delete().await?;
    }
    Ok(json!({ "count": count, "fresh": fresh, "used": used }))
}

/// What idle machines use.
#[derive(Debug, Serialize)]
struct Idle {
    memory_mb: Vec<f64>,
    memory_mb_each: f64,
    cpu_percent_each: f64,
}

impl Idle {
    fn tell(&self, name: &str) {
        say(name);
        against("MB of proportional memory each", self.memory_mb_each, 25.0);
        against("% of a core each", self.cpu_percent_each, 1.0);
    }
}

async fn watch(pids: &[u32]) -> anyhow::Result<Idle> {
    tokio::time::sleep(SETTLED).await;
    let cpu = || pids.iter().map(|&pid| cpu_ms(pid)).sum::<anyhow::Result<f64>>();
    let before = cpu()?;
    let started = Instant::now();
    tokio::time::sleep(WATCHED).await;
    let each = |sum: f64| sum / pids.len() as f64;
    let cpu_percent_each = each(cpu()? - before) / (started.elapsed().as_secs_f64() * 1e3) * 100.0;
    let memory_mb: Vec<f64> = pids.iter().map(|&pid| proportional_mb(pid)).collect::<anyhow::Result<_>>()?;
    Ok(Idle { memory_mb_each: each(memory_mb.iter().sum()), memory_mb, cpu_percent_each })
}

/// A process's share of the memory it uses, in MB.
fn proportional_mb(pid: u32) -> anyhow::Result<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).context("no proportional size")?;
    let kib: f64 = line.split_ascii_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kib * 1024.0 / 1e6)
}
