//! How a request came in: from where, and whether whoever sent it is still there.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::Extensions;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;

/// How often to look again at a client that has sent more than was read so far.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is known of the connection that a request came by. Every request that the server takes carries one.
#[derive(Clone)]
pub(crate) struct ClientConnection {
    /// The other end.
    pub(crate) peer: IpAddr,
    /// How long a guest may take to begin its answer.
    pub(crate) guest_patience: Duration,
    /// Weak: what looks after a request must not keep its connection open.
    pub(crate) stream: Weak<TcpStream>,
    /// Counts as one connection for as long as it is held, also when HTTP is no longer spoken on it.
    pub(crate) place: Arc<OwnedSemaphorePermit>,
}

impl ClientConnection {
    /// That of a request.
    pub(crate) fn of(extensions: &Extensions) -> Option<Self> {
        extensions.get::<Self>().cloned()
    }

    /// Waits until the client has closed its connection, or at least its own direction of it.
    pub(crate) async fn gone(&self) {
        loop {
            let Some(stream) = self.stream.upgrade() else { return };
            match stream.ready(Interest::READABLE).await {
                Ok(ready) if !ready.is_read_closed() => {}
                _ => return,
            }
            drop(stream);
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
