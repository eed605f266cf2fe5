//! Measures what a user feels, against the floor of the same run.
//!
//! The floor is the least any platform on this host and engine could do: start the engine's program, load the same snapshot, get
//! the guest's first reply, with no jail, no network, no disk clone, no identity around it. Everything else is given as a ratio to
//! it, because absolute times say more about the host than about us. Failures are counted, never dropped.

mod blocks;
mod client;
mod density;
mod floor;
mod fork;
mod guest;
mod restore;
mod samples;
mod service;
mod setup;
mod sleep;
mod streamed;
mod templates;

use std::path::PathBuf;

use anyhow::Context;
use clap::Parser;
use node::PrestartedVmms;
use serde_json::{Value, json};

use samples::say;
use setup::Bench;

/// Measures restores, forks, sleep and density on this host.
#[derive(Debug, Parser)]
struct Arguments {
    /// Data directory; images and templates in it are used again.
    #[arg(long, default_value = "/var/lib/pandastack-bench")]
    data_dir: PathBuf,
    /// Template to measure.
    #[arg(long, default_value = "minimal")]
    template: String,
    /// What runs the machines: auto, qemu, qemu-kvm, qemu-tcg or firecracker.
    #[arg(long, default_value = "auto", value_parser = setup::engine_wanted)]
    engine: host::EngineSetting,
    /// Firecracker to use instead of the first one found.
    #[arg(long, env = "FIRECRACKER_BIN")]
    firecracker: Option<PathBuf>,
    /// Restores in a row.
    #[arg(long, default_value_t = 200)]
    restores: usize,
    /// Samples of the floor.
    #[arg(long, default_value_t = 40)]
    floors: usize,
    /// Forks, and sleeps.
    #[arg(long, default_value_t = 10)]
    rounds: usize,
    /// Idle sandboxes at once.
    #[arg(long, default_value_t = 20)]
    idle: usize,
    /// Restores started at once.
    #[arg(long, default_value_t = 50)]
    burst: usize,
    /// Where raw samples are written.
    #[arg(long, default_value = "bench/results")]
    results: PathBuf,
    /// Measure something else instead.
    #[command(subcommand)]
    instead: Option<Instead>,
}

#[derive(Debug, clap::Subcommand)]
enum Instead {
    /// Blocks of guest code an emulator translates until the guest has confirmed who it is. Does not depend on how busy the host
    /// is.
    Blocks(blocks::Blocks),
    /// What the HTTP service adds to the node library.
    Service(service::Service),
    /// Machines from the archive: memory on demand against all of it first.
    Streamed(streamed::Streamed),
    /// What each template costs: making, baking, its size, restoring.
    Templates(templates::Templates),
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
        .with_writer(std::io::stderr)
        .init();
    let arguments = Arguments::parse();
    if let Some(Instead::Service(service)) = &arguments.instead {
        let bench = Bench::open(&arguments, PrestartedVmms::default()).await?;
        let measured = service::measure(&bench, &arguments.template, service).await;
        bench.close().await;
        return write(&arguments, &json!({ "host": host::host_facts(), "service": measured? }));
    }
    if let Some(Instead::Streamed(options)) = &arguments.instead {
        let measured = streamed::measure(&arguments, options).await?;
        return write(&arguments, &json!({ "host": host::host_facts(), "streamed": measured }));
    }
    if let Some(Instead::Templates(options)) = &arguments.instead {
        let node = setup::open_node(&arguments, setup::Kind::waiting(PrestartedVmms::always(0))).await?.node;
        let measured = templates::measure(&node, &arguments.data_dir, options).await;
        setup::close_node(node).await;
        return write(&arguments, &json!({ "host": host::host_facts(), "templates": measured? }));
    }
    if let Some(Instead::Blocks(blocks)) = &arguments.instead {
        let bench = Bench::open(&arguments, PrestartedVmms::always(0)).await?;
        let counted = blocks::count(&bench, blocks).await;
        bench.close().await;
        return counted;
    }
    let mut report = serde_json::Map::new();
    report.insert("host".into(), json!(host::host_facts()));
    report.insert("build".into(), json!(if cfg!(debug_assertions) { "dev" } else { "release" }));

    // Without machines started ahead of need: the whole path, every time.
    let bench = Bench::open(&arguments, PrestartedVmms::always(0)).await?;
    report.insert("engine".into(), json!(bench.node.fingerprint()));
    let restored = restore::sequential(&bench, "restore", arguments.restores, arguments.floors).await?;
    report.insert("restore".into(), restored);
    report.insert("fork".into(), fork::measure(&bench, arguments.rounds).await?);
    report.insert("sleep".into(), sleep::measure(&bench, arguments.rounds).await?);
    report.insert("density".into(), density::measure(&bench, arguments.idle).await?);
    report.insert("burst".into(), restore::burst(&bench, "burst", arguments.burst).await?);
    bench.close().await;

    // With machines waiting, as they do by default: what a user of a template in use gets.
    let bench = Bench::open(&arguments, PrestartedVmms::default()).await?;
    let waiting =
        restore::sequential(&bench, "restore into a waiting machine", arguments.restores, arguments.floors)
            .await?;
    report.insert("restore_waiting".into(), waiting);
    // A first one to learn from.
    report.insert(
        "burst_unforeseen".into(),
        restore::burst(&bench, "burst, unforeseen", arguments.burst).await?,
    );
    report.insert("burst_foreseen".into(), restore::burst(&bench, "burst, foreseen", arguments.burst).await?);
    bench.close().await;

    write(&arguments, &Value::Object(report))
}

fn write(arguments: &Arguments, report: &Value) -> anyhow::Result<()> {
    std::fs::create_dir_all(&arguments.results).context("make the results directory")?;
    let seconds =
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let path = arguments.results.join(format!("{seconds}.json"));
    std::fs::write(&path, serde_json::to_vec_pretty(report)?).context("write the results")?;
    say(&format!("raw samples: {}", path.display()));
    Ok(())
}
