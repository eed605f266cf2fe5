//! Code contexts, code that is run once, languages.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::{Extension, Json as Out};
use contract::event::StreamedEvent;
use contract::interpreter::{
    CellAnswer, Context, CreateContext, LanguageServers, RunCell, RunOnce, RunOnceAnswer,
};
use control::{Caller, CellEvent, Control};
use serde_json::json;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::Path;
use crate::socket::told;
use crate::sse::stream_events;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(run))
        .routes(routes!(run_stream))
        .routes(routes!(delete))
        .routes(routes!(once))
        .routes(routes!(languages))
        .routes(routes!(language_servers))
}

/// Contexts of a sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/repl/sessions", operation_id = "listContexts", tag = "code", params(("id" = String, Path)),
    responses((status = 200, body = Vec<Context>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<Vec<Context>>> {
    Ok(Out(control.contexts(&caller, &id).await?))
}

/// Starts an interpreter that keeps its state from cell to cell.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/repl/sessions", operation_id = "createContext", tag = "code", params(("id" = String, Path)),
    request_body = CreateContext, responses((status = 201, body = Context)))]
async fn create(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<CreateContext>,
) -> ApiResult<(StatusCode, Out<Context>)> {
    Ok((StatusCode::CREATED, Out(control.create_context(&caller, &id, request).await?)))
}

/// Runs a cell. One that runs too long is interrupted; the context keeps its state. The context `default` is the sandbox's default one
/// of the request's language, made when it is first used.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/repl/sessions/{context}/run", operation_id = "runInContext", tag = "code",
    params(("id" = String, Path), ("context" = String, Path)), request_body = RunCell,
    responses((status = 200, body = CellAnswer)))]
async fn run(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, context)): Path<(String, String)>,
    Json(request): Json<RunCell>,
) -> ApiResult<Out<CellAnswer>> {
    Ok(Out(control.run_cell(&caller, &id, &context, request).await?))
}

/// Runs a cell and follows it: events `stdout` and `stderr` (`chunk`), `result` (its MIME types), then `exit` or `error`. The cell
/// goes on when the caller goes away.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/repl/sessions/{context}/run/stream", operation_id = "streamInContext", tag = "code",
    params(("id" = String, Path), ("context" = String, Path)), request_body = RunCell,
    responses((status = 200, content_type = "text/event-stream", body = StreamedEvent)))]
async fn run_stream(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, context)): Path<(String, String)>,
    Json(request): Json<RunCell>,
) -> ApiResult<Response> {
    let mut cell = control.stream_cell(&caller, &id, &context, request).await?;
    Ok(stream_events(move |events| async move {
        while let Some(event) = cell.next().await {
            let sent = match event {
                CellEvent::Stdout(text) => events.send("stdout", &json!({ "chunk": text })).await,
                CellEvent::Stderr(text) => events.send("stderr", &json!({ "chunk": text })).await,
                CellEvent::Result(data) => events.send("result", &data).await,
                CellEvent::Exit(exit) => events.send("exit", &exit).await,
                CellEvent::Failed(error) => events.send("error", &told(&error)).await,
            };
            if sent.is_err() {
                return;
            }
        }
    }))
}

/// Ends a context; `default` is the default one of Python.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/repl/sessions/{context}", operation_id = "deleteContext", tag = "code",
    params(("id" = String, Path), ("context" = String, Path)), responses((status = 204)))]
async fn delete(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, context)): Path<(String, String)>,
) -> ApiResult<StatusCode> {
    control.delete_context(&caller, &id, &context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs code in an interpreter of its own.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/repl", operation_id = "runOnce", tag = "code", params(("id" = String, Path)),
    request_body = RunOnce, responses((status = 200, body = RunOnceAnswer)))]
async fn once(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<RunOnce>,
) -> ApiResult<Out<RunOnceAnswer>> {
    Ok(Out(control.run_once(&caller, &id, request).await?))
}

/// Languages of contexts.
#[utoipa::path(get, path = "/v1/repl/languages", operation_id = "listCodeLanguages", tag = "code", responses((status = 200, body = Vec<String>)))]
async fn languages(State(control): State<Control>) -> Out<Vec<String>> {
    Out(control.languages())
}

/// Languages that have a language server.
#[utoipa::path(get, path = "/v1/lsp/languages", operation_id = "listLanguageServers", tag = "code", responses((status = 200, body = LanguageServers)))]
async fn language_servers(State(control): State<Control>) -> Out<LanguageServers> {
    let note = "the sandbox's template must have the server installed; code-interpreter has one for Python";
    Out(LanguageServers { supported: control.server_languages(), note: note.to_owned() })
}
