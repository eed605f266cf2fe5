//! Sandboxes.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Out};
use contract::sandbox::{CreateSandbox, PatchSandbox, Sandbox};
use control::{Caller, Control};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::body::Json;
use crate::extract::Path;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(get, patch, delete))
}

/// Makes a sandbox. When it answers, the sandbox takes commands.
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", request_body = CreateSandbox,
    responses((status = 201, body = Sandbox)))]
async fn create(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<CreateSandbox>,
) -> Answer<(StatusCode, Out<Sandbox>)> {
    let made = control.create_sandbox(&caller, request).await?;
    tracing::Span::current().record("sandbox.id", made.id.as_str());
    Ok((StatusCode::CREATED, Out(made)))
}

/// All sandboxes, newest first.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", responses((status = 200, body = Vec<Sandbox>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
) -> Answer<impl IntoResponse> {
    let list = control.list_sandboxes(&caller).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], list))
}

/// One sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox)))]
async fn get(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer<Out<Sandbox>> {
    Ok(Out(control.sandbox(&caller, &id).await?))
}

/// Changes metadata, variables or network of a sandbox.
#[utoipa::path(patch, path = "/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = String, Path)),
    request_body = PatchSandbox, responses((status = 200, body = Sandbox)))]
async fn patch(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<PatchSandbox>,
) -> Answer<Out<Sandbox>> {
    Ok(Out(control.patch_sandbox(&caller, &id, request).await?))
}

/// Deletes a sandbox and everything in it.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 204)))]
async fn delete(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer<StatusCode> {
    control.delete_sandbox(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
