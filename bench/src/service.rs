//! The service through HTTP on loopback, against the node library of the same run: what the API adds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, ensure};
use clap::Args;
use control::{Control, ControlConfig};
use domain::{SandboxId, TenantId};
use guest_link::GuestPath;
use guest_link::message::{Parents, WriteMode, WriteSpec};
use serde_json::{Value, json};
use server::ServerConfig;
use store::{NetworkMode, ProvisionState, Quota, SandboxRow, SqliteStore, Store};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::guest::run;
use crate::samples::{Samples, say};
use crate::setup::Bench;

const KEY: &str = "pds_0123456789abcdef0123456789abcdef";
const ROWS: usize = 10_000;
const PIECE_BYTES: usize = 256 << 10;

/// Measure the service.
#[derive(Debug, Args)]
pub(crate) struct Service {
    /// Creations through HTTP; as many through the library.
    #[arg(long, default_value_t = 100)]
    creates: usize,
    /// Commands on a warm sandbox.
    #[arg(long, default_value_t = 100)]
    execs: usize,
    /// Sandboxes alive at once.
    #[arg(long, default_value_t = 100)]
    alive: usize,
    /// Size of the file that goes up and down, in MiB.
    #[arg(long, default_value_t = 200)]
    file_mib: usize,
}

fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}

/// Measures everything the service promises.
pub(crate) async fn measure(bench: &Bench, template: &str, service: &Service) -> anyhow::Result<Value> {
    let database = bench.data_dir.join("bench.db");
    for suffix in ["", "-wal", "-shm"] {
        drop(std::fs::remove_file(format!("{}{suffix}", database.display())));
    }
    let store: Arc<dyn Store> = Arc::new(tokio::task::block_in_place(|| SqliteStore::open(&database))?);
    let config = ControlConfig { rate_burst: 1e9, rate_per_second: 1e9, ..ControlConfig::default() };
    let control = Control::open(config, Arc::clone(&store), bench.node.clone()).await?;
    control.bootstrap(Some(KEY)).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let client = Client::new(listener.local_addr()?, KEY);
    let stop = CancellationToken::new();
    let serving = tokio::spawn({
        let (control, stop) = (control.clone(), stop.clone());
        async move { server::serve(listener, &control, &ServerConfig::default(), stop).await }
    });
    let measured = async {
        let mut report = serde_json::Map::new();
        report.insert("create".into(), creates(bench, &client, template, service.creates).await?);
        report.insert("exec".into(), execs(bench, &client, template, service.execs).await?);
        report.insert("files".into(), files(bench, &client, template, service.file_mib << 20).await?);
        report.insert("list".into(), lists(&control, &store, &client).await?);
        report.insert("alive".into(), alive(&client, template, service.alive).await?);
        anyhow::Ok(Value::Object(report))
    };
    let measured = measured.await;
    stop.cancel();
    serving.await??;
    measured
}

/// Create to the first command's output: by the library and through HTTP, in turn.
async fn creates(bench: &Bench, client: &Client, template: &str, count: usize) -> anyhow::Result<Value> {
    let (mut library, mut http, mut added) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..count {
        let started = Instant::now();
        let (sandbox, _) = bench.create().await?;
        run(&sandbox, &["/bin/sh", "-c", "echo hi"]).await?;
        library.add(Ok::<_, anyhow::Error>(ms(started)));
        sandbox.delete().await?;

        let started = Instant::now();
        let outcome = async {
            let made = client.post("/v1/sandboxes", &json!({ "template": template })).await?;
            let answered = ms(started);
            let id = made["id"].as_str().context("no id")?.to_owned();
            let said = client.post(&format!("/v1/sandboxes/{id}/exec"), &json!({ "cmd": "echo hi" })).await?;
            let total = ms(started);
            ensure!(said["stdout"] == "hi\n", "{said}");
            let timings = &made["timings"];
            let parts =
                ["prepare_ms", "load_ms", "confirm_ms"].map(|name| timings[name].as_f64().unwrap_or(0.0));
            client.delete(&format!("/v1/sandboxes/{id}")).await?;
            anyhow::Ok((total, answered - parts.iter().sum::<f64>()))
        };
        match outcome.await {
            Ok((total, overhead)) => {
                http.add(Ok::<_, anyhow::Error>(total));
                added.add(Ok::<_, anyhow::Error>(overhead));
            }
            Err(error) => http.add(Err(error)),
        }
    }
    let (of_library, of_http) =
        (library.tell("library: create to first output"), http.tell("HTTP: create to first output"));
    let of_added = added.tell("    create through HTTP minus the restore in it");
    say(&format!(
        "    ratio {:.2} (goal 1.35), overhead {:.1} ms (goal 5)",
        of_http.p50 / of_library.p50,
        of_added.p50
    ));
    Ok(json!({ "library": library, "http": http, "overhead": added, "ratio": of_http.p50 / of_library.p50 }))
}

/// `true` on a warm sandbox: the link's round trip, the guest's own start of a process, and the same through HTTP.
async fn execs(bench: &Bench, client: &Client, template: &str, count: usize) -> anyhow::Result<Value> {
    let made = client.post("/v1/sandboxes", &json!({ "template": template })).await?;
    let id = made["id"].as_str().context("no id")?.to_owned();
    let sandbox = bench.node.sandbox(&SandboxId::parse(&id)?)?;
    let link = sandbox.link().await?;
    let path = format!("/v1/sandboxes/{id}/exec");
    let request = json!({ "cmd": "true" });
    for _ in 0..10 {
        run(&sandbox, &["/bin/sh", "-c", "true"]).await?;
        client.post(&path, &request).await?;
    }
    let (mut ping, mut library, mut http) = (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..count {
        let started = Instant::now();
        ping.add(link.ping().await.map(|()| ms(started)));
        let started = Instant::now();
        library.add(run(&sandbox, &["/bin/sh", "-c", "true"]).await.map(|_| ms(started)));
        let started = Instant::now();
        http.add(client.post(&path, &request).await.map(|_| ms(started)));
    }
    client.delete(&format!("/v1/sandboxes/{id}")).await?;
    ping.tell("link: round trip");
    let (of_library, of_http) =
        (library.tell("link: true on a warm sandbox"), http.tell("HTTP: true on a warm sandbox"));
    say(&format!("    ratio {:.2} (goal 1.5)", of_http.p50 / of_library.p50));
    Ok(json!({ "ping": ping, "library": library, "http": http, "ratio": of_http.p50 / of_library.p50 }))
}

/// A file up and down: by the link and through HTTP.
async fn files(bench: &Bench, client: &Client, template: &str, bytes: usize) -> anyhow::Result<Value> {
    let speed = |started: Instant| bytes as f64 / 1e6 / started.elapsed().as_secs_f64();
    // Room for it twice.
    let disk_gb = ((2 * bytes) >> 30) + 1;
    let made = client.post("/v1/sandboxes", &json!({ "template": template, "disk_gb": disk_gb })).await?;
    let id = made["id"].as_str().context("no id")?.to_owned();
    let link = bench.node.sandbox(&SandboxId::parse(&id)?)?.link().await?;
    let guest_path = GuestPath::parse("/file")?;
    let piece = vec![7_u8; PIECE_BYTES];
    let started = Instant::now();
    let mut writer = link.write_file(WriteSpec {
        path: guest_path.clone(),
        how: WriteMode::Replace,
        mode: None,
        owner: None,
        parents: Parents::Require,
    })?;
    for _ in 0..bytes / PIECE_BYTES {
        writer.write(&piece).await?;
    }
    writer.finish().await?;
    let link_up = speed(started);
    let started = Instant::now();
    let mut reader = link.read_file(guest_path, 0, None).await?;
    let mut read = 0;
    while let Some(piece) = reader.next().await? {
        read += piece.len();
    }
    ensure!(read == bytes, "the link gave {read} bytes");
    let link_down = speed(started);
    let path = format!("/v1/sandboxes/{id}/fs?path=/file");
    let started = Instant::now();
    client.upload(&path, bytes, PIECE_BYTES).await?;
    let http_up = speed(started);
    let started = Instant::now();
    ensure!(client.download(&path).await? == bytes, "HTTP gave another length");
    let http_down = speed(started);
    client.delete(&format!("/v1/sandboxes/{id}")).await?;
    say(&format!(
        "{} MiB: link up {link_up:.0}, down {link_down:.0} MB/s; HTTP up {http_up:.0} ({:.2}), down {http_down:.0} ({:.2}) (goal 0.6); never more than {:.0} MB resident",
        bytes >> 20,
        http_up / link_up,
        http_down / link_down,
        memory_mb("VmHWM")?
    ));
    Ok(json!({ "link_up": link_up, "link_down": link_down, "http_up": http_up, "http_down": http_down }))
}

/// A list of many rows.
async fn lists(control: &Control, store: &Arc<dyn Store>, client: &Client) -> anyhow::Result<Value> {
    let tenant = control.add_tenant("many").await?;
    let key = control.add_key(&tenant, "many").await?;
    let plenty = u64::MAX >> 2;
    let quota = Quota {
        sandboxes: plenty,
        cpus: plenty,
        memory_mib: plenty,
        volumes: plenty,
        volume_mib: plenty,
        snapshots: plenty,
        templates: plenty,
        builds: plenty,
    };
    let rows = (0..ROWS).map(|number| row(&tenant, number)).collect();
    store.add_sandboxes(rows, &quota).await?;
    let client = client.with_key(&key);
    let mut samples = Samples::default();
    for _ in 0..20 {
        let started = Instant::now();
        let bytes = client.get_bytes("/v1/sandboxes").await?;
        samples.add(Ok::<_, anyhow::Error>(ms(started)));
        ensure!(bytes.len() > ROWS * 100, "the list is too short");
    }
    samples.tell("HTTP: list of 10,000 (goal 50)");
    Ok(json!(samples))
}

fn row(tenant: &TenantId, number: usize) -> SandboxRow {
    let mut random = [0; 16];
    random[..8].copy_from_slice(&(number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    let metadata = BTreeMap::from([("task".to_owned(), number.to_string())]);
    SandboxRow {
        id: SandboxId::from_random(random),
        tenant: tenant.clone(),
        standing: ProvisionState::Live,
        template: "base".to_owned(),
        from_snapshot: None,
        name: None,
        parent: None,
        ancestors: Vec::new(),
        tree: None,
        fork_index: None,
        metadata,
        env: BTreeMap::new(),
        ports: BTreeMap::new(),
        ttl_seconds: 1 << 30,
        persistent: true,
        network: NetworkMode::None,
        volumes: Vec::new(),
        cpus: 1,
        memory_mib: 256,
        created_ms: number as i64,
        used_ms: 0,
        boot_ms: Some(100.0),
        boot_mode: "snapshot".to_owned(),
        timings: None,
    }
}

/// Resident memory of this process, which holds the server and little else.
async fn alive(client: &Client, template: &str, count: usize) -> anyhow::Result<Value> {
    let before = memory_mb("VmRSS")?;
    let (mut made, mut failures) = (Vec::new(), 0);
    for _ in 0..count {
        match client.post("/v1/sandboxes", &json!({ "template": template })).await {
            Ok(sandbox) => made.push(sandbox["id"].as_str().context("no id")?.to_owned()),
            Err(error) => {
                say(&format!("    failed: {error:#}"));
                failures += 1;
            }
        }
    }
    let after = memory_mb("VmRSS")?;
    say(&format!(
        "{} sandboxes alive: {after:.0} MB resident (goal 120), {before:.0} MB before; {failures} of {count} failed",
        made.len()
    ));
    for id in made {
        client.delete(&format!("/v1/sandboxes/{id}")).await?;
    }
    Ok(json!({ "before_mb": before, "after_mb": after, "failures": failures, "count": count }))
}

/// `VmRSS` is what this process has in memory, `VmHWM` the most it ever had.
fn memory_mb(name: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let mut values = status.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let kib: f64 = values.next().context("no such line")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib / 1e3)
}
