//! Language servers over WebSockets: the protocol's bytes both ways, unlooked at.

use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use control::{Caller, ConnectionProcess, Control};
use guest_link::client::{ProcessEvent, ProcessInput};
use guest_link::message::Channel;
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::Path;
use crate::socket::{
    Gone, Goodbye, Lost, MaybeUpgrade, Received, Receiving, Sending, Socket, expect_upgrade, keep_alive,
    pings, told,
};

/// The subprotocol's name.
const PROTOCOL: &str = "lsp";
/// A connection on which nobody says anything for this long is closed, and the server ended.
const IDLE_MAX: Duration = Duration::from_secs(600);
/// Longest line of errors that is passed on whole; longer ones are cut into several.
const LINE_BYTES_MAX: usize = 8 << 10;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(language_server))
}

/// A language server of the sandbox, over a WebSocket with the subprotocol `lsp`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/lsp/{language}", operation_id = "openLanguageServer", tag = "code",
    params(("id" = String, Path), ("language" = String, Path)),
    responses((status = 101, description = "The connection is a WebSocket now")))]
async fn language_server(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, language)): Path<(String, String)>,
    upgrade: MaybeUpgrade,
) -> ApiResult<Response> {
    let found = control.find_language_server(&language);
    if found.is_err() {
        control.check_sandbox(&caller, &id).await?;
    }
    let server = found?;
    let upgrade = expect_upgrade(&control, &caller, &id, upgrade).await?;
    let sandbox = control.enter(&caller, &id).await?;
    let services = control.clone();
    Ok(upgrade.protocol(PROTOCOL).run(&services, move |mut socket| async move {
        let goodbye = match control.start_language_server(sandbox, server).await {
            Ok(process) => converse(&control, &caller, process, &mut socket).await,
            Err(error) => {
                let _ = socket.sending.json(&told(&error)).await;
                Goodbye::Done
            }
        };
        socket.close(goodbye).await;
    }))
}

async fn converse(
    control: &Control,
    caller: &Caller,
    mut process: ConnectionProcess,
    Socket { sending, receiving }: &mut Socket,
) -> Goodbye {
    let (input, heard) = (process.take_input(), Notify::new());
    tokio::select! {
        goodbye = show(control, caller, &mut process, sending, &heard) => goodbye,
        gone = listen(receiving, input, &heard) => gone.into(),
    }
}

/// Sends what the server writes until it ends, or nobody has said anything for long.
async fn show(
    control: &Control,
    caller: &Caller,
    process: &mut ConnectionProcess,
    sending: &mut Sending,
    heard: &Notify,
) -> Goodbye {
    let mut pings = pings();
    let mut idle_at = Instant::now() + IDLE_MAX;
    let mut errors = Lines::default();
    loop {
        let sent = tokio::select! {
            event = process.next() => {
                idle_at = Instant::now() + IDLE_MAX;
                match event {
                    Ok(ProcessEvent::Output { channel: Channel::Stdout, data, .. }) => sending.bytes(data).await,
                    Ok(ProcessEvent::Output { channel: Channel::Stderr, data, .. }) => {
                        tell(sending, errors.push(&data)).await
                    }
                    Ok(ProcessEvent::Gap { .. }) => Ok(()),
                    Ok(ProcessEvent::Exited(exit)) => {
                        let _ = tell(sending, errors.finish()).await;
                        let _ = sending.json(&json!({ "exit": exit.status.shell_code() })).await;
                        return Goodbye::Done;
                    }
                    Err(error) => {
                        let _ = sending.json(&told(&error)).await;
                        return Goodbye::Done;
                    }
                }
            }
            () = heard.notified() => {
                idle_at = Instant::now() + IDLE_MAX;
                Ok(())
            }
            () = sleep_until(idle_at) => return Goodbye::Refused("nothing was said for 10 minutes"),
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
}

async fn tell(sending: &mut Sending, lines: Vec<String>) -> Result<(), Lost> {
    for line in lines {
        sending.json(&json!({ "stream": "stderr", "line": line })).await?;
    }
    Ok(())
}

/// Passes on what the client sends until it goes.
async fn listen(receiving: &mut Receiving, input: Option<ProcessInput>, heard: &Notify) -> Gone {
    loop {
        let received = match receiving.next().await {
            Err(gone) => return gone,
            Ok(received) => received,
        };
        heard.notify_one();
        if let Some(input) = &input {
            let bytes: &[u8] = match &received {
                Received::Text(text) => text.as_bytes(),
                Received::Binary(bytes) => bytes,
            };
            // A server that has ended takes nothing; its end is on its way.
            let _ = input.write(bytes).await;
        }
    }
}

/// Bytes that come in pieces, as lines.
#[derive(Debug, Default)]
struct Lines {
    pending: Vec<u8>,
}

impl Lines {
    /// The lines that are complete after these bytes.
    fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        let mut lines = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.pending.push(byte);
            }
            if byte == b'\n' || self.pending.len() >= LINE_BYTES_MAX {
                lines.push(self.take());
            }
        }
        lines
    }

    /// What is left at the end.
    fn finish(&mut self) -> Vec<String> {
        if self.pending.is_empty() { Vec::new() } else { vec![self.take()] }
    }

    fn take(&mut self) -> String {
        let line = std::mem::take(&mut self.pending);
        String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_put_together_and_bounded() {
        let mut lines = Lines::default();
        assert!(lines.push(b"ab").is_empty());
        assert_eq!(lines.push(b"c\r\n\nd"), ["abc", ""]);
        assert_eq!(lines.finish(), ["d"]);
        assert_eq!(lines.push(&[b'x'; LINE_BYTES_MAX + 1]), ["x".repeat(LINE_BYTES_MAX)]);
    }
}
