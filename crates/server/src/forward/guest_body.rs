//! The body of a guest's answer, and all that must last as long as it.

use std::pin::Pin;
use std::task::{Context, Poll};

use control::InUse;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::task::JoinSet;

/// A body. Dropped, it ends the connection to the guest, and the sandbox is no longer in use.
pub(super) struct GuestBody {
    inner: Incoming,
    _driver: JoinSet<()>,
    _sandbox: InUse,
}

impl GuestBody {
    pub(super) fn new(inner: Incoming, driver: JoinSet<()>, sandbox: InUse) -> Self {
        Self { inner, _driver: driver, _sandbox: sandbox }
    }
}

impl Body for GuestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
