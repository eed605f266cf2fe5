//! Threads that may change their network namespace.
//!
//! A thread that has called `unshare` or `setns` must never go back to a shared pool, so each such piece of work gets
//! a thread of its own that ends with it.

use std::io;

use tokio::sync::oneshot;

/// Why a piece of work on a thread of its own has no result.
#[derive(Debug, thiserror::Error)]
pub enum ThreadError {
    /// The operating system gave no thread.
    #[error("could not start a thread")]
    Spawn(#[source] io::Error),
    /// The work panicked; the panic was printed by the thread.
    #[error("the thread panicked")]
    Panicked,
}

/// Runs `work` to its end on a new thread, even if the caller stops waiting.
pub(crate) async fn run<R: Send + 'static>(
    name: String,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, ThreadError> {
    let (send, receive) = oneshot::channel();
    std::thread::Builder::new()
        .name(name)
        .spawn(move || {
            // Nobody listens any more when the caller went away; the work is done all the same.
            drop(send.send(work()));
        })
        .map_err(ThreadError::Spawn)?;
    receive.await.map_err(|_| ThreadError::Panicked)
}
