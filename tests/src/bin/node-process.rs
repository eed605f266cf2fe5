//! A node in a process of its own, to be killed: opens a data directory and does things for ever, writing one line of JSON
//! before each operation and one after it was answered. Suites kill it at any moment and look what the next one finds.
//!
//! Arguments: data directory, first address of its range, and what it does: `random SEED`, or `archive ADDRESS [SNAPSHOT]`. With an
//! archive it keeps that in step, and makes a sandbox of the snapshot if there is one. A bucket's settings are in its environment.

use std::io::Write;
use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use domain::{SnapshotId, VolumeId};
use network::AddressPool;
use node::{
    ArchiveConfig, AttachMode, CreateFrom, CreateRequest, Node, NodeConfig, NodeError, PrestartedVmms,
    SnapshotKind, VolumeAttachment,
};
use serde_json::{Value, json};
use storage::PoolSize;
use storage::blobs::BlobsConfig;

/// Sandboxes at a time; emulated guests on few cores.
const SANDBOXES_MAX: usize = 4;
/// How long a restored guest may take to confirm its identity.
const GUEST_TIMEOUT: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build();
    let outcome = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(work(&arguments)));
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(&json!({ "error": format!("{error:#}") }));
            ExitCode::from(1)
        }
    }
}

/// One line, whole or not at all: the reader may find us killed.
fn say(value: &Value) {
    let mut line = value.to_string();
    line.push('\n');
    drop(std::io::stdout().lock().write_all(line.as_bytes()));
}

/// A small generator: the seed makes a failing sequence repeatable.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % sides.max(1) as u64) as usize
    }
}

async fn work(arguments: &[String]) -> Result<()> {
    let [data_dir, range, work @ ..] = arguments else { bail!("no data directory and address range") };
    let mut config = NodeConfig::new(data_dir);
    config.pool_size = PoolSize::Bytes(8 << 30);
    config.addresses = AddressPool::new(range.parse::<Ipv4Addr>()?, 24)?;
    config.prestarted_vmms = PrestartedVmms::always(1);
    config.prestarted_networks = 1;
    config.guest_patience = tests::wait::scaled(GUEST_TIMEOUT);
    let words: Vec<&str> = work.iter().map(String::as_str).collect();
    match *words {
        ["random", seed] => {
            let node = open(config).await?;
            let mut dice = Dice(seed.parse::<u64>()? | 1);
            loop {
                step(&node, &mut dice).await?;
            }
        }
        ["archive", address, ref snapshot @ ..] => {
            let mut blobs = BlobsConfig::new(address.parse()?);
            blobs.environment = std::env::vars().filter(|(name, _)| name.starts_with("AWS_")).collect();
            config.archive =
                Some(ArchiveConfig { blobs, local_bytes_max: Some(0), cache_bytes_max: 1 << 30 });
            let node = open(config).await?;
            if let Some(snapshot) = snapshot.first() {
                create(&node, SnapshotId::parse(snapshot)?, false).await?;
            }
            std::future::pending().await
        }
        _ => bail!("{words:?} is nothing that can be done"),
    }
}

async fn open(config: NodeConfig) -> Result<Node> {
    let engine = tests::engine::engine()?;
    let node = Node::open(config, move |_| Ok(engine)).await.context("open the node")?;
    say(&json!({ "open": true }));
    Ok(node)
}

/// Makes a sandbox, every other one with a volume, and marks everything it has.
async fn create(node: &Node, template: SnapshotId, with_volume: bool) -> Result<()> {
    say(&json!({ "begin": "create" }));
    let mut request = CreateRequest::new(CreateFrom::Snapshot(template));
    let mut mark = "true".to_owned();
    if with_volume {
        let volume = VolumeId::parse(&format!("volume{}", node.volumes().list()?.len() + 1))?;
        match node.volumes().create(&volume, "mark", 16).await {
            Ok(_) | Err(NodeError::VolumeExists(_)) => {}
            Err(error) => bail!("make a volume: {error:?}"),
        }
        if node.volumes().get(&volume)?.attached_to.is_empty() {
            request.volumes.push(VolumeAttachment { volume, mode: AttachMode::ReadWrite, mount: None });
            mark = "mount /dev/vdb /mnt && cp /mine /mnt/mine".to_owned();
        }
    }
    let (sandbox, _) = node.create(request).await?;
    let id = sandbox.id().to_string();
    say(&json!({ "done": "create", "id": id }));
    // What the sandbox must hold from the moment the next line is out.
    let mark = format!("set -e; echo {id} > /mine; echo {id} > /run/mine; {mark}; sync");
    tests::guest::shell(&sandbox.link().await?, &mark).await?;
    say(&json!({ "done": "mark", "id": id }));
    Ok(())
}

async fn step(node: &Node, dice: &mut Dice) -> Result<()> {
    let sandboxes = node.sandboxes();
    let template =
        node.snapshots().into_iter().find(|info| matches!(info.about.purpose, SnapshotKind::Template { .. }));
    let template = template.context("the template is gone")?.id;
    if sandboxes.is_empty() || (sandboxes.len() < SANDBOXES_MAX && dice.roll(3) == 0) {
        return create(node, template, dice.roll(2) == 0).await;
    }
    let sandbox = &sandboxes[dice.roll(sandboxes.len())];
    let id = sandbox.id().to_string();
    let name = ["hibernate", "wake", "fork", "pause", "resume", "snapshot", "delete", "wake"][dice.roll(8)];
    say(&json!({ "begin": name, "id": id }));
    let outcome = match name {
        "hibernate" => sandbox.hibernate().await.map(drop),
        "wake" => sandbox.wake().await.map(drop),
        "pause" => sandbox.pause().await,
        "resume" => sandbox.resume().await,
        "delete" => sandbox.delete().await,
        "fork" if sandboxes.len() < SANDBOXES_MAX => match node.fork(sandbox, 1).await {
            Ok((children, _)) => {
                for child in children {
                    say(&json!({ "done": "create", "id": child?.id().to_string() }));
                }
                Ok(())
            }
            Err(error) => Err(error),
        },
        "snapshot" => match node.snapshot(sandbox).await {
            Ok((info, _)) => node.delete_snapshot(&info.id),
            Err(error) => Err(error),
        },
        _ => Ok(()),
    };
    match outcome {
        Ok(()) => say(&json!({ "done": name, "id": id, "phase": sandbox.state().record.phase })),
        // The rules forbid it in this phase, or for a sandbox that writes a volume: that is an answer too.
        Err(NodeError::Refused { .. } | NodeError::HasVolumes(_)) => {
            say(&json!({ "refused": name, "id": id }))
        }
        Err(error) => bail!("{name} of {id}: {error:?}"),
    }
    Ok(())
}
