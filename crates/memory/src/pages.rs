//! Guest memory on demand: answers the page faults of a machine process from the chunks of a packed memory.
//!
//! ```text
//! machine process ──descriptor, regions──► [`Handover`] ─► [`PageServer`] ◄─chunks── [`ChunkSource`]
//!       │ faults, memory given back ─────────────────────────►│
//!       │◄───────────── pages, with their neighbours ─────────┘
//! ```
//!
//! The process creates the descriptor over its empty memory and sends it ([`Handover::receive`]). From then on a thread that
//! touches an absent page waits until the server has put it in place. Pages of zeros are never fetched. What a guest asked for
//! first is a [`Trace`]; a later machine of the same memory has it put in place ahead of need. When a chunk cannot be had the
//! guest waits for ever, so [`PageServer::failed`] tells, and the owner ends the machine. After a server was killed,
//! [`Handover::take_over`] goes on. Nothing here ends a process, or knows where chunks come from.

mod handover;
mod placing;
mod regions;
mod replay;
mod serve;
mod state;
mod takeover;
mod trace;
mod userfault;

use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

pub use handover::{Handover, HandoverError};
pub use regions::{REGIONS_MAX, Regions, RegionsError};
pub use takeover::TakeOverError;
pub use trace::{TRACE_BYTES_MAX, TRACE_PAGES_MAX, Trace, TraceError};

use crate::mapping::{FindError, GuestMemory};
use crate::stream::{ChunkSource, FetchError};
use replay::Replay;
use serve::Server;
use state::State;

/// Why a machine's memory is not served any more. Its guest waits for ever; the owner ends it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum PageError {
    /// A chunk that the guest needs cannot be had.
    #[error("could not fetch memory of the guest")]
    Fetch(#[source] FetchError),
    /// The kernel did not take a page.
    #[error("could not put memory in place at offset {offset:#x}")]
    Place {
        /// Offset in the guest's memory.
        offset: u64,
        /// Why.
        #[source]
        source: Arc<io::Error>,
    },
    /// The host has no huge page left.
    #[error("this host has no free huge page of 2 MiB left for memory of the guest")]
    NoHugePage,
    /// Faults could not be read.
    #[error("could not read the faults of the machine process")]
    Read(#[source] Arc<io::Error>),
    /// The process asked for memory that is not its guest's.
    #[error("the machine process asked for memory at {address:#x}, which is not its guest's")]
    Outside {
        /// The address.
        address: u64,
    },
    /// The process did something that was not agreed on.
    #[error("the machine process reported an unknown event {event:#x}")]
    Event {
        /// The kernel's number for it.
        event: u8,
    },
    /// The server or a fetch ended without a result, which is a bug.
    #[error("the server of the guest's memory ended unexpectedly")]
    Lost,
}

/// Why a server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The memory has another length than the one that was packed.
    #[error("the packed memory is not that of the machine")]
    Regions(#[from] RegionsError),
    /// The descriptor could not be watched.
    #[error("could not watch the faults of the machine process")]
    Watch(#[source] io::Error),
}

/// What a server did so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Faults that were told.
    pub faults: u64,
    /// Pages of 4 KiB with data put in place, or found there.
    pub copied_pages: u64,
    /// The same for zeros.
    pub zero_pages: u64,
    /// Chunks that were fetched.
    pub chunks: u64,
    /// Pages that were put in place before anybody asked, each with its neighbours.
    pub foreseen: u64,
}

/// What is put in place for a page that is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// What is stored near it: what is never touched takes little memory.
    Near,
    /// All that is stored in its chunk, in the end: few faults.
    Chunk,
}

/// What the server and its owner share.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    failure: watch::Sender<Option<PageError>>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn fail(&self, error: PageError) {
        self.failure.send_if_modified(|failure| {
            let is_first = failure.is_none();
            failure.get_or_insert(error);
            is_first
        });
    }
}

/// Answers the faults of one machine until this is dropped, or for as long as its process lives.
///
/// The owner drops it when the process has ended: from an idle process nothing is heard. Dropped before, it leaves a guest
/// that waits at the next absent page until somebody takes over.
#[derive(Debug)]
pub struct PageServer {
    shared: Arc<Shared>,
    regions: Regions,
    task: JoinHandle<()>,
}

impl PageServer {
    /// Begins to serve on the tokio runtime of the caller. Pages of `replay` are put in place ahead of need, in that order;
    /// an empty one foretells nothing.
    pub fn start(
        handover: Handover,
        source: Arc<dyn ChunkSource>,
        replay: Trace,
    ) -> Result<PageServer, ServeError> {
        let (_, nobody) = mpsc::channel(1);
        Self::start_with(handover, source, replay, nobody, Extent::Near)
    }

    /// The same for a process that faults dearly, beside somebody who reads its faults too and passes them on as offsets in the
    /// memory. Of each chunk that is fetched all is put in place, a little at a time. Who passes faults on may lose one when it
    /// stops, so what waits is woken once more a while after it has closed the channel.
    pub fn start_beside(
        handover: Handover,
        source: Arc<dyn ChunkSource>,
        replay: Trace,
        passed_on: mpsc::Receiver<u64>,
    ) -> Result<PageServer, ServeError> {
        Self::start_with(handover, source, replay, passed_on, Extent::Chunk)
    }

    fn start_with(
        handover: Handover,
        source: Arc<dyn ChunkSource>,
        replay: Trace,
        passed_on: mpsc::Receiver<u64>,
        extent: Extent,
    ) -> Result<PageServer, ServeError> {
        let Handover { userfault, regions } = handover;
        regions.check_length(source.length())?;
        let userfault = userfault.watch().map_err(ServeError::Watch)?;
        let ahead = Replay::new(&replay, regions.length(), regions.page_bytes());
        let state = State::new(regions.length(), regions.page_bytes(), replay);
        let shared = Arc::new(Shared { state: Mutex::new(state), failure: watch::Sender::new(None) });
        let server =
            Server::new(userfault, regions.clone(), source, Arc::clone(&shared), ahead, passed_on, extent);
        let mut end = End { shared: Arc::clone(&shared), is_expected: false };
        let task = tokio::spawn(async move {
            match server.run().await {
                Ok(()) => end.expect(),
                Err(error) => end.fail(error),
            }
        });
        Ok(PageServer { shared, regions, task })
    }

    /// Waits until the memory cannot be served any more. Never ends while all is well, nor when the process ends.
    pub async fn failed(&self) -> PageError {
        let mut failure = self.shared.failure.subscribe();
        let failed = failure.wait_for(Option::is_some).await;
        failed.ok().and_then(|failure| failure.clone()).unwrap_or(PageError::Lost)
    }

    /// Whether nothing is served any more, because the process is gone or because it failed.
    pub fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Where the memory is.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }

    /// The pages that were asked for, in order: those of the trace it was started with, then what else the guest needed.
    pub fn trace(&self) -> Trace {
        self.shared.state().trace.clone()
    }

    /// What the guest has given back since the server was started: ascending, apart from each other. Where no page is in place
    /// there are zeros.
    pub fn removed(&self) -> Vec<Range<u64>> {
        self.shared.state().removed()
    }

    /// The memory inside its process, for [`crate::capture_compared`]. The guest should be paused, now and until then.
    pub fn memory(&self, pid: u32) -> Result<GuestMemory, FindError> {
        GuestMemory::served(pid, &self.regions, self.removed())
    }

    /// What was done so far.
    pub fn counts(&self) -> PageCounts {
        self.shared.state().counts
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Tells that the server ended, however it did.
struct End {
    shared: Arc<Shared>,
    is_expected: bool,
}

impl End {
    fn expect(&mut self) {
        self.is_expected = true;
    }

    fn fail(&self, error: PageError) {
        self.shared.fail(error);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.is_expected {
            self.shared.fail(PageError::Lost);
        }
    }
}
