//! TCP over WebSockets: the bytes of one connection to a port of a sandbox's loopback.
//!
//! ```text
//! client ── binary: bytes ──────────► guest        text {"eof": true}: this side writes no more
//!        ◄────────── binary: bytes ──             close frame: both sides are done
//! ```
//!
//! Nothing is queued: a side that does not read stops the other one.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use control::{Caller, Control};
use guest_link::client::Connection;
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::sync::Notify;
use tokio::time::timeout;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::Path;
use crate::socket::{
    Goodbye, MaybeUpgrade, Received, Receiving, Sending, Socket, expect_upgrade, keep_alive, pings,
};

/// Most bytes of one message to the client.
const PIECE_BYTES: usize = 32 << 10;
/// How long the guest gets to read what a client sent before it closed the WebSocket.
const LINGER: Duration = Duration::from_secs(5);

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(tunnel))
}

/// One TCP connection to a port of the sandbox, over a WebSocket: to `127.0.0.1` in the guest, port 22 included. Binary messages
/// are its bytes both ways; the text `{"eof": true}` says that the sender writes no more. 502 when nothing listens on the port.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports/{port}/tcp", operation_id = "openTunnel", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path)),
    responses((status = 101, description = "The connection is a WebSocket now")))]
async fn tunnel(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, port)): Path<(String, u16)>,
    upgrade: MaybeUpgrade,
) -> ApiResult<Response> {
    let upgrade = expect_upgrade(&control, &caller, &id, upgrade).await?;
    let (sandbox, guest) = control.connect_any(&caller, &id, port).await?;
    let services = control.clone();
    Ok(upgrade.run(&services, move |mut socket| async move {
        let goodbye = carry(&control, &caller, guest, &mut socket).await;
        socket.close(goodbye).await;
        drop(sandbox);
    }))
}

/// What a client may say in text.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Said {
    eof: bool,
}

impl Said {
    /// Whether the text says that nothing more comes.
    fn is_eof(text: &str) -> bool {
        serde_json::from_str::<Self>(text).is_ok_and(|said| said.eof)
    }
}

/// Carries bytes until both sides are done, or one is gone.
async fn carry(
    control: &Control,
    caller: &Caller,
    guest: Connection,
    Socket { sending, receiving }: &mut Socket,
) -> Goodbye {
    let (mut from_guest, mut to_guest) = split(guest);
    let ended = Notify::new();
    let left = tokio::select! {
        goodbye = outward(control, caller, &mut from_guest, sending, &ended) => return goodbye,
        left = inward(receiving, &mut to_guest, &ended) => left,
    };
    if left == Goodbye::Done {
        // The client closed without a word: what it sent before still reaches the program, as with a socket that is closed.
        let delivered = async {
            let _ = to_guest.shutdown().await;
            let _ = to_guest.flush().await;
            let mut unread = vec![0; PIECE_BYTES];
            while from_guest.read(&mut unread).await.is_ok_and(|count| count > 0) {}
        };
        let _ = timeout(LINGER, delivered).await;
    }
    left
}

/// Sends what the guest writes. Returns when both sides have ended.
async fn outward(
    control: &Control,
    caller: &Caller,
    from_guest: &mut (impl AsyncRead + Unpin),
    sending: &mut Sending,
    client_ended: &Notify,
) -> Goodbye {
    let mut pings = pings();
    let (mut guest_open, mut client_open) = (true, true);
    let mut piece = vec![0; PIECE_BYTES];
    while guest_open || client_open {
        let sent = tokio::select! {
            read = from_guest.read(&mut piece), if guest_open => match read {
                Ok(0) => {
                    guest_open = false;
                    sending.json(&json!({ "eof": true })).await
                }
                Ok(count) => sending.bytes(piece[..count].to_vec()).await,
                Err(_) => return Goodbye::Broken("the connection in the sandbox was reset"),
            },
            () = client_ended.notified(), if client_open => {
                client_open = false;
                Ok(())
            }
            _ = pings.tick() => match keep_alive(control, caller, sending).await {
                Ok(()) => Ok(()),
                Err(goodbye) => return goodbye,
            },
            () = control.closing().cancelled() => return Goodbye::Away,
        };
        if let Err(lost) = sent {
            return lost.into();
        }
    }
    Goodbye::Done
}

/// Passes on what the client sends until it goes. That it writes no more is told by `ended`.
async fn inward(
    receiving: &mut Receiving,
    to_guest: &mut (impl AsyncWrite + Unpin),
    ended: &Notify,
) -> Goodbye {
    let mut open = true;
    loop {
        let bytes = match receiving.next().await {
            Ok(Received::Binary(bytes)) => bytes,
            Ok(Received::Text(text)) if Said::is_eof(&text) => {
                if std::mem::take(&mut open) {
                    let _ = to_guest.shutdown().await;
                    ended.notify_one();
                }
                continue;
            }
            Ok(Received::Text(_)) => return Goodbye::Refused("text must be {\"eof\": true}"),
            Err(gone) => return gone.into(),
        };
        // A program that closed its side takes nothing more; what is sent to it nevertheless goes nowhere.
        if open && to_guest.write_all(&bytes).await.is_err() {
            open = false;
            ended.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Said;

    #[test]
    fn text_is_the_end_and_nothing_else() {
        assert!(Said::is_eof(r#"{"eof":true}"#) && Said::is_eof(r#" {"eof": true} "#));
        for other in ["", "{}", r#"{"eof":false}"#, r#"{"eof":1}"#, r#"{"eof":true,"more":1}"#, "eof", "null"]
        {
            assert!(!Said::is_eof(other), "{other}");
        }
    }
}
