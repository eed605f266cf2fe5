//! Sandboxes.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Out};
use contract::sandbox::{CreateSandbox, DeletedSandboxes, PatchSandbox, Sandbox};
use contract::tree::SandboxTree;
use control::{Caller, Control, ControlError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::body::Json;
use crate::extract::{Path, Query};
use crate::request_id;
use crate::sandbox_filter::{All, Which, filter, is_all};

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(create, list, delete_all))
        .routes(routes!(get, patch, delete))
        .routes(routes!(tree))
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

/// Sandboxes, newest first: all, or those that fit every filter given.
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", params(Which),
    responses((status = 200, body = Vec<Sandbox>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<Vec<(String, String)>>,
) -> Answer<impl IntoResponse> {
    let list = control.list_sandboxes(&caller, filter(&query)?).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], list))
}

/// Deletes all sandboxes that fit every filter given, and everything in them. At least one filter, or `all=true`, is needed.
#[utoipa::path(delete, path = "/v1/sandboxes", tag = "sandboxes", params(Which, All),
    responses((status = 200, body = DeletedSandboxes)))]
async fn delete_all(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<Vec<(String, String)>>,
) -> Answer<Out<DeletedSandboxes>> {
    let filter = filter(&query)?;
    if filter.is_empty() && !is_all(&query)? {
        let error = ControlError::invalid("say which sandboxes to delete: give a filter, or all=true");
        return Err(error.hint("filters are status, template, name, metadata, parent and root").into());
    }
    let answer = control.delete_sandboxes(&caller, filter).await?;
    // The request itself is in the audit log too, but does not say which they were.
    for id in &answer.deleted {
        let path = format!("/v1/sandboxes/{id}");
        let status = StatusCode::NO_CONTENT.as_u16();
        control.audit(&caller, &request_id::current(), "DELETE", &path, status).await;
    }
    Ok(Out(answer))
}

/// Where a sandbox comes from, and all that comes from the same.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/tree", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxTree)))]
async fn tree(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Answer<Out<SandboxTree>> {
    Ok(Out(control.tree(&caller, &id).await?))
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

/// Changes name, metadata, variables or network of a sandbox.
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
