//! The floor: the engine's program, the snapshot, the first reply, and nothing else.

mod firecracker;
mod qemu;

use std::os::fd::OwnedFd;
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::Context;
use engines::EngineConfig;
use network::Slot;
use serde::Serialize;

use crate::restore::join;
use crate::samples::{Samples, say};
use crate::setup::Bench;

pub(crate) use qemu::Rig as QemuRig;

/// How long a program that is started ahead of need is left alone before it is asked.
const LEFT_ALONE: Duration = Duration::from_millis(50);

/// What the engine's program needs by itself.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Floor {
    /// From starting the program to the guest's first reply.
    pub(crate) spawned: Samples,
    /// From the request to the first reply, with a program that was started before and waited without a guest.
    pub(crate) waited: Samples,
    /// CPU time of the program until the first reply.
    pub(crate) cpu: Samples,
}

/// Ends the program whatever happens.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// An engine's program, started and waiting for a guest.
pub(crate) trait Running {
    /// Its process.
    fn id(&self) -> u32;

    /// Loads the guest, lets it run and waits for the first thing it says.
    async fn first_reply(&mut self) -> anyhow::Result<()>;
}

/// What one floor at a time stands on: a network card, and whatever else the engine's program finds by name.
pub(crate) struct Stand {
    slot: Slot,
    kind: Kind,
}

enum Kind {
    Qemu { tap: OwnedFd, disk: String },
    Firecracker(firecracker::Stand),
}

impl Stand {
    /// `name` is of a place that nobody else uses meanwhile.
    pub(crate) async fn take(bench: &Bench, name: &str) -> anyhow::Result<Self> {
        let lease = bench.node.network().acquire().await.context("get a network card")?;
        let kind = match &bench.engine {
            EngineConfig::Qemu(_) => Kind::Qemu { tap: lease.tap, disk: name.to_owned() },
            EngineConfig::Firecracker(config) => {
                Kind::Firecracker(firecracker::Stand::make(bench, &config.program, name, lease.tap)?)
            }
        };
        Ok(Self { slot: lease.slot, kind })
    }

    pub(crate) async fn give_back(self, bench: &Bench) -> anyhow::Result<()> {
        drop(self.kind);
        bench.node.network().release(self.slot).wait().await.context("give the network card back")
    }

    async fn once(&self, bench: &Bench, ahead: Ahead) -> anyhow::Result<(f64, f64)> {
        match &self.kind {
            Kind::Qemu { tap, disk } => {
                let rig = QemuRig::prepare(bench, disk)?;
                clock(rig.start(bench, tap, &[]), ahead).await
            }
            Kind::Firecracker(stand) => clock(stand.prepare(bench).await?.start(), ahead).await,
        }
    }
}

impl Floor {
    /// One more sample of each kind. Taken between the samples of what is compared with it: a host's speed changes from one second
    /// to the next, with its clock and its neighbours.
    pub(crate) async fn sample(&mut self, bench: &Bench, stand: &Stand) {
        match stand.once(bench, Ahead::Nothing).await {
            Ok((ms, cpu)) => {
                self.spawned.add(Ok::<_, anyhow::Error>(ms));
                self.cpu.add(Ok::<_, anyhow::Error>(cpu));
            }
            Err(error) => self.spawned.add(Err(error)),
        }
        self.waited.add(stand.once(bench, Ahead::Program).await.map(|(ms, _)| ms));
    }

    pub(crate) fn tell(&self) {
        self.spawned.tell("floor: program started, first reply");
        self.waited.tell("floor: program was waiting, first reply");
        self.cpu.tell("floor: CPU time to the first reply");
    }
}

/// How long so many floors take with all cores at work, in milliseconds: what these cores allow.
pub(crate) async fn burst(bench: &Bench, count: usize) -> anyhow::Result<f64> {
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let mut stands = Vec::new();
    for worker in 0..workers {
        stands.push(Stand::take(bench, &format!("floor-{worker}")).await?);
    }
    let started = Instant::now();
    let work = stands.iter().enumerate().map(async |(worker, stand)| {
        for _ in (worker..count).step_by(workers) {
            stand.once(bench, Ahead::Nothing).await?;
        }
        anyhow::Ok(())
    });
    for (_, outcome) in join(work.collect()).await {
        outcome?;
    }
    let total = started.elapsed().as_secs_f64() * 1e3;
    for stand in stands {
        stand.give_back(bench).await?;
    }
    Ok(total)
}

/// What is done before the clock starts.
#[derive(PartialEq, Eq)]
enum Ahead {
    Nothing,
    Program,
}

/// Milliseconds to the first reply, and of CPU time.
async fn clock<P: Running>(
    start: impl Future<Output = anyhow::Result<P>>,
    ahead: Ahead,
) -> anyhow::Result<(f64, f64)> {
    let mut started = Instant::now();
    let mut program = start.await?;
    if ahead == Ahead::Program {
        tokio::time::sleep(LEFT_ALONE).await;
        started = Instant::now();
    }
    program.first_reply().await?;
    let ms = started.elapsed().as_secs_f64() * 1e3;
    Ok((ms, cpu_ms(program.id())?))
}

/// CPU time of all of a process's threads.
pub(crate) fn cpu_ms(pid: u32) -> anyhow::Result<f64> {
    let mut nanoseconds = 0u64;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let schedule = std::fs::read_to_string(task?.path().join("schedstat"))?;
        nanoseconds +=
            schedule.split_ascii_whitespace().next().context("unreadable schedule")?.parse::<u64>()?;
    }
    Ok(nanoseconds as f64 / 1e6)
}

/// A figure with its bound.
pub(crate) fn against(name: &str, value: f64, bound: f64) {
    let verdict = if value <= bound { "within" } else { "ABOVE" };
    say(&format!("    {name}: {value:.2}, {verdict} {bound:.2}"));
}
