//! Processes that belong to a connection: when the connection goes, they go.

use std::time::Duration;

use contract::process::SignalName;
use guest_link::client::{CallError, Link, Process, ProcessEvent, ProcessInput};
use guest_link::message::{Offsets, ProcessId, SignalScope, TerminalSize};
use tokio::runtime::Handle;
use tokio_util::task::task_tracker::TrackedFuture;

use crate::access::InUse;
use crate::control::Control;
use crate::error::ControlError;
use crate::network_hint::NetworkHint;

const HANG_UP: i32 = 1;
const KILL: i32 = 9;
const TERMINATE: i32 = 15;
const CONTINUE: i32 = 18;
/// How long a process gets between being asked to end and being killed.
const LEAVE_TO_END: Duration = Duration::from_secs(5);

/// How a process is told that nobody attends to it any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDisconnect {
    /// As when a modem hangs up: shells pass it on to their jobs. One that ignores it is killed.
    HangUp,
    /// Asked to end, then killed.
    Terminate,
    /// Killed. One that runs when the server goes down is left alone: it can be followed again once the server is back.
    Kill,
}

/// A process and the sandbox it runs in, which is not idle meanwhile. Dropping it ends the process and its group, unless it has
/// ended already.
pub struct ConnectionProcess {
    process: Process,
    on_disconnect: OnDisconnect,
    over: bool,
    control: Control,
    sandbox: Option<InUse>,
    hint: NetworkHint,
}

impl ConnectionProcess {
    pub(crate) fn new(
        control: &Control,
        sandbox: InUse,
        process: Process,
        on_disconnect: OnDisconnect,
    ) -> Self {
        let hint = control.network_hint(&sandbox.row);
        Self { process, on_disconnect, over: false, control: control.clone(), sandbox: Some(sandbox), hint }
    }

    /// What it did next. The future may be dropped without loss.
    pub async fn next(&mut self) -> Result<ProcessEvent, ControlError> {
        let event = self.process.next().await;
        match &event {
            Ok(ProcessEvent::Output { data, .. }) => self.hint.look(data),
            Ok(ProcessEvent::Exited(_)) => self.over = true,
            _ => {}
        }
        Ok(event?)
    }

    /// What may help where it failed with this code for want of a network.
    pub fn network_hint(&self, exit_code: i32) -> Option<String> {
        self.hint.tell(exit_code)
    }

    /// The way to its standard input, once.
    pub fn take_input(&mut self) -> Option<ProcessInput> {
        self.process.take_input()
    }

    /// What changes its terminal's size, from wherever that is learned of.
    pub fn resizer(&self) -> Resizer {
        Resizer { link: self.process.link().clone(), process: self.process.id() }
    }

    /// Signals it and its group.
    pub async fn signal(&self, signal: SignalName) -> Result<(), ControlError> {
        let number = crate::process::signal_number(Some(signal))?;
        Ok(self.process.link().signal(self.process.id(), number, SignalScope::Group).await?)
    }

    /// Kills it and its group; how it ended is still to be read.
    pub async fn kill(&self) -> Result<(), ControlError> {
        Ok(self.process.link().signal(self.process.id(), KILL, SignalScope::Group).await?)
    }
}

impl Drop for ConnectionProcess {
    fn drop(&mut self) {
        let stays = self.on_disconnect == OnDisconnect::Kill && self.control.closing().is_cancelled();
        if self.over || stays {
            return;
        }
        // Outside a runtime nothing can be said to a guest any more.
        let Ok(runtime) = Handle::try_current() else { return };
        let (link, id, on_disconnect) = (self.process.link().clone(), self.process.id(), self.on_disconnect);
        let sandbox = self.sandbox.take();
        let work = async move {
            let _sandbox = sandbox;
            // A guest that cannot be told sleeps or is gone.
            if let Err(error) = part(&link, id, on_disconnect).await {
                tracing::debug!(%error, "a process that nobody attends to could not be ended");
            }
        };
        self.control.tasks().spawn_on(work, &runtime);
    }
}

impl Control {
    /// Work that a server waits for when it goes down; it must watch [`Control::closing`] and end by itself.
    pub fn tracked<F: Future>(&self, work: F) -> TrackedFuture<F> {
        self.tasks().track_future(work)
    }
}

async fn part(link: &Link, id: ProcessId, on_disconnect: OnDisconnect) -> Result<(), CallError> {
    let signal = match on_disconnect {
        OnDisconnect::HangUp => HANG_UP,
        OnDisconnect::Terminate => TERMINATE,
        OnDisconnect::Kill => KILL,
    };
    link.signal(id, signal, SignalScope::Group).await?;
    if on_disconnect == OnDisconnect::Kill {
        return Ok(());
    }
    // One that was stopped could not heed it.
    link.signal(id, CONTINUE, SignalScope::Group).await?;
    let ended = async {
        let mut process = link.attach(id, Offsets::NOW).await?;
        while !matches!(process.next().await?, ProcessEvent::Exited(_)) {}
        Ok::<_, CallError>(())
    };
    match tokio::time::timeout(LEAVE_TO_END, ended).await {
        Ok(outcome) => outcome,
        Err(_) => link.signal(id, KILL, SignalScope::Group).await,
    }
}

/// Changes the size of one process's terminal.
pub struct Resizer {
    link: Link,
    process: ProcessId,
}

impl Resizer {
    /// Changes it.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ControlError> {
        Ok(self.link.resize(self.process, size).await?)
    }
}
