//! Code contexts, code that is run once, languages.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Out};
use contract::interpreter::{
    CellAnswer, Context, CreateContext, LanguageServers, RunCell, RunOnce, RunOnceAnswer,
};
use control::{Caller, Control};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::body::Json;
use crate::extract::Path;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(run))
        .routes(routes!(delete))
        .routes(routes!(once))
        .routes(routes!(languages))
        .routes(routes!(language_servers))
}

/// Contexts of a sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/repl/sessions", tag = "code", params(("id" = String, Path)),
    responses((status = 200, body = Vec<Context>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer<Out<Vec<Context>>> {
    Ok(Out(control.contexts(&caller, &id).await?))
}

/// Starts an interpreter that keeps its state from cell to cell.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/repl/sessions", tag = "code", params(("id" = String, Path)),
    request_body = CreateContext, responses((status = 201, body = Context)))]
async fn create(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<CreateContext>,
) -> Answer<(StatusCode, Out<Context>)> {
    Ok((StatusCode::CREATED, Out(control.create_context(&caller, &id, request).await?)))
}

/// Runs a cell. One that runs too long is interrupted; the context keeps its state.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/repl/sessions/{context}/run", tag = "code",
    params(("id" = String, Path), ("context" = String, Path)), request_body = RunCell,
    responses((status = 200, body = CellAnswer)))]
async fn run(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, context)): Path<(String, String)>,
    Json(request): Json<RunCell>,
) -> Answer<Out<CellAnswer>> {
    Ok(Out(control.run_cell(&caller, &id, &context, request).await?))
}

/// Ends a context.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/repl/sessions/{context}", tag = "code",
    params(("id" = String, Path), ("context" = String, Path)), responses((status = 204)))]
async fn delete(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, context)): Path<(String, String)>,
) -> Answer<StatusCode> {
    control.delete_context(&caller, &id, &context).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Runs code in an interpreter of its own.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/repl", tag = "code", params(("id" = String, Path)),
    request_body = RunOnce, responses((status = 200, body = RunOnceAnswer)))]
async fn once(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<RunOnce>,
) -> Answer<Out<RunOnceAnswer>> {
    Ok(Out(control.run_once(&caller, &id, request).await?))
}

/// Languages of contexts.
#[utoipa::path(get, path = "/v1/repl/languages", tag = "code", responses((status = 200, body = Vec<String>)))]
async fn languages(State(control): State<Control>) -> Out<Vec<String>> {
    Out(control.languages())
}

/// Languages that have a language server.
#[utoipa::path(get, path = "/v1/lsp/languages", tag = "code", responses((status = 200, body = LanguageServers)))]
async fn language_servers(State(control): State<Control>) -> Out<LanguageServers> {
    let note = "the sandbox's template must have the server installed; code-interpreter has one for Python";
    Out(LanguageServers { supported: control.server_languages(), note: note.to_owned() })
}
