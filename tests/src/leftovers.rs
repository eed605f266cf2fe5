//! Removes what a data directory owns on the host: machines, namespaces, firewall tables, mounts, files.
//!
//! By the directory's own tag, never by a broader name: other instances of this host are none of our business.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use machine::ProcessIdentity;
use os::kill_process;

use crate::{cache, census, command};

/// Who made a data directory; in a file beside it.
const OWNER: &str = "owner.json";
/// How long a machine process may take to end, and with it the last use of its files.
const END_TIMEOUT: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

static JANITOR: Mutex<Option<ChildStdin>> = Mutex::new(None);

/// Makes a directory that is removed, with all its data directory owns on the host, when this process ends in whatever way.
pub fn make_directory(name: &str) -> Result<PathBuf> {
    let cache = cache::directory()?;
    let name = format!("{name}-{}", std::process::id());
    // Made aside: a sweep must never see it without its owner.
    let (aside, path) = (cache.join("new").join(&name), cache.join("run").join(&name));
    fs::create_dir_all(&aside).with_context(|| format!("make {}", aside.display()))?;
    fs::create_dir_all(cache.join("run"))?;
    let owner = ProcessIdentity::of(std::process::id()).context("identify this process")?;
    fs::write(aside.join(OWNER), serde_json::to_vec(&owner)?).context("write down the owner")?;
    fs::rename(&aside, &path).with_context(|| format!("make {}", path.display()))?;
    tell_janitor(&path)?;
    Ok(path)
}

fn tell_janitor(path: &Path) -> Result<()> {
    let mut janitor = JANITOR.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if janitor.is_none() {
        *janitor = Some(start_janitor()?);
    }
    let pipe = janitor.as_mut().context("the janitor has no input")?;
    writeln!(pipe, "{}", path.display()).context("tell the janitor")?;
    pipe.flush().context("tell the janitor")
}

fn start_janitor() -> Result<ChildStdin> {
    use std::os::unix::process::CommandExt;
    let program = cache::build_directory()?.join("janitor");
    let log = fs::File::options().create(true).append(true).open(cache::directory()?.join("janitor.log"))?;
    let mut child = Command::new(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        // A terminal's interrupt is for the tests; the janitor ends when they have.
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {}", program.display()))?;
    child.stdin.take().context("the janitor has no input")
}

/// Removes everything that earlier runs left because their janitor was killed too.
pub fn sweep() -> Result<()> {
    let run = cache::directory()?.join("run");
    let Ok(entries) = fs::read_dir(&run) else { return Ok(()) };
    for entry in entries {
        let path = entry?.path();
        if !owner_lives(&path) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn owner_lives(path: &Path) -> bool {
    let owner = fs::read(path.join(OWNER)).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
    owner.is_some_and(|owner: ProcessIdentity| ProcessIdentity::of(owner.pid).is_ok_and(|now| now == owner))
}

/// Removes a data directory and all it owns. Safe to repeat.
pub fn remove(directory: &Path) -> Result<()> {
    // A janitor and the next run's sweep may want the same directory gone.
    let _turn = cache::lock(&cache::directory()?.join("cleaning.lock"))?;
    // First, because they would make new machines.
    end_all(&format!("servers of {}", directory.display()), || census::servers(directory))?;
    if let Some(tag) = census::tag(directory) {
        end_all(&format!("machines of {tag}"), || census::machines(&tag))?;
        machine::cgroup::clear(&tag).context("remove groups")?;
        for namespace in census::namespaces(&tag)? {
            command::run("/usr/sbin/ip", &["netns", "delete", &namespace])?;
        }
        let table = format!("pandastack_{tag}");
        // Absent is fine: a node that was closed has taken it along.
        drop(command::run("/usr/sbin/nft", &["delete", "table", "inet", &table]));
    }
    let pool = directory.join("pool");
    let deadline = Instant::now() + END_TIMEOUT;
    while census::mounts(directory)?.contains(&pool) {
        // A process that has just ended may still hold its files for a moment.
        match command::run("/usr/bin/umount", &[&pool]) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(POLL),
            outcome => drop(outcome?),
        }
    }
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("remove {}", directory.display()))
        }
        _ => Ok(()),
    }
}

/// Ends processes until there are none.
fn end_all(what: &str, find: impl Fn() -> Result<Vec<ProcessIdentity>>) -> Result<()> {
    let deadline = Instant::now() + END_TIMEOUT;
    loop {
        let found = find()?;
        if found.is_empty() {
            return Ok(());
        }
        anyhow::ensure!(Instant::now() < deadline, "{what} do not end");
        for process in found {
            kill_process(process)?;
        }
        std::thread::sleep(POLL);
    }
}

/// Signals to processes.
pub mod os {
    use anyhow::{Context, Result};
    use machine::ProcessIdentity;
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    /// Sends a signal to exactly this process; one that is gone is fine.
    pub fn signal_process(process: ProcessIdentity, signal: Signal) -> Result<()> {
        let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw).context("no such process id")?;
        let Ok(pidfd) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        if !ProcessIdentity::of(process.pid).is_ok_and(|now| now == process) {
            return Ok(());
        }
        match pidfd_send_signal(&pidfd, signal) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("signal process {}", process.pid)),
        }
    }

    /// Ends exactly this process.
    pub fn kill_process(process: ProcessIdentity) -> Result<()> {
        signal_process(process, Signal::KILL)
    }
}
