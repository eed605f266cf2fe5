//! What idle sandboxes cost.

use std::time::{Duration, Instant};

use anyhow::Context;
use serde_json::{Value, json};

use crate::floor::{against, cpu_ms};
use crate::guest::run;
use crate::setup::Bench;

/// How long idle sandboxes are watched.
const WATCHED: Duration = Duration::from_secs(15);
/// Until what a create leaves behind (a first command, late kernel work) is over.
const SETTLED: Duration = Duration::from_secs(10);

pub(crate) async fn measure(bench: &Bench, count: usize) -> anyhow::Result<Value> {
    let mut sandboxes = Vec::new();
    for _ in 0..count {
        let (sandbox, _) = bench.create().await?;
        run(&sandbox, &["/bin/echo", "hi"]).await?;
        sandboxes.push(sandbox);
    }
    let pids: Vec<u32> = sandboxes
        .iter()
        .map(|sandbox| Ok(sandbox.state().record.vm.as_ref().context("no machine")?.process.pid))
        .collect::<anyhow::Result<_>>()?;
    tokio::time::sleep(SETTLED).await;
    let cpu = |pids: &[u32]| pids.iter().map(|&pid| cpu_ms(pid)).sum::<anyhow::Result<f64>>();
    let before = cpu(&pids)?;
    let started = Instant::now();
    tokio::time::sleep(WATCHED).await;
    let busy = (cpu(&pids)? - before) / (started.elapsed().as_secs_f64() * 1e3) / count as f64 * 100.0;
    let memory: Vec<f64> = pids.iter().map(|&pid| proportional_mb(pid)).collect::<anyhow::Result<_>>()?;
    let average = memory.iter().sum::<f64>() / count as f64;
    crate::samples::say(&format!("{count} idle sandboxes"));
    against("MB of proportional memory each", average, 25.0);
    against("% of a core each", busy, 1.0);
    for sandbox in sandboxes {
        sandbox.delete().await?;
    }
    Ok(json!({ "count": count, "memory_mb": memory, "memory_mb_each": average, "cpu_percent_each": busy }))
}

/// A process's share of the memory it uses, in MB.
fn proportional_mb(pid: u32) -> anyhow::Result<f64> {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = rollup.lines().find(|line| line.starts_with("Pss:")).context("no proportional size")?;
    let kib: f64 = line.split_ascii_whitespace().nth(1).context("no number")?.parse()?;
    Ok(kib * 1024.0 / 1e6)
}
