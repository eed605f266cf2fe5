//! A sandbox's console.

use axum::Extension;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use contract::event::StreamedEvent;
use control::{Caller, Control, ControlError};
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::{Path, Query};
use crate::sse::stream_events;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(logs))
}

/// Whether a switch in a query is on, in any of the ways clients write it.
pub(crate) fn wants(text: Option<&str>) -> bool {
    matches!(text, Some("1" | "true" | "True" | "yes" | "on"))
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Which {
    /// `1` or `true`: lines that follow too, as an event stream.
    follow: Option<String>,
    /// `stdout`, `stderr` or `both`. A console has one stream, which is `stdout`.
    stream: Option<String>,
    /// The newest how many.
    tail: Option<usize>,
}

/// What a sandbox wrote to its console: as text, or with `follow` as events named `line`.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/logs", operation_id = "getLogs", tag = "observation",
    params(("id" = String, Path), Which),
    responses((status = 200, content(
        (String = "text/plain; charset=utf-8"),
        (StreamedEvent = "text/event-stream"),
    ))))]
async fn logs(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> ApiResult<Response> {
    let shown = match which.stream.as_deref() {
        None | Some("" | "both" | "stdout") => true,
        Some("stderr") => false,
        Some(_) => return Err(ControlError::invalid("stream must be stdout, stderr or both").into()),
    };
    let (mut lines, mut offset) = control.console(&caller, &id, 0).await?;
    if !shown {
        lines.clear();
    }
    if let Some(tail) = which.tail {
        lines.drain(..lines.len().saturating_sub(tail));
    }
    if !wants(which.follow.as_deref()) {
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], lines.concat()).into_response());
    }
    Ok(stream_events(move |out| async move {
        loop {
            for line in lines {
                if out.send("line", &json!({ "line": line })).await.is_err() {
                    return;
                }
            }
            if !control.console_pause().await {
                return;
            }
            // A sandbox that is gone ends the stream.
            let Ok((more, next)) = control.console(&caller, &id, offset).await else { return };
            (lines, offset) = (if shown { more } else { Vec::new() }, next);
        }
    }))
}
