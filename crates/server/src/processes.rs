//! Processes that outlive the request that started them.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json as Out};
use contract::event::StreamedEvent;
use contract::process::{Process, ProcessInput, ProcessSignal, StartProcess};
use control::{Caller, Control};
use guest_link::message::Offsets;
use serde::Deserialize;
use serde_json::json;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::exec::follow;
use crate::extract::{Path, Query};
use crate::sse::{ReaderGone, stream_events};

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(list, start))
        .routes(routes!(get))
        .routes(routes!(output))
        .routes(routes!(input))
        .routes(routes!(signal))
}

/// Processes of a sandbox: running, and some that ended.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes", operation_id = "listProcesses", tag = "processes", params(("id" = String, Path)),
    responses((status = 200, body = Vec<Process>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<Vec<Process>>> {
    Ok(Out(control.processes(&caller, &id).await?))
}

/// Starts a process and does not wait for it.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes", operation_id = "startProcess", tag = "processes", params(("id" = String, Path)),
    request_body = StartProcess, responses((status = 201, body = Process)))]
async fn start(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<StartProcess>,
) -> ApiResult<(StatusCode, Out<Process>)> {
    Ok((StatusCode::CREATED, Out(control.start_process(&caller, &id, request).await?)))
}

/// One process.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}", operation_id = "getProcess", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path)), responses((status = 200, body = Process)))]
async fn get(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, process)): Path<(String, u32)>,
) -> ApiResult<Out<Process>> {
    Ok(Out(control.process(&caller, &id, process).await?))
}

/// Where to begin reading output: bytes since the process started.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct From {
    /// Of standard output.
    stdout_offset: Option<u64>,
    /// Of standard error.
    stderr_offset: Option<u64>,
}

/// Follows a process's output from an offset on: events `stdout` and `stderr`, then `exit` or `error`. What the sandbox no longer holds is skipped.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{process}/output", operation_id = "getProcessOutput", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path), From),
    responses((status = 200, content_type = "text/event-stream", body = StreamedEvent)))]
async fn output(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, process)): Path<(String, u32)>,
    Query(from): Query<From>,
) -> ApiResult<Response> {
    let from = Offsets { stdout: from.stdout_offset.unwrap_or(0), stderr: from.stderr_offset.unwrap_or(0) };
    let (sandbox, mut process) = control.follow_process(&caller, &id, process, from).await?;
    Ok(stream_events(move |events| async move {
        let _sandbox = sandbox;
        // It can be followed again from where this ends, so a server that stops does not wait for it.
        let ended = tokio::select! {
            ended = follow(&events, &mut process, |_| {}) => ended,
            () = control.closing().cancelled() => Ok(Err("the server is shutting down".to_owned())),
        };
        let _ = match ended {
            Ok(Ok(exit)) => events.send("exit", &json!({ "exit_code": exit.status.shell_code() })).await,
            Ok(Err(text)) => events.send("error", &json!({ "error": text })).await,
            Err(ReaderGone) => Err(ReaderGone),
        };
    }))
}

/// Writes to a process's standard input.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/input", operation_id = "writeProcessInput", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path)), request_body = ProcessInput,
    responses((status = 204)))]
async fn input(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, process)): Path<(String, u32)>,
    Json(request): Json<ProcessInput>,
) -> ApiResult<StatusCode> {
    control.process_input(&caller, &id, process, request).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Signals a process and everything it started.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{process}/signal", operation_id = "signalProcess", tag = "processes",
    params(("id" = String, Path), ("process" = u32, Path)), request_body = ProcessSignal,
    responses((status = 204)))]
async fn signal(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, process)): Path<(String, u32)>,
    Json(request): Json<ProcessSignal>,
) -> ApiResult<StatusCode> {
    control.process_signal(&caller, &id, process, request).await?;
    Ok(StatusCode::NO_CONTENT)
}
