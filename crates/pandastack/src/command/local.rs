//! `pandastack local`: this host's sandboxes, without a server.
//!
//! Every call opens the node anew, so every call also proves that running machines are found and taken charge of again.

use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use domain::{SandboxId, SnapshotId};
use guest_link::client::ExecLimits;
use guest_link::message::ProcessSpec;
use node::{CreateFrom, CreateRequest, Node, PrestartedVmms, Sandbox, SnapshotPlace};
use serde_json::json;

use crate::command::template;
use crate::config::Settings;
use crate::duration::age_of;
use crate::engine::open_node;
use crate::output::{self, Format, Hinted};
use crate::short_id::{short, width};
use crate::table::{size, table};

/// Most output of one command that is kept.
const OUTPUT_BYTES_MAX: usize = 16 << 20;

/// Shortest beginning of an id that is looked for.
const PREFIX_LENGTH_MIN: usize = 4;

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
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack local list")]
    List(Shown),
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
    Snapshots(Shown),
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

/// How a list is shown.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Shown {
    /// Whole ids.
    #[arg(long)]
    no_trunc: bool,
    /// Only the ids.
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) async fn run(settings: &Settings, command: Command, format: Format) -> anyhow::Result<ExitCode> {
    let mut settings = settings.clone();
    // A call that ends at once has no use for what is made ahead of need.
    settings.node.prestarted_vmms = PrestartedVmms::always(0);
    settings.node.prestarted_networks = 0;
    let node = open_node(&settings).await?;
    let outcome = perform(&node, command, format).await;
    node.close().await;
    outcome
}

async fn perform(node: &Node, command: Command, format: Format) -> anyhow::Result<ExitCode> {
    match command {
        Command::Create { template, snapshot } => {
            let snapshot = match snapshot {
                Some(snapshot) => the_snapshot(node, snapshot)?,
                None => template::bake(node, &template).await?,
            };
            let request = CreateRequest::new(CreateFrom::Snapshot(snapshot));
            let (sandbox, timings) = node.create(request).await.context("create a sandbox")?;
            let value = json!({ "id": sandbox.id(), "timings": timings });
            output::result(format, &value, || sandbox.id().to_string())?;
        }
        Command::List(shown) => list(node, shown, format)?,
        Command::Exec { id, command } => return exec(node, &id, command).await,
        Command::Fork { id, count } => fork(node, &id, count, format).await?,
        Command::Snapshot { id } => {
            let (info, timings) = node.snapshot(&the_sandbox(node, &id)?).await.context("take a snapshot")?;
            output::result(format, &json!({ "snapshot": info, "timings": timings }), || info.id.to_string())?;
        }
        Command::Snapshots(shown) => {
            let snapshots = node.snapshots();
            if shown.quiet {
                output::names(format, &snapshots, |one| one.id.to_string())?;
                return Ok(ExitCode::SUCCESS);
            }
            let width = width(shown.no_trunc, snapshots.iter().map(|one| one.id.as_str()));
            output::list(format, &snapshots, ["ID", "TEMPLATE", "ON DISK", "KEPT"], |one| {
                let (id, template) = (short(one.id.as_str(), width), one.about.template.as_str());
                [id, template, &size(one.unique_bytes), place(one.place)].map(str::to_owned)
            })?;
        }
        Command::DeleteSnapshot { id } => node.delete_snapshot(&the_snapshot(node, id)?)?,
        Command::Pause { id } => the_sandbox(node, &id)?.pause().await?,
        Command::Resume { id } => the_sandbox(node, &id)?.resume().await?,
        Command::Hibernate { id } => {
            let timings = the_sandbox(node, &id)?.hibernate().await.context("hibernate")?;
            output::result(format, &timings, String::new)?;
        }
        Command::Wake { id } => the_sandbox(node, &id)?.wake().await.map(drop).context("wake")?,
        Command::StartCold { id } => the_sandbox(node, &id)?.start_cold().await.context("start from disk")?,
        Command::Delete { ids } => {
            for id in ids {
                the_sandbox(node, &id)?.delete().await.with_context(|| format!("delete {id}"))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The sandbox of an id, or of the beginning of one.
fn the_sandbox(node: &Node, id: &SandboxId) -> anyhow::Result<Sandbox> {
    let ids: Vec<_> = node.sandboxes().iter().map(|sandbox| sandbox.id().to_string()).collect();
    let whole = beginning_with(id.as_str(), &ids, "sandboxes")?;
    Ok(node.sandbox(&whole.map_or_else(|| Ok(id.clone()), SandboxId::parse)?)?)
}

/// The snapshot of an id, or of the beginning of one.
fn the_snapshot(node: &Node, id: SnapshotId) -> anyhow::Result<SnapshotId> {
    let ids: Vec<_> = node.snapshots().iter().map(|snapshot| snapshot.id.to_string()).collect();
    let whole = beginning_with(id.as_str(), &ids, "snapshots")?;
    Ok(whole.map_or(Ok(id), SnapshotId::parse)?)
}

/// The only id that begins so; nothing where none does. As with a server, a beginning has four characters at least.
fn beginning_with<'a>(text: &str, ids: &'a [String], what: &str) -> anyhow::Result<Option<&'a str>> {
    if ids.iter().any(|id| id == text) || text.len() < PREFIX_LENGTH_MIN {
        return Ok(None);
    }
    let found: Vec<&str> = ids.iter().map(String::as_str).filter(|id| id.starts_with(text)).collect();
    if found.len() > 1 {
        bail!(Hinted {
            message: format!("{text} fits several {what}; give more of the id"),
            hint: Some(format!("they are {}", found.join(", "))),
        });
    }
    Ok(found.first().copied())
}

fn list(node: &Node, shown: Shown, format: Format) -> anyhow::Result<()> {
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
        if shown.quiet {
            return records.iter().map(|record| format!("{}\n", record.id)).collect();
        }
        let width = width(shown.no_trunc, records.iter().map(|record| record.id.as_str()));
        let row = |record: &std::sync::Arc<node::SandboxRecord>| {
            let phase = format!("{:?}", record.phase).to_lowercase();
            let age = age_of(record.created_unix_ms);
            [short(record.id.as_str(), width).to_owned(), record.template.to_string(), phase, age]
        };
        table(["ID", "TEMPLATE", "STATUS", "AGE"], &records.iter().map(row).collect::<Vec<_>>())
    })?;
    Ok(())
}

async fn fork(node: &Node, id: &SandboxId, count: usize, format: Format) -> anyhow::Result<()> {
    let (children, timings) = node.fork(&the_sandbox(node, id)?, count).await.context("fork")?;
    let mut made: Vec<Sandbox> = Vec::new();
    for child in children {
        made.push(child.context("make a child")?);
    }
    let ids: Vec<_> = made.iter().map(|child| child.id().to_string()).collect();
    output::result(format, &json!({ "children": ids, "timings": timings }), || ids.join("\n"))?;
    Ok(())
}

async fn exec(node: &Node, id: &SandboxId, command: Vec<String>) -> anyhow::Result<ExitCode> {
    let link = the_sandbox(node, id)?.link().await.context("reach the guest")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_an_id_is_enough() {
        let ids = ["abcdefgh", "abcdexyz", "bcdefghi"].map(str::to_owned);
        let found = |text| beginning_with(text, &ids, "sandboxes").unwrap();
        assert_eq!(found("abcdef"), Some("abcdefgh"));
        assert_eq!(found("bcde"), Some("bcdefghi"));
        // The node says of these what there is to say.
        for text in ["abcdefgh", "bcd", "zzzz"] {
            assert_eq!(found(text), None, "{text}");
        }
        let error = beginning_with("abcd", &ids, "sandboxes").unwrap_err();
        let hinted = error.downcast_ref::<Hinted>().unwrap();
        assert_eq!(hinted.message, "abcd fits several sandboxes; give more of the id");
        assert_eq!(hinted.hint.as_deref(), Some("they are abcdefgh, abcdexyz"));
    }
}
