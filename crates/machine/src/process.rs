//! A machine process, held by a file descriptor that cannot come to mean another process.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use serde::{Deserialize, Serialize};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::cgroup::{self, Group};
use crate::engine::{Place, StartError};
use crate::jail::Jail;

/// How long an ended process may take to leave after SIGKILL before we stop waiting and say so.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// How far a machine process steps back behind others once its guest has answered: to a ninth of the processor time that one gets which
/// somebody waits for.
const NICE: i32 = 10;

/// A process id together with its start time: the pair names one process for as long as the host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessIdentity {
    /// Process id on the host.
    pub pid: u32,
    /// Start time in clock ticks since the host booted.
    pub started_ticks: u64,
}

impl ProcessIdentity {
    /// Reads the identity of a process that exists now.
    pub fn of(pid: u32) -> io::Result<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // The second field is the program's name in parentheses and may itself hold spaces and parentheses.
        let after_name = stat.rsplit_once(')').map(|(_, rest)| rest).unwrap_or_default();
        let started_ticks = after_name
            .split_ascii_whitespace()
            .nth(19)
            .and_then(|field| field.parse().ok())
            .ok_or_else(|| io::Error::other("unreadable process status"))?;
        Ok(Self { pid, started_ticks })
    }
}

/// A live or ended process that we may signal and wait for.
#[derive(Debug)]
pub struct VmProcess {
    identity: ProcessIdentity,
    pidfd: AsyncFd<OwnedFd>,
    /// The group it is in, which goes with it.
    group: Option<Group>,
}

impl VmProcess {
    /// Opens the process named by `identity`; `None` when it no longer exists.
    pub fn open(identity: ProcessIdentity) -> io::Result<Option<Self>> {
        let Some(pid) = Pid::from_raw(identity.pid as i32) else { return Ok(None) };
        let pidfd = match pidfd_open(pid, PidfdFlags::NONBLOCK) {
            Ok(pidfd) => pidfd,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // Compared after opening: from here on the descriptor means this process and no later one with its number.
        match ProcessIdentity::of(identity.pid) {
            Ok(found) if found == identity => Self::from_pidfd(identity, pidfd).map(Some),
            _ => Ok(None),
        }
    }

    #[allow(unsafe_code)]
    fn from_pidfd(identity: ProcessIdentity, pidfd: OwnedFd) -> io::Result<Self> {
        // SAFETY: `OwnedFd` always returns the one descriptor it owns and closes it only when dropped, which the `AsyncFd` does.
        let pidfd = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE)? };
        Ok(Self { identity, pidfd, group: None })
    }

    /// Starts a program in its jail and in its group, which is removed when that fails and otherwise with the process.
    pub(crate) fn start(jail: &Jail<'_>, group: Option<Group>) -> Result<Self, StartError> {
        let started = jail.spawn(group.as_ref().map(AsFd::as_fd));
        let started = started.map_err(StartError::Jail).and_then(|spawned| {
            Self::from_pidfd(spawned.identity, spawned.pidfd)
                .map_err(|source| StartError::Host { action: "watch the machine process", source })
        });
        match started {
            Ok(process) => Ok(Self { group, ..process }),
            Err(error) => {
                if let Some(group) = group {
                    group.remove_blocking();
                }
                Err(error)
            }
        }
    }

    /// The machine process that an earlier node process started there; `None` when it no longer exists.
    pub(crate) fn attach(identity: ProcessIdentity, place: &Place) -> io::Result<Option<Self>> {
        let process = Self::open(identity)?;
        Ok(process.map(|process| Self { group: cgroup::find(&place.instance, &place.name), ..process }))
    }

    /// Which process this is.
    pub fn identity(&self) -> ProcessIdentity {
        self.identity
    }

    /// Lets processes that somebody waits for go first: creating a sandbox, or answering for one, does not take longer because others
    /// compute. Where it cannot be done all of them count the same.
    pub(crate) fn deprioritize(&self) {
        // What follows goes by number, and that of a process that has ended may be somebody else's.
        if !self.is_alive() {
            return;
        }
        if let Some(group) = &self.group
            && group.deprioritize()
        {
            return;
        }
        let pid = self.identity.pid;
        // All of its threads: it is alone in its process group, which the jail made for it.
        let outcome = rustix::process::setpriority_pgrp(Pid::from_raw(pid as i32), NICE);
        // Where the kernel puts each session into a group of its own, that group counts instead.
        let session = fs::write(format!("/proc/{pid}/autogroup"), NICE.to_string());
        match session {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::debug!(pid, %error, "a machine process does not step back");
            }
            _ => {}
        }
        if let Err(error) = outcome {
            tracing::debug!(pid, %error, "a machine process does not step back");
        }
    }

    /// Whether it has not ended yet.
    pub fn is_alive(&self) -> bool {
        pidfd_send_signal(&self.pidfd, Signal::from_named_raw(0).unwrap_or(Signal::URG)).is_ok()
            && !self.has_ended()
    }

    fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let mut polled = [PollFd::new(&self.pidfd, PollFlags::IN)];
        matches!(poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(1..))
    }

    /// Completes when the process has ended, and takes its exit status where it is our child.
    pub async fn ended(&self) -> String {
        while !self.has_ended() {
            match self.pidfd.readable().await {
                Ok(mut guard) if !self.has_ended() => guard.clear_ready(),
                Ok(_) => break,
                Err(error) => return format!("could not be watched: {error}"),
            }
        }
        let status = self.reap();
        self.remove_group().await;
        status
    }

    async fn remove_group(&self) {
        if let Some(group) = &self.group {
            group.remove().await;
        }
    }

    fn reap(&self) -> String {
        let waited = waitid(
            rustix::process::WaitId::PidFd(self.as_fd()),
            WaitIdOptions::EXITED | WaitIdOptions::NOHANG,
        );
        match waited {
            Ok(Some(status)) => match (status.exit_status(), status.terminating_signal()) {
                (Some(code), _) => format!("exit status {code}"),
                (None, Some(signal)) => format!("signal {signal}"),
                (None, None) => "ended".to_owned(),
            },
            // Started by an earlier node process: the host's init took its status.
            _ => "ended".to_owned(),
        }
    }

    /// Ends the process from where nothing can be awaited; returns when it is gone. It has no guest yet, so that takes no time.
    pub(crate) fn kill_blocking(&self) {
        if pidfd_send_signal(&self.pidfd, Signal::KILL).is_ok() {
            // An error means that somebody else has taken its exit status.
            let _status = waitid(rustix::process::WaitId::PidFd(self.as_fd()), WaitIdOptions::EXITED);
        }
        if let Some(group) = &self.group {
            group.remove_blocking();
        }
    }

    /// Sends SIGKILL and waits until the process is gone.
    pub async fn kill(&self) {
        // An error means that it is gone already.
        if pidfd_send_signal(&self.pidfd, Signal::KILL).is_ok()
            && tokio::time::timeout(KILL_TIMEOUT, self.ended()).await.is_err()
        {
            tracing::error!(pid = self.identity.pid, "machine process {} does not end", self.identity.pid);
            return;
        }
        self.reap();
        self.remove_group().await;
    }
}

impl AsFd for VmProcess {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.pidfd.get_ref().as_fd()
    }
}

impl AsRawFd for VmProcess {
    fn as_raw_fd(&self) -> i32 {
        self.pidfd.as_raw_fd()
    }
}
