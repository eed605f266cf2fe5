//! Memory that comes on demand: who answers the page faults of a machine for as long as its guest lives.
//!
//! How a machine process comes to hand its faults over is its engine's matter. It keeps the descriptor too, so that a node that comes
//! after this one can ask for it and go on answering.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use memory::pages::{Handover, PageError, PageServer, Regions, Trace};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::engine::{ControlError, Exit, LazyMemory, MemoryOrigin, MemoryTarget, Saved, VmRecord};
use crate::jail::DeviceNode;
use crate::process::VmProcess;
use crate::waiting::{capture_memory, capture_served};

/// How long a machine process may take for a request while it waits for memory itself. Whoever fetches that gives up sooner, and says why.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(300);

/// How long a machine process may take for a request that it otherwise carries out in the time given.
pub(crate) fn patience(is_on_demand: bool, ordinary: Duration) -> Duration {
    if is_on_demand { MEMORY_TIMEOUT.max(ordinary) } else { ordinary }
}

/// The device by which a program without privileges gets to hand over its page faults, where this kernel has it.
pub(crate) fn device() -> Option<DeviceNode> {
    let number = std::fs::metadata("/dev/userfaultfd").ok()?.rdev();
    let number = (rustix::fs::major(number), rustix::fs::minor(number));
    Some(DeviceNode { name: "userfaultfd", number })
}

/// Who answers the page faults of a machine.
#[derive(Debug)]
pub(crate) struct Pages {
    /// Until the guest is loaded.
    origin: Mutex<Option<LazyMemory>>,
    server: OnceLock<PageServer>,
    /// Whoever passes faults on to the server; they end with this value.
    messengers: Mutex<JoinSet<()>>,
}

impl Pages {
    /// Of a machine whose guest has yet to come.
    pub(crate) fn new(origin: LazyMemory) -> Self {
        Self { origin: Mutex::new(Some(origin)), server: OnceLock::new(), messengers: Mutex::default() }
    }

    /// Of a machine that another node has made; `None` if its memory is a file.
    pub(crate) fn take_over(
        process: &VmProcess,
        record: &VmRecord,
        origin: Option<MemoryOrigin>,
    ) -> Result<Option<Self>, ControlError> {
        let Some(regions) = &record.on_demand else { return Ok(None) };
        let origin = origin.ok_or_else(|| {
            let source = io::Error::other("nobody says where it comes from");
            ControlError::Host { action: "fetch the machine's memory", source }
        })?;
        let origin = origin.on_demand().map_err(not_taken)?;
        let handover = Handover::take_over(process.identity().pid, regions.clone()).map_err(not_taken)?;
        // What is foreseen is for a guest that begins.
        let server = PageServer::start(handover, origin.source, Trace::default()).map_err(not_taken)?;
        let server = OnceLock::from(server);
        Ok(Some(Self { origin: Mutex::new(None), server, messengers: Mutex::default() }))
    }

    /// Where the memory comes from; for whoever loads the guest, once.
    pub(crate) fn take_origin(&self) -> Result<LazyMemory, ControlError> {
        let origin = self.origin.lock().unwrap_or_else(PoisonError::into_inner).take();
        origin.ok_or_else(|| not_taken(io::Error::from(io::ErrorKind::AlreadyExists)))
    }

    /// Answers from now on.
    pub(crate) fn serve(&self, handover: Handover, origin: LazyMemory) -> Result<&PageServer, ControlError> {
        let server = PageServer::start(handover, origin.source, origin.trace).map_err(not_taken)?;
        Ok(self.server.get_or_init(|| server))
    }

    /// The same beside the process itself, which reads some of its faults and asks for what they want. `messenger` passes that on.
    pub(crate) fn serve_beside<M>(
        &self,
        handover: Handover,
        origin: LazyMemory,
        messenger: impl FnOnce(mpsc::Sender<u64>) -> M,
    ) -> Result<&PageServer, ControlError>
    where
        M: Future<Output = ()> + Send + 'static,
    {
        let (sender, passed_on) = mpsc::channel(64);
        let server = PageServer::start_beside(handover, origin.source, origin.trace, passed_on);
        let server = server.map_err(not_taken)?;
        let server = self.server.get_or_init(|| server);
        self.messengers.lock().unwrap_or_else(PoisonError::into_inner).spawn(messenger(sender));
        Ok(server)
    }

    /// Where the memory lies in the process.
    pub(crate) fn regions(&self) -> Option<Regions> {
        self.server.get().map(|server| server.regions().clone())
    }

    pub(crate) fn trace(&self) -> Option<Trace> {
        self.server.get().map(PageServer::trace)
    }

    /// Completes when memory can no longer be had.
    async fn failed(&self) -> PageError {
        match self.server.get() {
            Some(server) => server.failed().await,
            None => std::future::pending().await,
        }
    }

    /// Why memory could no longer be had, if that was so.
    async fn failure(&self) -> Option<PageError> {
        tokio::select! {
            biased;
            error = self.failed() => Some(error),
            () = std::future::ready(()) => None,
        }
    }
}

/// Completes when the process has ended. A machine whose memory does not come is ended: its guest would wait for ever.
pub(crate) async fn exited(process: &VmProcess, pages: Option<&Pages>) -> Exit {
    let unfetched = |error: PageError| match error {
        PageError::Fetch(error) => format!("its memory could not be fetched: {error}"),
        PageError::NoHugePage => error.to_string(),
        error => format!("its memory could not be fetched: {error}"),
    };
    let Some(pages) = pages else { return Exit { reason: process.ended().await } };
    let reason = tokio::select! {
        ended = process.ended() => pages.failure().await.map_or(ended, unfetched),
        error = pages.failed() => {
            process.kill().await;
            unfetched(error)
        }
    };
    Exit { reason }
}

/// Writes what the guest changed over a copy of the memory it was restored from. Blocks.
pub(crate) fn capture(
    process: &VmProcess,
    pages: Option<&Pages>,
    target: &MemoryTarget,
) -> Result<Saved, ControlError> {
    match pages.and_then(|pages| pages.server.get()) {
        Some(server) => capture_served(process, server, target),
        None => capture_memory(process, target),
    }
}

pub(crate) fn not_taken(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ControlError {
    ControlError::Host { action: "take over page faults", source: io::Error::other(source) }
}
