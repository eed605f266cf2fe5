//! `pandastack snapshot`: instants that were kept.

use std::process::ExitCode;

use clap::Subcommand;

use crate::connection::Connection;
use crate::duration::since;
use crate::each::each;
use crate::output::{self, Format};
use crate::short_id::{short, width};
use crate::table::size;

/// What to do with snapshots.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// The snapshots there are, newest first.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack snapshot list --sandbox 0a1b2c3d")]
    List {
        /// Only those of this sandbox.
        #[arg(long)]
        sandbox: Option<String>,
        /// Whole ids.
        #[arg(long)]
        no_trunc: bool,
        /// Only the ids.
        #[arg(long, short)]
        quiet: bool,
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
        Command::List { sandbox, no_trunc, quiet } => {
            let snapshots = api.snapshots(sandbox.as_deref()).await?;
            if quiet {
                output::names(format, &snapshots, |one| one.id.clone())?;
                return Ok(ExitCode::SUCCESS);
            }
            let width = width(no_trunc, snapshots.iter().flat_map(|one| [one.id.as_str(), &one.sandbox_id]));
            output::list(format, &snapshots, ["ID", "SANDBOX", "TEMPLATE", "ON DISK", "AGE"], |one| {
                let (id, sandbox) = (short(&one.id, width), short(&one.sandbox_id, width));
                [id, sandbox, &one.template, &size(one.unique_bytes), &since(&one.created_at)]
                    .map(str::to_owned)
            })?;
        }
        Command::Get { id } => output::object(format, &api.snapshot_of_id(&id).await?)?,
        Command::Delete { ids } => {
            each("snapshots", &ids, async |id| api.delete_snapshot(id).await).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
