//! Disk work of a pull, on threads that may block.

use std::io;

/// Runs `work` to its end, also when nobody waits for it any more.
pub(super) async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)
}
