//! `pandastack backup` and `pandastack restore`: a whole data directory, elsewhere and back.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use node::backup::{self, BackupError, Contents, Running};
use storage::PoolConfig;

use crate::config::Settings;
use crate::engine::require_root;
use crate::output::{self, Format, Hinted, say};
use crate::table::size;

/// Options of `backup`.
#[derive(Debug, Args)]
pub(crate) struct BackupArguments {
    /// Where the backup goes: a directory that is not there yet.
    target: PathBuf,
    /// Take only the disks of sandboxes that run, as they would be after a loss of power. Their memory is not in the backup.
    #[arg(long)]
    skip_running: bool,
}

/// Options of `restore`.
#[derive(Debug, Args)]
pub(crate) struct RestoreArguments {
    /// The backup.
    source: PathBuf,
}

pub(crate) fn back_up(
    settings: &Settings,
    arguments: &BackupArguments,
    format: Format,
) -> anyhow::Result<ExitCode> {
    require_root("backup")?;
    let data_dir = &settings.node.data_dir;
    let target = std::path::absolute(&arguments.target)?;
    let running = if arguments.skip_running { Running::DiskOnly } else { Running::Refuse };
    let copy = |from: &Path, to: &Path| store::copy_database(from, to).map_err(Into::into);
    let contents = tokio::task::block_in_place(|| backup::back_up(data_dir, &target, running, &copy));
    let contents = contents.map_err(|error| explain(error, data_dir))?;
    for id in &contents.ran {
        say(format!("note: sandbox {id} ran: the backup holds its disk, not its memory"));
    }
    output::result(format, &contents, || summary("backed up", &contents, &target))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn restore(
    settings: &Settings,
    arguments: &RestoreArguments,
    format: Format,
) -> anyhow::Result<ExitCode> {
    require_root("restore")?;
    let data_dir = &settings.node.data_dir;
    let config = PoolConfig { size: settings.node.pool_size };
    let contents = tokio::task::block_in_place(|| backup::restore(&arguments.source, data_dir, &config));
    let contents = contents.map_err(|error| explain(error, data_dir))?;
    output::result(format, &contents, || summary("restored", &contents, data_dir))?;
    Ok(ExitCode::SUCCESS)
}

fn explain(error: BackupError, data_dir: &Path) -> anyhow::Error {
    let hint = match &error {
        BackupError::InUse(_) => Some(format!(
            "stop the server first, machines may sleep meanwhile: systemctl stop pandastack (data directory {})",
            data_dir.display()
        )),
        BackupError::Running { .. } => Some(
            "start the server and hibernate them (pandastack sandbox hibernate ID), then stop it; or take their disks only with \
             --skip-running"
                .to_owned(),
        ),
        BackupError::NoInstant { .. } => Some("hibernate it first: pandastack sandbox hibernate ID".to_owned()),
        BackupError::NotOurs { .. } => Some("name the data directory with --data-dir".to_owned()),
        BackupError::TargetExists { .. } => Some("name a directory that is not there yet".to_owned()),
        _ => None,
    };
    match hint {
        Some(hint) => Hinted { message: error.to_string(), hint: Some(hint) }.into(),
        None => error.into(),
    }
}

fn summary(done: &str, contents: &Contents, place: &Path) -> String {
    let Contents { hibernated, disk_only, files, bytes, .. } = contents;
    format!(
        "{done} {} sandboxes that sleep and {} with a disk only; {files} files, {}, in {}",
        hibernated.len(),
        disk_only.len(),
        size(*bytes),
        place.display()
    )
}
