//! `pandastack snapshot`: instants that were kept.

use std::process::ExitCode;

use clap::Subcommand;

use crate::connection::Connection;
use crate::output::{self, Format};
use crate::table::{fields, size, table};

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The snapshots there are, newest first.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack snapshot list --sandbox 0a1b2c3d")]
    List {
        /// Only those of this sandbox.
        #[arg(long)]
        sandbox: Option<String>,
    },
    /// One snapshot.
    #[command(after_help = "Example:\n  pandastack snapshot get 0a1b2c3d")]
    Get {
        /// The snapshot.
        id: String,
    },
    /// Delete snapshots. Sandboxes made from them are not touched.
    #[command(visible_alias = "rm", after_help = "Example:\n  pandastack snapshot delete 0a1b2c3d")]
    Delete {
        /// The snapshots.
        #[arg(required = true)]
        ids: Vec<String>,
    },
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let api = connection.api()?;
    match command {
        Command::List { sandbox } => {
            let snapshots = api.snapshots(sandbox.as_deref()).await?;
            output::result(format, &snapshots, || {
                let row = |one: &contract::snapshot::Snapshot| {
                    let bytes = size(one.unique_bytes);
                    [
                        one.id.clone(),
                        one.sandbox_id.clone(),
                        one.template.clone(),
                        bytes,
                        one.created_at.clone(),
                    ]
                };
                let rows: Vec<_> = snapshots.iter().map(row).collect();
                table(["ID", "SANDBOX", "TEMPLATE", "ON DISK", "CREATED"], &rows)
            })?;
        }
        Command::Get { id } => {
            let snapshot = api.snapshot_of_id(&id).await?;
            output::result(format, &snapshot, || fields(&snapshot))?;
        }
        Command::Delete { ids } => {
            for id in ids {
                api.delete_snapshot(&id).await?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
