//! How much guest code a restore runs, counted in the blocks an emulator has to translate for it.
//!
//! An emulator forgets all translations with its process, so the number of blocks until the guest's answer is what a restore
//! costs by itself, whatever else the host is doing.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, ensure};
use engines::EngineConfig;
use guest_link::client::{Link, Opening};
use guest_link::message::{
    ENTROPY_BYTES, FreshIdentity, HostKey, Identity, Network, NetworkPast, USUAL_KEY_BYTES,
};
use machine::qemu::Accelerator;
use network::Lease;
use serde_json::{Value, json};

use crate::floor::{QemuRig, Running, cpu_ms};
use crate::samples::say;
use crate::setup::Bench;

/// How long a guest that has answered is left alone before its blocks are counted again.
const LEFT_ALONE: Duration = Duration::from_millis(500);

/// What to count.
#[derive(Debug, clap::Args)]
pub(crate) struct Blocks {
    /// Writes down which blocks were translated for a whole identity (QEMU's `in_asm` log).
    #[arg(long)]
    log: Option<PathBuf>,
    /// Further arguments for the engine's program.
    #[arg(long, allow_hyphen_values = true, value_delimiter = ' ')]
    arguments: Vec<String>,
}

/// How much of an identity a guest is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Nothing,
    /// Entropy and time, and connections: that of a machine that wakes where it fell asleep.
    Same,
    /// An address, too.
    Network,
    /// And names and keys.
    Anew,
}

const STEPS: [(Told, &str); 4] = [
    (Told::Nothing, "first reply"),
    (Told::Same, "entropy, clock, connections"),
    (Told::Network, "address"),
    (Told::Anew, "names, keys"),
];

pub(crate) async fn count(bench: &Bench, blocks: &Blocks) -> anyhow::Result<()> {
    let emulated =
        matches!(&bench.engine, EngineConfig::Qemu(config) if config.accelerator == Accelerator::Tcg);
    ensure!(emulated, "only an emulator translates blocks: this needs QEMU without KVM");
    let lease = bench.node.network().acquire().await.context("get a network card")?;
    let mut before = 0;
    for (told, name) in STEPS {
        let Count { answered, answered_cpu_ms, later, later_cpu_ms } =
            once(bench, &lease, told, &blocks.arguments).await?;
        say(&format!(
            "{name:<28} {answered:>6} blocks in all, {:>6} for this, {answered_cpu_ms:>6.1} ms of CPU; {later:>6} blocks, {later_cpu_ms:>6.1} ms after {} ms",
            answered - before,
            LEFT_ALONE.as_millis()
        ));
        before = answered;
    }
    if let Some(log) = &blocks.log {
        let mut extra = blocks.arguments.clone();
        extra.extend(["-d".into(), "in_asm".into(), "-D".into(), log.display().to_string()]);
        once(bench, &lease, Told::Anew, &extra).await?;
    }
    bench.node.network().release(lease.slot).wait().await.context("give the network card back")?;
    Ok(())
}

/// Blocks translated, and CPU time used since the guest was let go, when it had answered and some time later.
struct Count {
    answered: i64,
    answered_cpu_ms: f64,
    later: i64,
    later_cpu_ms: f64,
}

async fn once(bench: &Bench, lease: &Lease, told: Told, extra: &[String]) -> anyhow::Result<Count> {
    let mut engine = QemuRig::prepare(bench, "floor")?.start(bench, &lease.tap, extra).await?;
    let before = cpu_ms(engine.id())?;
    let link = engine.load().await?;
    let _link = Link::open(link, Opening::Clean, identity(lease, told)).await.context("no answer")?;
    let answered_cpu_ms = cpu_ms(engine.id())? - before;
    let answered = translated(&engine.run(jit()).await?)?;
    tokio::time::sleep(LEFT_ALONE).await;
    let later_cpu_ms = cpu_ms(engine.id())? - before;
    Ok(Count { answered, answered_cpu_ms, later: translated(&engine.run(jit()).await?)?, later_cpu_ms })
}

fn jit() -> Value {
    json!({ "execute": "human-monitor-command", "arguments": { "command-line": "info jit" } })
}

/// The number in `TB count 2717`.
fn translated(report: &Value) -> anyhow::Result<i64> {
    let report = report.as_str().context("no report")?;
    let line = report.lines().find_map(|line| line.strip_prefix("TB count")).context("no count of blocks")?;
    line.trim().parse().context("an unreadable count")
}

fn identity(lease: &Lease, told: Told) -> Option<Identity> {
    let [private, public] = USUAL_KEY_BYTES.map(|bytes| vec![b'a'; bytes]);
    let fresh = FreshIdentity { machine_id: [3; 16], ssh_host_key: HostKey { private, public } };
    let network = Network {
        past: NetworkPast::None,
        mac: lease.addresses.mac.0,
        address: lease.addresses.ip,
        dns: Vec::new(),
    };
    (told >= Told::Same).then(|| Identity {
        fresh: (told >= Told::Anew).then_some(fresh),
        hostname: "sandbox-abcdef".into(),
        entropy: [1; ENTROPY_BYTES],
        unix_time_ns: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64),
        network: (told >= Told::Network).then_some(network),
    })
}
