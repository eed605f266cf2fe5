//! Creates, one after the other and all at once.

use std::time::Instant;

use anyhow::Context;
use serde_json::{Value, json};

use crate::floor::{self, Floor, Stand, against};
use crate::guest::run;
use crate::samples::{Samples, say};
use crate::setup::Bench;

/// Restores in a row, each with its first command; before each of the first ones a sample of the floor.
pub(crate) async fn sequential(
    bench: &Bench,
    name: &str,
    count: usize,
    floors: usize,
) -> anyhow::Result<Value> {
    let mut floor = Floor::default();
    let stand = Stand::take(bench, "floor").await?;
    let (mut confirmed, mut first_output, mut second_output) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut phases = Vec::new();
    for round in 0..count {
        if round % count.div_ceil(floors.max(1)) == 0 {
            floor.sample(bench, &stand).await;
        }
        let started = Instant::now();
        let created = bench.create().await;
        let ms = started.elapsed().as_secs_f64() * 1e3;
        let (sandbox, timings) = match created {
            Ok(created) => created,
            Err(error) => {
                confirmed.add(Err(error));
                continue;
            }
        };
        confirmed.add(Ok::<_, anyhow::Error>(ms));
        phases.push(timings);
        let output = run(&sandbox, &["/bin/echo", "hi"]).await;
        first_output.add(output.map(|_| started.elapsed().as_secs_f64() * 1e3));
        let again = Instant::now();
        let output = run(&sandbox, &["/bin/echo", "hi"]).await;
        second_output.add(output.map(|_| again.elapsed().as_secs_f64() * 1e3));
        sandbox.delete().await.context("delete a sandbox")?;
    }
    stand.give_back(bench).await?;
    floor.tell();
    let summary = confirmed.tell(&format!("{name}: identity confirmed"));
    first_output.tell(&format!("{name}: first command's output"));
    second_output.tell("    the next command on the same sandbox");
    tell_phases(&phases);
    let floor_p50 = floor.spawned.summary().p50;
    against("p50 / floor p50", summary.p50 / floor_p50, 1.5);
    against("p99 / p50", summary.p99 / summary.p50, 3.0);
    Ok(json!({
        "floor": floor, "confirmed": confirmed, "first_output": first_output, "second_output": second_output, "phases": phases,
        "p50_over_floor": summary.p50 / floor_p50, "p99_over_p50": summary.p99 / summary.p50,
    }))
}

/// Says where the time of restores went.
pub(crate) fn tell_phases(phases: &[node::RestoreTimings]) {
    let average = |pick: fn(&node::RestoreTimings) -> f64| {
        phases.iter().map(pick).sum::<f64>() / phases.len().max(1) as f64
    };
    let (prepare, load, confirm) =
        (average(|t| t.prepare_ms), average(|t| t.load_ms), average(|t| t.confirm_ms));
    let ready = phases.iter().filter(|timings| timings.prestarted).count();
    say(&format!(
        "    on average: prepare {prepare:.1}, load {load:.1}, confirm {confirm:.1} ms; {ready} were waiting"
    ));
}

/// Many restores started at the same moment. Half of the floors are taken before and half after: a host's speed drifts.
pub(crate) async fn burst(bench: &Bench, name: &str, count: usize) -> anyhow::Result<Value> {
    bench.settle().await;
    let before = floor::burst(bench, count / 2).await?;
    let mut samples = Samples::default();
    let started = Instant::now();
    let creates: Vec<_> = (0..count).map(|_| bench.create()).collect();
    let (mut sandboxes, mut phases) = (Vec::new(), Vec::new());
    for created in join(creates).await {
        match created {
            (ms, Ok((sandbox, timings))) => {
                samples.add(Ok::<_, anyhow::Error>(ms));
                sandboxes.push(sandbox);
                phases.push(timings);
            }
            (_, Err(error)) => samples.add(Err(error)),
        }
    }
    let total = started.elapsed().as_secs_f64() * 1e3;
    for sandbox in sandboxes {
        sandbox.delete().await.context("delete a sandbox")?;
    }
    bench.settle().await;
    let allowed = before + floor::burst(bench, count - count / 2).await?;
    samples.tell(&format!("{name} of {count}: identity confirmed"));
    tell_phases(&phases);
    say(&format!("    total {total:.0} ms; as many floors with all cores at work took {allowed:.0} ms"));
    against("total / the floors", total / allowed, 1.3);
    Ok(json!({ "samples": samples, "total_ms": total, "floors_ms": allowed, "ratio": total / allowed }))
}

/// Runs all to their end, each with the time it took.
pub(crate) async fn join<F: Future>(futures: Vec<F>) -> Vec<(f64, F::Output)> {
    let started = Instant::now();
    let mut running: Vec<_> = futures.into_iter().map(|future| (Box::pin(future), None)).collect();
    std::future::poll_fn(|context| {
        let mut pending = false;
        for (future, output) in &mut running {
            if output.is_none() {
                match future.as_mut().poll(context) {
                    std::task::Poll::Ready(value) => {
                        *output = Some((started.elapsed().as_secs_f64() * 1e3, value))
                    }
                    std::task::Poll::Pending => pending = true,
                }
            }
        }
        if pending { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    running.into_iter().filter_map(|(_, output)| output).collect()
}
