//! A request's body on its way into a guest, and when it last moved: while it does, the guest is not late with its answer.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::Instant;

/// A body that notes when it moved.
pub(super) struct Upload {
    inner: axum::body::Body,
    progress: Progress,
}

/// When a body last moved.
#[derive(Clone)]
pub(super) struct Progress(Arc<Mutex<Instant>>);

impl Upload {
    pub(super) fn new(inner: axum::body::Body) -> (Self, Progress) {
        let progress = Progress(Arc::new(Mutex::new(Instant::now())));
        (Self { inner, progress: progress.clone() }, progress)
    }
}

impl Progress {
    fn last(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for work; gives up (`None`) when the body has not moved for as long as `patience`.
    pub(super) async fn watch<T>(&self, patience: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            let before = self.last();
            match tokio::time::timeout_at(before + patience, work.as_mut()).await {
                Ok(outcome) => return Some(outcome),
                Err(_) if self.last() > before => {}
                Err(_) => return None,
            }
        }
    }
}

impl Body for Upload {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if polled.is_ready() {
            *self.progress.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
