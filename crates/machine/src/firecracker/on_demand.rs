//! How Firecracker hands its page faults over: when it loads a guest it connects to a socket and sends the descriptor.

use std::io;
use std::time::Duration;

use memory::pages::Handover;

use super::room::{PAGES_SOCKET, Room};
use crate::engine::ControlError;
use crate::on_demand::{Pages, not_taken};

/// How long Firecracker may take from being told to load until it hands its page faults over.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(60);

/// Answers page faults while `loading` goes on, from their handover on. Ends with it, or when memory does not come.
pub(super) async fn serve_while<T>(
    pages: &Pages,
    room: &Room,
    loading: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    let listener = room.listen(PAGES_SOCKET).map_err(not_taken)?;
    let origin = pages.take_origin()?;
    let serving = async {
        let accepting = tokio::time::timeout(HANDOVER_TIMEOUT, listener.accept());
        let accepted = accepting.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
        let (stream, _) = accepted.map_err(not_taken)?;
        let length = origin.source.length();
        let handover = Handover::receive(&stream, length).await.map_err(not_taken)?;
        Err(ControlError::Memory(pages.serve(handover, origin)?.failed().await))
    };
    let loaded = tokio::select! {
        loaded = loading => loaded,
        failed = serving => failed,
    };
    room.remove(PAGES_SOCKET).map_err(not_taken)?;
    loaded
}
