//! Hibernating and waking a sandbox whose memory has changed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use serde_json::{Value, json};

use crate::floor::against;
use crate::fork::DIRTY_MIB;
use crate::guest::{dirty, run};
use crate::restore::tell_phases;
use crate::samples::{Samples, say};
use crate::setup::Bench;

pub(crate) async fn measure(bench: &Bench, rounds: usize) -> anyhow::Result<Value> {
    let (mut written, mut hibernated, mut woken) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut restored = Samples::default();
    let (mut phases, mut creating, mut waking) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let started = Instant::now();
        let (sandbox, timings) = bench.create().await?;
        creating.push(timings);
        restored.add(Ok::<_, anyhow::Error>(started.elapsed().as_secs_f64() * 1e3));
        dirty(&sandbox, DIRTY_MIB).await?;
        let started = Instant::now();
        let timings = sandbox.hibernate().await?;
        hibernated.add(Ok::<_, anyhow::Error>(started.elapsed().as_secs_f64() * 1e3));
        phases.push(timings);
        written.add(write_once(bench, timings.changed_bytes));
        let started = Instant::now();
        let awake = sandbox.wake().await;
        woken.add(awake.map(|timings| {
            waking.push(timings);
            started.elapsed().as_secs_f64() * 1e3
        }));
        run(&sandbox, &["/bin/echo", "hi"]).await?;
        sandbox.delete().await?;
    }
    let write = written.tell("writing that many bytes to a file, synced");
    let hibernate = hibernated.tell(&format!("hibernate with {DIRTY_MIB} MiB changed"));
    let average = |pick: fn(&node::SaveTimings) -> f64| {
        phases.iter().map(pick).sum::<f64>() / phases.len().max(1) as f64
    };
    say(&format!(
        "    on average: before the pause {:.1}, copy {:.1}, commit {:.1} ms",
        average(|timings| timings.before_ms),
        average(|timings| timings.copy_ms),
        average(|timings| timings.commit_ms)
    ));
    let wake = woken.tell("wake: identity confirmed");
    tell_phases(&waking);
    let restore = restored.tell("create: identity confirmed");
    tell_phases(&creating);
    against("hibernate / write", hibernate.p50 / write.p50, 2.0);
    against("wake / create", wake.p50 / restore.p50, 1.0);
    Ok(json!({
        "written": written, "hibernated": hibernated, "woken": woken, "restored": restored, "phases": phases, "waking": waking, "creating": creating,
        "hibernate_over_write": hibernate.p50 / write.p50, "wake_over_restore": wake.p50 / restore.p50,
    }))
}

/// The least a hibernation must do: so many bytes over a clone of the template's memory, synced.
fn write_once(bench: &Bench, bytes: u64) -> anyhow::Result<f64> {
    let path = bench.data_dir.join("pool/written");
    drop(std::fs::remove_file(&path));
    let buffer = vec![0x5a; 1 << 20];
    let started = Instant::now();
    let (file, _) = storage::clone_file(&bench.template_file("memory"), &path)?;
    write_all(&file, &buffer, bytes)?;
    file.sync_all()?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    std::fs::remove_file(&path)?;
    Ok(ms)
}

fn write_all(file: &File, buffer: &[u8], bytes: u64) -> std::io::Result<()> {
    let mut offset = 0;
    while offset < bytes {
        let count = buffer.len().min((bytes - offset) as usize);
        file.write_all_at(&buffer[..count], offset)?;
        offset += count as u64;
    }
    Ok(())
}
