//! Shells in terminals over WebSockets.
//!
//! Binary messages are the terminal's bytes both ways. Text from the client changes its size or types; text from the server tells
//! how it ended, and the connection is closed right after it. A client that goes away hangs up the shell.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use control::{Caller, ConnectionProcess, Control, Resizer, ShellRequest};
use guest_link::client::{ProcessEvent, ProcessInput};
use guest_link::message::TerminalSize;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::{Path, Query};
use crate::socket::{
    Gone, Goodbye, MaybeUpgrade, Received, Receiving, Sending, Socket, expect_upgrade, keep_alive, pings,
    told,
};

/// Answers to messages that were not understood; while they wait, nothing more is read.
const NOTES_MAX: usize = 4;
const ROWS_DEFAULT: u16 = 24;
const COLUMNS_DEFAULT: u16 = 80;
/// Largest terminal; larger ones get this size.
const SIDE_MAX: u32 = 4096;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(ssh)).routes(routes!(pty))
}

/// How a terminal is opened.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Opening {
    /// Lines; 24 when absent or 0.
    rows: Option<u32>,
    /// Characters of a line; 80 when absent or 0.
    cols: Option<u32>,
    /// Working directory; the user's home when absent.
    cwd: Option<String>,
    /// Kind of terminal; xterm-256color when absent.
    term: Option<String>,
}

fn side(given: Option<u32>, otherwise: u16) -> u16 {
    match given {
        None | Some(0) => otherwise,
        Some(side) => u16::try_from(side.min(SIDE_MAX)).unwrap_or(otherwise),
    }
}

fn size(rows: Option<u32>, cols: Option<u32>) -> TerminalSize {
    TerminalSize { rows: side(rows, ROWS_DEFAULT), columns: side(cols, COLUMNS_DEFAULT) }
}

/// A login shell in a terminal, over a WebSocket.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ssh", operation_id = "openShell", tag = "terminals", params(("id" = String, Path), Opening),
    responses((status = 101, description = "The connection is a WebSocket now")))]
async fn ssh(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(opening): Query<Opening>,
    upgrade: MaybeUpgrade,
) -> ApiResult<Response> {
    open(control, caller, id, opening, upgrade).await
}

/// A login shell in a terminal, over a WebSocket.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/exec/pty", operation_id = "openTerminal", tag = "terminals", params(("id" = String, Path), Opening),
    responses((status = 101, description = "The connection is a WebSocket now")))]
async fn pty(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(opening): Query<Opening>,
    upgrade: MaybeUpgrade,
) -> ApiResult<Response> {
    open(control, caller, id, opening, upgrade).await
}

async fn open(
    control: Control,
    caller: Caller,
    id: String,
    opening: Opening,
    upgrade: MaybeUpgrade,
) -> ApiResult<Response> {
    let upgrade = expect_upgrade(&control, &caller, &id, upgrade).await?;
    let sandbox = control.enter(&caller, &id).await?;
    let request =
        ShellRequest { size: size(opening.rows, opening.cols), term: opening.term, cwd: opening.cwd };
    let services = control.clone();
    Ok(upgrade.run(&services, move |mut socket| async move {
        let goodbye = match control.start_shell(sandbox, request).await {
            Ok(shell) => converse(&control, &caller, shell, &mut socket).await,
            Err(error) => {
                let _ = socket.sending.json(&told(&error)).await;
                Goodbye::Done
            }
        };
        socket.close(goodbye).await;
    }))
}

/// What a client may say in text.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Resize { rows: Option<u32>, cols: Option<u32> },
    Stdin(String),
}

async fn converse(
    control: &Control,
    caller: &Caller,
    mut shell: ConnectionProcess,
    Socket { sending, receiving }: &mut Socket,
) -> Goodbye {
    let (resizer, input) = (shell.resizer(), shell.take_input());
    let (notes, noted) = mpsc::channel(NOTES_MAX);
    tokio::select! {
        goodbye = show(control, caller, &mut shell, sending, noted) => goodbye,
        gone = listen(receiving, input, &resizer, notes) => gone.into(),
    }
}

/// Sends what the shell writes until it ends.
async fn show(
    control: &Control,
    caller: &Caller,
    shell: &mut ConnectionProcess,
    sending: &mut Sending,
    mut noted: mpsc::Receiver<&'static str>,
) -> Goodbye {
    let mut pings = pings();
    loop {
        let sent = tokio::select! {
            event = shell.next() => match event {
                Ok(ProcessEvent::Output { data, .. }) => sending.bytes(data).await,
                Ok(ProcessEvent::Gap { .. }) => Ok(()),
                Ok(ProcessEvent::Exited(exit)) => {
                    let _ = sending.json(&json!({ "exit": exit.status.shell_code() })).await;
                    return Goodbye::Done;
                }
                Err(error) => {
                    let _ = sending.json(&told(&error)).await;
                    return Goodbye::Done;
                }
            },
            Some(note) = noted.recv() => sending.json(&json!({ "error": note })).await,
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

/// Types what the client sends until it goes.
async fn listen(
    receiving: &mut Receiving,
    input: Option<ProcessInput>,
    resizer: &Resizer,
    notes: mpsc::Sender<&'static str>,
) -> Gone {
    loop {
        let (typed, text);
        let bytes: &[u8] = match receiving.next().await {
            Err(gone) => return gone,
            Ok(Received::Binary(bytes)) => {
                typed = bytes;
                &typed
            }
            Ok(Received::Text(said)) => match serde_json::from_str::<Said>(&said) {
                Ok(Said::Stdin(said)) => {
                    text = said;
                    text.as_bytes()
                }
                Ok(Said::Resize { rows, cols }) => {
                    // A shell that has just ended has no size.
                    let _ = resizer.resize(size(rows, cols)).await;
                    continue;
                }
                Err(_) => {
                    let note = "text must be {\"resize\": {\"rows\": …, \"cols\": …}} or {\"stdin\": \"…\"}";
                    let _ = notes.send(note).await;
                    continue;
                }
            },
        };
        if let Some(input) = &input {
            // A shell that has ended takes nothing; its end is on its way.
            let _ = input.write(bytes).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminals_have_sizes_whatever_was_asked_for() {
        assert_eq!(size(None, Some(0)), TerminalSize { rows: 24, columns: 80 });
        assert_eq!(size(Some(50), Some(u32::MAX)), TerminalSize { rows: 50, columns: 4096 });
    }

    #[test]
    fn text_is_a_size_or_input_and_nothing_else() {
        let parse = |text| serde_json::from_str::<Said>(text).is_ok();
        assert!(parse(r#"{"resize":{"rows":1,"cols":2}}"#));
        assert!(parse(r#"{"stdin":"ls\n"}"#));
        for bad in ["", "{}", "[]", "null", r#"{"resize":5}"#, r#"{"resize":{"rows":-1,"cols":2}}"#, "ls\n"] {
            assert!(!parse(bad), "{bad}");
        }
    }
}
