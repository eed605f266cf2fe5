//! `pandastack uninstall`: removes a data directory and everything that it owns on this host.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use clap::Args;
use node::{Files, Removal, UninstallError, uninstall};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use storage::{DataDir, LockError};

use crate::config::Settings;
use crate::engine::require_root;
use crate::output::{self, Format, Hinted, say};

/// How long a server gets to stop: it waits for what is under way.
const STOP_TIMEOUT: Duration = Duration::from_secs(90);
const STOP_POLL: Duration = Duration::from_millis(50);

/// Options of `uninstall`.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Do not ask.
    #[arg(long, short)]
    yes: bool,
    /// Leave the files: end machines and remove networks and mounts only.
    #[arg(long)]
    keep_data: bool,
    /// Stop the server that uses the data directory first.
    #[arg(long)]
    stop: bool,
}

pub(crate) async fn run(
    settings: &Settings,
    arguments: &Arguments,
    format: Format,
) -> anyhow::Result<ExitCode> {
    require_root("uninstall")?;
    let data_dir = &settings.node.data_dir;
    let files = if arguments.keep_data { Files::Keep } else { Files::Remove };
    let holder = holder(data_dir)?;
    if let (Some(pid), false) = (holder, arguments.stop) {
        bail!(Hinted {
            message: format!("the data directory {} is in use by process {pid}", data_dir.display()),
            hint: Some("stop the server first (systemctl stop pandastack), or add --stop".to_owned()),
        });
    }
    if !arguments.yes && !agreed(data_dir, files)? {
        say("nothing was removed");
        return Ok(ExitCode::from(1));
    }
    if let Some(pid) = holder {
        stop(data_dir, pid)?;
    }
    let removal = uninstall(data_dir, files).await.map_err(explain)?;
    output::result(format, &removal, || census(&removal, data_dir))?;
    Ok(ExitCode::SUCCESS)
}

fn explain(error: UninstallError) -> anyhow::Error {
    let hint = match &error {
        UninstallError::InUse(_) => Some("stop the server first, or add --stop"),
        UninstallError::NotOurs { .. } => Some("name the data directory with --data-dir"),
        _ => None,
    };
    match hint {
        Some(hint) => Hinted { message: error.to_string(), hint: Some(hint.to_owned()) }.into(),
        None => anyhow::Error::new(error).context("uninstall"),
    }
}

/// The process that has the data directory.
fn holder(data_dir: &Path) -> anyhow::Result<Option<u32>> {
    if !data_dir.join("lock").exists() {
        return Ok(None);
    }
    match DataDir::lock(data_dir) {
        Ok(_) => Ok(None),
        Err(LockError::DataDirInUse { pid: Some(pid), .. }) => Ok(Some(pid)),
        Err(error) => Err(error).context("look who uses the data directory"),
    }
}

/// Tells a server to stop and waits until it has.
fn stop(data_dir: &Path, pid: u32) -> anyhow::Result<()> {
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).context("no such process")?;
    let process = pidfd_open(raw, PidfdFlags::empty()).context("find the server")?;
    // The descriptor means this process from here on: it is the holder if it is still the holder now.
    ensure!(holder(data_dir)?.is_none_or(|now| now == pid), "the server was replaced by another");
    say(format!("stopping process {pid}"));
    match pidfd_send_signal(&process, Signal::TERM) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(error).context("stop the server"),
    }
    let deadline = Instant::now() + STOP_TIMEOUT;
    while holder(data_dir)?.is_some() {
        ensure!(Instant::now() < deadline, "process {pid} did not stop within {} s", STOP_TIMEOUT.as_secs());
        std::thread::sleep(STOP_POLL);
    }
    Ok(())
}

fn agreed(data_dir: &Path, files: Files) -> anyhow::Result<bool> {
    let what = match files {
        Files::Remove => "all its sandboxes, snapshots and volumes",
        Files::Keep => "its running machines (files stay)",
    };
    if !io::stdin().is_terminal() {
        bail!(Hinted {
            message: format!("this removes {} with {what}", data_dir.display()),
            hint: Some("add --yes to agree without a terminal".to_owned()),
        });
    }
    let mut stderr = io::stderr();
    write!(stderr, "Remove {} with {what}? [y/N] ", data_dir.display())?;
    stderr.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).context("read the answer")?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// What was removed, for people.
pub(crate) fn census(removal: &Removal, data_dir: &Path) -> String {
    if removal.is_empty() {
        return format!("nothing of {} was there", data_dir.display());
    }
    let mut lines = vec![format!("removed {}", counts(removal))];
    lines.extend(
        removal
            .directories
            .iter()
            .filter(|_| removal.left.is_empty())
            .map(|path| format!("removed {}", path.display())),
    );
    lines.extend(removal.left.iter().map(|path| format!("left {}: it is not PandaStack's", path.display())));
    lines.join("\n")
}

pub(crate) fn counts(removal: &Removal) -> String {
    let count =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    [
        count(removal.machines, "machine", "machines"),
        count(removal.networks, "network namespace", "network namespaces"),
        count(removal.tables, "firewall table", "firewall tables"),
        count(removal.mounts, "mount", "mounts"),
        count(removal.loop_devices, "loop device", "loop devices"),
    ]
    .join(", ")
}
