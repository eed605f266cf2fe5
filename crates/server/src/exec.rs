//! Commands that are waited for, and commands whose output is followed.

use axum::extract::State;
use axum::response::Response;
use axum::{Extension, Json as Out};
use contract::event::StreamedEvent;
use contract::exec::{ExecAnswer, ExecRequest};
use control::{Caller, Control, PartialOutput, exec_failure};
use guest_link::client::{Process, ProcessEvent};
use guest_link::message::{Channel, Exit};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::Path;
use crate::socket::told;
use crate::sse::{Events, ReaderGone, stream_events};
use crate::utf8::Utf8Decoder;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(exec)).routes(routes!(exec_stream))
}

/// Runs a command and waits for its end. A command that fails is still a 200.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec", operation_id = "execCommand", tag = "exec", params(("id" = String, Path)),
    request_body = ExecRequest, responses((status = 200, body = ExecAnswer)))]
async fn exec(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<ExecRequest>,
) -> ApiResult<Out<ExecAnswer>> {
    Ok(Out(control.exec(&caller, &id, request).await?))
}

/// Runs a command and follows its output: events `stdout` and `stderr`, then `exit` or `error`.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec/stream", operation_id = "streamCommand", tag = "exec", params(("id" = String, Path)),
    request_body = ExecRequest, responses((status = 200, content_type = "text/event-stream", body = StreamedEvent)))]
async fn exec_stream(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<ExecRequest>,
) -> ApiResult<Response> {
    let mut stream = control.exec_stream(&caller, &id, request).await?;
    Ok(stream_events(move |events| async move {
        // Needed only where the time may be up.
        let mut written = stream.timeout.map(|_| PartialOutput::default());
        let look = |event: &ProcessEvent| match (event, &mut written) {
            (ProcessEvent::Output { channel, data, .. }, written) => {
                stream.hint.look(data);
                if let Some(written) = written {
                    written.push(*channel, data);
                }
            }
            (ProcessEvent::Gap { .. }, Some(written)) => written.gap(),
            _ => {}
        };
        let ended = follow(&events, &mut stream.process, look).await;
        // A reader that is gone needs no ending; the command goes on and can be attached to.
        let _ = match ended {
            Ok(Ok(exit)) => match exec_failure(&exit, stream.timeout) {
                Some(error) => {
                    let error = error.partial(written.unwrap_or_default().finish());
                    events.send("error", &told(&error)).await
                }
                None => {
                    let exit_code = exit.status.shell_code();
                    let mut ended = json!({ "exit_code": exit_code });
                    if let Some(hint) = stream.hint.tell(exit_code) {
                        ended["hint"] = hint.into();
                    }
                    events.send("exit", &ended).await
                }
            },
            Ok(Err(text)) => events.send("error", &json!({ "error": text })).await,
            Err(ReaderGone) => Err(ReaderGone),
        };
    }))
}

/// Sends a process's output until it ends, or tells why it cannot be followed any more. `look` sees what happens first.
pub(crate) async fn follow(
    events: &Events,
    process: &mut Process,
    mut look: impl FnMut(&ProcessEvent),
) -> Result<Result<Exit, String>, ReaderGone> {
    let (mut stdout, mut stderr) = (Utf8Decoder::default(), Utf8Decoder::default());
    loop {
        let event = tokio::select! {
            event = process.next() => event,
            () = events.closed() => return Err(ReaderGone),
        };
        if let Ok(event) = &event {
            look(event);
        }
        match event {
            Ok(ProcessEvent::Output { channel, data, .. }) => {
                let (name, decoder) = match channel {
                    Channel::Stdout => ("stdout", &mut stdout),
                    Channel::Stderr => ("stderr", &mut stderr),
                };
                let text = decoder.push(&data);
                if !text.is_empty() {
                    events.send(name, &json!({ "chunk": text })).await?;
                }
            }
            Ok(ProcessEvent::Gap { .. }) => {}
            Ok(ProcessEvent::Exited(exit)) => {
                for (name, text) in [("stdout", stdout.finish()), ("stderr", stderr.finish())] {
                    if !text.is_empty() {
                        events.send(name, &json!({ "chunk": text })).await?;
                    }
                }
                return Ok(Ok(exit));
            }
            Err(error) => return Ok(Err(control::ControlError::from(error).message)),
        }
    }
}
