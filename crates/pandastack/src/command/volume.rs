//! `pandastack volume`: disks that outlive sandboxes.

use std::process::ExitCode;

use clap::Subcommand;
use contract::volume::{CreateVolume, PatchVolume, Volume};

use crate::amount;
use crate::connection::Connection;
use crate::duration::since;
use crate::each::each;
use crate::output::{self, Format};
use crate::short_id::{short, width};
use crate::table::size;

/// What to do with volumes.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a volume.
    #[command(after_help = "Example:\n  pandastack volume create data --size 1g")]
    Create {
        /// Its name.
        name: String,
        /// Its size, such as 512m, 2g or 1024 (MiB) [default: 256].
        #[arg(long, alias = "size-mb", value_name = "SIZE", value_parser = amount::mib, allow_negative_numbers = true)]
        size: Option<i64>,
    },
    /// The volumes there are.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack volume list")]
    List {
        /// Whole ids of sandboxes.
        #[arg(long)]
        no_trunc: bool,
        /// Only the names.
        #[arg(long, short)]
        quiet: bool,
    },
    /// One volume.
    #[command(after_help = "Example:\n  pandastack volume get data")]
    Get {
        /// The volume.
        name: String,
    },
    /// Make a volume larger.
    #[command(after_help = "Example:\n  pandastack volume resize data --size 4g")]
    Resize {
        /// The volume.
        name: String,
        /// Its new size, such as 2g or 2048 (MiB).
        #[arg(long, alias = "size-mb", value_name = "SIZE", value_parser = amount::mib, allow_negative_numbers = true)]
        size: i64,
    },
    /// Delete volumes and everything on them.
    #[command(visible_alias = "rm", after_help = "Example:\n  pandastack volume delete data")]
    Delete {
        /// The volumes.
        #[arg(required = true)]
        names: Vec<String>,
    },
}

pub(crate) async fn run(
    connection: &Connection,
    command: Command,
    format: Format,
) -> anyhow::Result<ExitCode> {
    let api = connection.api()?;
    let show = |volume: &Volume| output::object(format, volume);
    match command {
        Command::Create { name, size } => {
            show(&api.create_volume(&CreateVolume { name, size_mb: size }).await?)?
        }
        Command::Get { name } => show(&api.volume(&name).await?)?,
        Command::Resize { name, size: mib } => {
            show(&api.patch_volume(&name, &PatchVolume { size_mb: Some(mib) }).await?)?;
        }
        Command::List { quiet: true, .. } => {
            output::names(format, &api.volumes().await?, |one| one.name.clone())?;
        }
        Command::List { quiet: false, no_trunc } => {
            let headings = ["NAME", "SIZE", "ON DISK", "ATTACHED TO", "AGE"];
            let volumes = api.volumes().await?;
            let width = width(no_trunc, volumes.iter().flat_map(|one| &one.attached_to).map(String::as_str));
            output::list(format, &volumes, headings, |one| {
                let attached: Vec<_> = one.attached_to.iter().map(|id| short(id, width)).collect();
                let (name, age) = (one.name.clone(), since(&one.created_at));
                [name, size(one.size_bytes), size(one.used_bytes), attached.join(", "), age]
            })?;
        }
        Command::Delete { names } => {
            each("volumes", &names, async |name| api.delete_volume(name).await).await?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
