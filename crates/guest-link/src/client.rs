//! The host's side of the link: an asynchronous client.
//!
//! [`Link::open`] starts a session on a connected socket and hands out a [`Link`], which can be cloned freely. Two tasks belong
//! to it, a reader and a writer; both end when the link fails or its last clone is dropped. Nothing here has a deadline of its
//! own: a guest may be slow for good reasons, so callers wrap what must not wait for ever in `tokio::time::timeout`. All
//! futures may be dropped at any point; a request that was sent is then cancelled in the guest.
//!
//! One slow consumer never blocks another: each stream has a window, and what lies in it is bounded by
//! [`crate::limits::HOST_WINDOW_BYTES`].

mod connect;
mod error;
mod file;
mod open;
mod process;
mod reader;
mod state;
mod stream;
mod system;
mod writer;

use std::sync::Arc;

pub use connect::Connection;
pub use error::{CallError, LinkError};
pub use file::{DirectoryList, FileReader, FileWriter, Watch};
pub use open::Opening;
pub use process::{ExecLimits, Output, Process, ProcessEvent, ProcessInput};
use tokio::task::JoinHandle;

use self::state::Shared;
use self::stream::Stream;
use crate::message::{Failure, Identity, IdentityConfirmed, Quiesced, Request, Response};
use crate::session::GuestInfo;

/// A session with a guest. Cheap to clone; the session's tasks end with the last clone and the last stream.
#[derive(Clone)]
pub struct Link {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Inner {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("guest", &self.inner.shared.guest).finish_non_exhaustive()
    }
}

/// Whether the guest flushes its file systems before it goes silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flush {
    /// Yes.
    FileSystems,
    /// No: the page cache is in the snapshot.
    Nothing,
}

impl Link {
    /// What the guest said about itself.
    #[must_use]
    pub fn guest(&self) -> &GuestInfo {
        &self.inner.shared.guest
    }

    /// Makes the guest a machine of its own. `Err` means it must not be used.
    pub async fn identify(&self, identity: Identity) -> Result<IdentityConfirmed, CallError> {
        match self.call(&Request::Identify(Box::new(identity))).await? {
            Response::Identified(confirmed) => Ok(confirmed),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Silences the link in both directions, so that a snapshot taken now holds no part of a frame. Requests made meanwhile wait
    /// for [`Link::resume`]. When this future is dropped or fails, call `resume` before using the link again.
    pub async fn quiesce(&self, flush: Flush) -> Result<Quiesced, LinkError> {
        self.inner.shared.quiesce(flush == Flush::FileSystems).await
    }

    /// Ends [`Link::quiesce`]: the same session, all streams go on.
    pub fn resume(&self) {
        self.inner.shared.resume();
    }

    /// Waits until the link is lost, and tells why.
    pub async fn closed(&self) -> LinkError {
        self.inner.shared.closed().await
    }

    /// Whether the link is lost.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.shared.failure().is_some()
    }

    fn stream(&self, request: &Request) -> Result<Stream, LinkError> {
        Stream::open(self.clone(), request)
    }

    /// A request with one answer and nothing in between.
    async fn call(&self, request: &Request) -> Result<Response, CallError> {
        let stream = self.stream(request)?;
        stream.response().await
    }

    /// A request whose answer says nothing.
    async fn perform(&self, request: &Request) -> Result<(), CallError> {
        match self.call(request).await? {
            Response::Done => Ok(()),
            _ => Err(LinkError::Unexpected.into()),
        }
    }
}

/// The final word on a stream.
type Outcome = Result<Response, Failure>;
