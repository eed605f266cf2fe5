//! Memory that comes on demand. Firecracker hands its page faults over when it loads a guest, and we answer them for as long as the
//! guest lives.
//!
//! Firecracker keeps the descriptor too, so that a node that comes after this one can ask for it and go on answering.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use memory::pages::{Handover, PageError, PageServer, Regions, Trace};

use super::room::{PAGES_SOCKET, Room};
use crate::engine::{ControlError, OnDemand};
use crate::jail::DeviceNode;
use crate::process::VmProcess;

/// How long Firecracker may take from being told to load until it hands its page faults over.
const HANDOVER_PATIENCE: Duration = Duration::from_secs(60);

/// The device by which a program without privileges gets to hand over its page faults, where this kernel has it.
pub(super) fn device() -> Option<DeviceNode> {
    let number = std::fs::metadata("/dev/userfaultfd").ok()?.rdev();
    let number = (rustix::fs::major(number), rustix::fs::minor(number));
    Some(DeviceNode { name: "userfaultfd", number })
}

/// Who answers the page faults of a machine.
#[derive(Debug)]
pub(super) struct Pages {
    /// Until the guest is loaded.
    origin: Mutex<Option<OnDemand>>,
    server: OnceLock<PageServer>,
}

impl Pages {
    /// Of a machine whose guest has yet to come.
    pub(super) fn new(origin: OnDemand) -> Self {
        Self { origin: Mutex::new(Some(origin)), server: OnceLock::new() }
    }

    /// Of a machine that another node has made.
    pub(super) fn take_over(
        process: &VmProcess,
        regions: &Regions,
        origin: OnDemand,
    ) -> Result<Self, ControlError> {
        let handover = Handover::take_over(process.identity().pid, regions.clone()).map_err(not_taken)?;
        // What is foreseen is for a guest that begins.
        let server = PageServer::start(handover, origin.source, Trace::default()).map_err(not_taken)?;
        Ok(Self { origin: Mutex::new(None), server: OnceLock::from(server) })
    }

    /// Where the memory lies in the process.
    pub(super) fn regions(&self) -> Option<Regions> {
        self.server.get().map(|server| server.regions().clone())
    }

    pub(super) fn server(&self) -> Option<&PageServer> {
        self.server.get()
    }

    pub(super) fn trace(&self) -> Option<Trace> {
        self.server.get().map(PageServer::trace)
    }

    /// Answers page faults while `loading` goes on, from their handover on. Ends with it, or when memory does not come.
    pub(super) async fn serve_while<T>(
        &self,
        room: &Room,
        loading: impl Future<Output = Result<T, ControlError>>,
    ) -> Result<T, ControlError> {
        let listener = room.listen(PAGES_SOCKET).map_err(not_taken)?;
        let origin = self.origin.lock().unwrap_or_else(PoisonError::into_inner).take();
        let origin = origin.ok_or_else(|| not_taken(io::Error::from(io::ErrorKind::AlreadyExists)))?;
        let serving = async {
            let accepting = tokio::time::timeout(HANDOVER_PATIENCE, listener.accept());
            let accepted = accepting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
            let (stream, _) = accepted.map_err(not_taken)?;
            let length = origin.source.index().length();
            let handover = Handover::receive(&stream, length).await.map_err(not_taken)?;
            let server = PageServer::start(handover, origin.source, origin.trace).map_err(not_taken)?;
            let server = self.server.get_or_init(|| server);
            Err(ControlError::Memory(server.failed().await))
        };
        let loaded = tokio::select! {
            loaded = loading => loaded,
            failed = serving => failed,
        };
        room.remove(PAGES_SOCKET).map_err(not_taken)?;
        loaded
    }

    /// Completes when memory can no longer be had.
    pub(super) async fn failed(&self) -> PageError {
        match self.server.get() {
            Some(server) => server.failed().await,
            None => std::future::pending().await,
        }
    }

    /// Why memory could no longer be had, if that was so.
    pub(super) async fn failure(&self) -> Option<PageError> {
        tokio::select! {
            biased;
            error = self.failed() => Some(error),
            () = std::future::ready(()) => None,
        }
    }
}

fn not_taken(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ControlError {
    ControlError::Host { action: "take over page faults", source: io::Error::other(source) }
}
