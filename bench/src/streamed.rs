//! A machine from the archive, with nothing of it on this host: one that begins before its memory is here, against one whose memory
//! comes first.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use async_trait::async_trait;
use clap::Args;
use domain::{EngineFingerprint, SnapshotId};
use machine::{
    AttachError, BootPlan, Engine, MemoryOrigin, Place, Prepared, RestorePlan, StartError, Vm, VmRecord,
};
use node::{ArchiveConfig, CreateFrom, CreateRequest, Node, PrestartedVmms, SnapshotPlace};
use serde_json::{Value, json};
use storage::blobs::{BlobAddress, BlobsConfig};

use crate::Arguments;
use crate::guest::{dirty, run};
use crate::samples::{Samples, say};
use crate::setup::{Kind, close_node, open_node};

/// How long putting a snapshot into the archive may take.
const ARCHIVE_TIMEOUT: Duration = Duration::from_secs(600);
/// Pause between looks at whether it is there.
const ARCHIVE_POLL: Duration = Duration::from_millis(50);

/// Options of `streamed`.
#[derive(Debug, Args)]
pub(crate) struct Streamed {
    /// Machines of each kind.
    #[arg(long, default_value_t = 6)]
    times: usize,
    /// MiB of memory that the archived guest has changed.
    #[arg(long, default_value_t = 64)]
    changed_mib: usize,
}

/// The times of one kind of create.
#[derive(Debug, Default, serde::Serialize)]
struct Times {
    confirmed: Samples,
    first_output: Samples,
    /// All of what the guest had changed is read.
    all_read: Samples,
}

pub(crate) async fn measure(arguments: &Arguments, options: &Streamed) -> anyhow::Result<Value> {
    let archive = arguments.data_dir.join("archive");
    let id = archived(arguments, &archive, options.changed_mib).await?;
    let (mut streamed, mut again, mut whole) = (Times::default(), Times::default(), Times::default());
    for round in 0..options.times {
        // Whoever comes second finds more of the files in the host's memory.
        let mut kinds = [Memory::LazyMemory, Memory::First];
        kinds.rotate_left(round % 2);
        for memory in kinds {
            forget(arguments, &id)?;
            let node = open(arguments, &archive, memory).await?;
            match memory {
                Memory::First => whole.sample(&node, &id).await?,
                Memory::LazyMemory => {
                    streamed.sample(&node, &id).await?;
                    again.sample(&node, &id).await?;
                }
            }
            away(&node, &id).await?;
            close_node(node).await;
        }
    }
    let node = open(arguments, &archive, Memory::LazyMemory).await?;
    node.delete_snapshot(&id).context("delete the snapshot")?;
    close_node(node).await;
    streamed.tell("memory on demand, nothing of it here");
    again.tell("the same with what the first one fetched");
    whole.tell("all of the memory first");
    let ratio = |pick: fn(&Times) -> &Samples| pick(&streamed).summary().p50 / pick(&whole).summary().p50;
    let first = ratio(|times| &times.first_output);
    let all = ratio(|times| &times.all_read);
    say(&format!("    on demand / all first: {first:.2} to the first output, {all:.2} until all is read"));
    Ok(json!({
        "streamed": streamed, "streamed_again": again, "whole": whole,
        "first_output_over_whole": first, "all_read_over_whole": all,
    }))
}

impl Times {
    async fn sample(&mut self, node: &Node, id: &SnapshotId) -> anyhow::Result<()> {
        let started = Instant::now();
        let elapsed = || started.elapsed().as_secs_f64() * 1e3;
        let created = node.create(CreateRequest::new(CreateFrom::Snapshot(id.clone()))).await;
        let (sandbox, _) = match created {
            Ok(created) => created,
            Err(error) => {
                self.confirmed.add(Err(domain::ErrorChain(&error)));
                return Ok(());
            }
        };
        self.confirmed.add(Ok::<_, anyhow::Error>(elapsed()));
        self.first_output.add(run(&sandbox, &["/bin/echo", "hi"]).await.map(|_| elapsed()));
        self.all_read.add(run(&sandbox, &["sha256sum", "/dev/shm/dirty"]).await.map(|_| elapsed()));
        sandbox.delete().await.context("delete a sandbox")
    }

    fn tell(&self, name: &str) {
        say(name);
        self.confirmed.tell("    identity confirmed");
        self.first_output.tell("    first command's output");
        self.all_read.tell("    everything it had changed is read");
    }
}

/// A snapshot that is in the archive and not here.
async fn archived(arguments: &Arguments, archive: &Path, changed_mib: usize) -> anyhow::Result<SnapshotId> {
    let node = open(arguments, archive, Memory::LazyMemory).await?;
    let spec = image::template::find(&arguments.template)
        .with_context(|| format!("there is no template {}", arguments.template))?;
    say(&format!("preparing template {}", spec.name));
    let template = node.template(&spec, &|_| {}).await.context("prepare the template")?;
    let (sandbox, _) = node.create(CreateRequest::new(CreateFrom::Snapshot(template))).await?;
    dirty(&sandbox, changed_mib).await?;
    let (snapshot, _) = node.snapshot(&sandbox).await?;
    sandbox.delete().await?;
    away(&node, &snapshot.id).await?;
    close_node(node).await;
    Ok(snapshot.id)
}

/// Returns when a snapshot is in the archive and not here.
async fn away(node: &Node, id: &SnapshotId) -> anyhow::Result<()> {
    let is_away = || {
        let mut all = node.snapshots().into_iter();
        all.any(|known| known.id == *id && known.place == SnapshotPlace::Archive)
    };
    let deadline = Instant::now() + ARCHIVE_TIMEOUT;
    while !is_away() {
        ensure!(Instant::now() < deadline, "the snapshot did not go into the archive in time");
        tokio::time::sleep(ARCHIVE_POLL).await;
    }
    Ok(())
}

/// Removes what earlier machines brought here, while there is no node.
fn forget(arguments: &Arguments, id: &SnapshotId) -> anyhow::Result<()> {
    let pool = arguments.data_dir.join("pool");
    let about = pool.join("archived").join(id.as_str());
    for path in [pool.join("chunks"), about.join("landed"), about.join("trace")] {
        let removed =
            if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).with_context(|| format!("remove {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    LazyMemory,
    First,
}

/// A node that keeps as little of archived snapshots as it can.
async fn open(arguments: &Arguments, archive: &Path, memory: Memory) -> anyhow::Result<Node> {
    let archive = ArchiveConfig {
        blobs: BlobsConfig::new(BlobAddress::Directory(archive.to_owned())),
        local_bytes_max: Some(0),
        cache_bytes_max: 8 << 30,
    };
    let change = |engine: Arc<dyn Engine>| -> Arc<dyn Engine> {
        if memory == Memory::First { Arc::new(MemoryFirst(engine)) } else { engine }
    };
    let opened = open_node(
        arguments,
        Kind { prestarted_vmms: PrestartedVmms::always(0), archive: Some(archive), change: &change },
    );
    let node = opened.await?.node;
    Ok(node)
}

/// An engine as on a host where memory cannot come on demand.
struct MemoryFirst(Arc<dyn Engine>);

#[async_trait]
impl Engine for MemoryFirst {
    fn fingerprint(&self) -> &EngineFingerprint {
        self.0.fingerprint()
    }

    async fn boot(&self, plan: BootPlan) -> Result<Arc<dyn Vm>, StartError> {
        self.0.boot(plan).await
    }

    async fn prepare(&self, plan: RestorePlan) -> Result<Box<dyn Prepared>, StartError> {
        self.0.prepare(plan).await
    }

    async fn attach(
        &self,
        record: &VmRecord,
        place: &Place,
        memory: Option<MemoryOrigin>,
    ) -> Result<Arc<dyn Vm>, AttachError> {
        self.0.attach(record, place, memory).await
    }
}
