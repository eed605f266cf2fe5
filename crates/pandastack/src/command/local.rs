//! `pandastack local`: this host's sandboxes, without a server.
//!
//! Every call opens the node anew, so every call also proves that running machines are found and taken charge of again.

use std::process::ExitCode;

use anyhow::Context;
use clap::Subcommand;
use domain::{SandboxId, SnapshotId};
use guest_link::client::ExecLimits;
use guest_link::message::ProcessSpec;
use node::{CreateFrom, CreateRequest, MachinesWaiting, Node, Sandbox, SnapshotPlace};
use serde_json::json;

use crate::command::template;
use crate::config::Settings;
use crate::engine::open_node;
use crate::output::{self, Format};

/// Most output of one command that is kept.
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a sandbox from a template, or from a snapshot.
    #[command(after_help = "Example:\n  pandastack local create --template base")]
    Create {
        /// The template.
        #[arg(long, default_value = "base", conflicts_with = "snapshot")]
        template: String,
        /// The snapshot.
        #[arg(long)]
        snapshot: Option<SnapshotId>,
    },
    /// The sandboxes of this host.
    #[command(after_help = "Example:\n  pandastack local list")]
    List,
    /// Run a command in a sandbox; ends with the command's exit code.
    #[command(after_help = "Example:\n  pandastack local exec 0a1b2c3d -- uname -a")]
    Exec {
        /// The sandbox.
        id: SandboxId,
        /// The program and its arguments.
        #[arg(trailing_var_arg = true, required = true)]
        command: Vec<String>,
    },
    /// Make sandboxes that go on from this instant of another.
    #[command(after_help = "Example:\n  pandastack local fork 0a1b2c3d --count 2")]
    Fork {
        /// The sandbox.
        id: SandboxId,
        /// How many.
        #[arg(long, default_value_t = 1)]
        count: usize,
    },
    /// Keep an instant of a sandbox.
    #[command(after_help = "Example:\n  pandastack local snapshot 0a1b2c3d")]
    Snapshot {
        /// The sandbox.
        id: SandboxId,
    },
    /// The snapshots of this host.
    #[command(after_help = "Example:\n  pandastack local snapshots")]
    Snapshots,
    /// Delete a snapshot.
    #[command(after_help = "Example:\n  pandastack local delete-snapshot 0a1b2c3d")]
    DeleteSnapshot {
        /// The snapshot.
        id: SnapshotId,
    },
    /// Stop a sandbox's CPUs.
    #[command(after_help = "Example:\n  pandastack local pause 0a1b2c3d")]
    Pause {
        /// The sandbox.
        id: SandboxId,
    },
    /// Let a paused sandbox go on.
    #[command(after_help = "Example:\n  pandastack local resume 0a1b2c3d")]
    Resume {
        /// The sandbox.
        id: SandboxId,
    },
    /// Save a sandbox's memory and end its machine.
    #[command(after_help = "Example:\n  pandastack local hibernate 0a1b2c3d")]
    Hibernate {
        /// The sandbox.
        id: SandboxId,
    },
    /// Bring a sandbox back.
    #[command(after_help = "Example:\n  pandastack local wake 0a1b2c3d")]
    Wake {
        /// The sandbox.
        id: SandboxId,
    },
    /// Boot a sandbox from its disk: its memory is lost, its files are not.
    #[command(after_help = "Example:\n  pandastack local start-cold 0a1b2c3d")]
    StartCold {
        /// The sandbox.
        id: SandboxId,
    },
    /// Remove sandboxes.
    #[command(after_help = "Example:\n  pandastack local delete 0a1b2c3d")]
    Delete {
        /// The sandboxes.
        #[arg(required = true)]
        ids: Vec<SandboxId>,
    },
}

pub(crate) async fn run(settings: &Settings, command: Command, format: Format) -> anyhow::Result<ExitCode> {
    let mut settings = settings.clone();
    // A call that ends at once has no use for what is made ahead of need.
    settings.node.machines_waiting = MachinesWaiting::always(0);
    settings.node.networks_prepared = 0;
    let node = open_node(&settings).await?;
    let outcome = perform(&node, command, format).await;
    node.close().await;
    outcome
}

async fn perform(node: &Node, command: Command, format: Format) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create { template, snapshot } => {
            let snapshot = match snapshot {
                Some(snapshot) => snapshot,
                None => template::bake(node, &template).await?,
            };
            let request = CreateRequest::new(CreateFrom::Snapshot(snapshot));
            let (sandbox, timings) = node.create(request).await.context("create a sandbox")?;
            let value = json!({ "id": sandbox.id(), "timings": timings });
            output::result(format, &value, || sandbox.id().to_string())?;
        }
        Command::List => list(node, format)?,
        Command::Exec { id, command } => return exec(node, &id, command).await,
        Command::Fork { id, count } => fork(node, &id, count, format).await?,
        Command::Snapshot { id } => {
            let (info, timings) = node.snapshot(&node.sandbox(&id)?).await.context("take a snapshot")?;
            output::result(format, &json!({ "snapshot": info, "timings": timings }), || info.id.to_string())?;
        }
        Command::Snapshots => {
            let snapshots = node.snapshots();
            output::result(format, &snapshots, || {
                let line = |info: &node::SnapshotInfo| {
                    format!(
                        "{}  {:<20} {:>12} bytes  {}",
                        info.id,
                        info.about.template.as_str(),
                        info.unique_bytes,
                        place(info.place)
                    )
                };
                snapshots.iter().map(line).collect::<Vec<_>>().join("\n")
            })?;
        }
        Command::DeleteSnapshot { id } => node.delete_snapshot(&id)?,
        Command::Pause { id } => node.sandbox(&id)?.pause().await?,
        Command::Resume { id } => node.sandbox(&id)?.resume().await?,
        Command::Hibernate { id } => {
            let timings = node.sandbox(&id)?.hibernate().await.context("hibernate")?;
            output::result(format, &timings, String::new)?;
        }
        Command::Wake { id } => node.sandbox(&id)?.wake().await.map(drop).context("wake")?,
        Command::StartCold { id } => node.sandbox(&id)?.start_cold().await.context("start from disk")?,
        Command::Delete { ids } => {
            for id in ids {
                node.sandbox(&id)?.delete().await.with_context(|| format!("delete {id}"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(node: &Node, format: Format) -> anyhow::Result<()> {
    let records: Vec<_> = node.sandboxes().iter().map(|sandbox| sandbox.state().record).collect();
    // Not the record itself: it also holds what the sandbox's private key is derived from.
    let value = |record: &node::SandboxRecord| {
        json!({
            "id": record.id,
            "phase": record.phase,
            "template": record.template,
            "origin": record.origin,
            "shape": record.shape,
            "created_unix_ms": record.created_unix_ms,
            "died": record.died,
        })
    };
    let values: Vec<_> = records.iter().map(|record| value(record)).collect();
    output::result(format, &values, || {
        let line = |record: &std::sync::Arc<node::SandboxRecord>| {
            format!("{}  {:<12} {}", record.id, format!("{:?}", record.phase).to_lowercase(), record.template)
        };
        records.iter().map(line).collect::<Vec<_>>().join("\n")
    })?;
    Ok(())
}

async fn fork(node: &Node, id: &SandboxId, count: usize, format: Format) -> anyhow::Result<()> {
    let (children, timings) = node.fork(&node.sandbox(id)?, count).await.context("fork")?;
    let mut made: Vec<Sandbox> = Vec::new();
    for child in children {
        made.push(child.context("make a child")?);
    }
    let ids: Vec<_> = made.iter().map(|child| child.id().to_string()).collect();
    output::result(format, &json!({ "children": ids, "timings": timings }), || ids.join("\n"))?;
    Ok(())
}

async fn exec(node: &Node, id: &SandboxId, command: Vec<String>) -> anyhow::Result<ExitCode> {
    let link = node.sandbox(id)?.link().await.context("reach the guest")?;
    let limits = ExecLimits { stdout_bytes_max: OUTPUT_BYTES_MAX, stderr_bytes_max: OUTPUT_BYTES_MAX };
    let output = link.exec(ProcessSpec::argv(command), b"", limits).await.context("run the command")?;
    use std::io::Write;
    std::io::stdout().write_all(&output.stdout)?;
    std::io::stderr().write_all(&output.stderr)?;
    Ok(ExitCode::from(u8::try_from(output.exit.status.shell_code()).unwrap_or(255)))
}

fn place(place: SnapshotPlace) -> &'static str {
    match place {
        SnapshotPlace::Local => "here",
        SnapshotPlace::Both => "here and in the archive",
        SnapshotPlace::Archive => "in the archive",
    }
}
