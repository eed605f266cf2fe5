//! Forking a running sandbox whose memory has changed.

use std::time::Instant;

use domain::SandboxId;
use node::Child;
use serde_json::{Value, json};

use crate::floor::against;
use crate::guest::{dirty, run};
use crate::restore::tell_phases;
use crate::samples::{Samples, say};
use crate::setup::Bench;

/// MiB of memory the parent has changed.
pub(crate) const DIRTY_MIB: usize = 64;

pub(crate) async fn measure(bench: &Bench, rounds: usize) -> anyhow::Result<Value> {
    let (mut restored, mut forked) = (Samples::default(), Samples::default());
    let (mut paused, mut copied) = (Samples::default(), Samples::default());
    let mut committed = Samples::default();
    let (mut changed, mut phases) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let started = Instant::now();
        let (parent, _) = bench.create().await?;
        restored.add(run(&parent, &["/bin/echo", "hi"]).await.map(|_| started.elapsed().as_secs_f64() * 1e3));
        dirty(&parent, DIRTY_MIB).await?;
        let started = Instant::now();
        let forking = bench.node.fork_as(&parent, vec![Child { id: new_id()?, host_name: None }]).await?;
        let timings = forking.timings;
        for child in forking.children {
            match child {
                Ok((child, restoring)) => {
                    phases.push(restoring);
                    let output = run(&child, &["/bin/echo", "hi"]).await;
                    forked.add(output.map(|_| started.elapsed().as_secs_f64() * 1e3));
                    child.delete().await?;
                }
                Err(error) => forked.add(Err(error)),
            }
        }
        paused.add(Ok::<_, anyhow::Error>(timings.paused_ms));
        copied.add(Ok::<_, anyhow::Error>(timings.copy_ms));
        committed.add(Ok::<_, anyhow::Error>(timings.commit_ms));
        changed.push(timings.changed_bytes);
        parent.delete().await?;
    }
    let restore = restored.tell("create: first command's output");
    let fork = forked.tell(&format!("fork with {DIRTY_MIB} MiB changed: child's first output"));
    let pause = paused.tell("    parent stood still");
    let copy = copied.tell("    of it, copying memory and devices");
    committed.tell("    then sums and writing down");
    tell_phases(&phases);
    say(&format!("    bytes changed: {changed:?}"));
    against("fork / create, both to the first output", fork.p50 / restore.p50, 2.5);
    against("ms the parent stood still besides the copy", pause.p50 - copy.p50, 40.0);
    Ok(json!({
        "restored": restored, "forked": forked, "paused": paused, "copied": copied, "committed": committed, "phases": phases, "changed_bytes": changed,
        "fork_over_restore": fork.p50 / restore.p50, "paused_besides_copy_ms": pause.p50 - copy.p50,
    }))
}

fn new_id() -> anyhow::Result<SandboxId> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
    Ok(SandboxId::from_random(now.as_nanos().to_le_bytes()))
}
