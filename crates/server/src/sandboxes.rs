//! Sandboxes.

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Out};
use contract::sandbox::{CreateSandbox, DeletedSandboxes, PatchSandbox, Sandbox};
use contract::tree::SandboxTree;
use control::{Caller, Control, ControlError};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
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

/// Makes a sandbox. When it answers, the sandbox takes commands. While its template is being prepared the request is held for a while,
/// or for as long as `Prefer: wait=SECONDS` says, and then refused with how far that is.
#[utoipa::path(post, path = "/v1/sandboxes", operation_id = "createSandbox", tag = "sandboxes", request_body = CreateSandbox,
    params(("Prefer" = Option<String>, Header, description = "`wait=SECONDS`: how long to wait for a template at most (RFC 7240).")),
    responses((status = 201, body = Sandbox)))]
async fn create(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    Json(request): Json<CreateSandbox>,
) -> ApiResult<(StatusCode, Out<Sandbox>)> {
    let made = control.create_sandbox(&caller, request, preferred_wait(&headers)).await?;
    tracing::Span::current().record("sandbox.id", made.id.as_str());
    Ok((StatusCode::CREATED, Out(made)))
}

/// How long a caller would wait (`Prefer: wait=2`, RFC 7240). What is not understood is no preference.
fn preferred_wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all("prefer").into_iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split(','));
    let seconds = preferences.find_map(|one| one.trim().strip_prefix("wait=")?.trim().parse::<u32>().ok());
    seconds.map(|seconds| Duration::from_secs(seconds.into()))
}

/// Sandboxes, newest first: all, or those that fit every filter given.
#[utoipa::path(get, path = "/v1/sandboxes", operation_id = "listSandboxes", tag = "sandboxes", params(Which),
    responses((status = 200, body = Vec<Sandbox>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<Vec<(String, String)>>,
) -> ApiResult<impl IntoResponse> {
    let list = control.list_sandboxes(&caller, filter(&query)?).await?;
    Ok(([(header::CONTENT_TYPE, "application/json")], list))
}

/// Deletes all sandboxes that fit every filter given, and everything in them. At least one filter, or `all=true`, is needed.
#[utoipa::path(delete, path = "/v1/sandboxes", operation_id = "deleteSandboxes", tag = "sandboxes", params(Which, All),
    responses((status = 200, body = DeletedSandboxes)))]
async fn delete_all(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Query(query): Query<Vec<(String, String)>>,
) -> ApiResult<Out<DeletedSandboxes>> {
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
#[utoipa::path(get, path = "/v1/sandboxes/{id}/tree", operation_id = "getForkTree", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = SandboxTree)))]
async fn tree(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<SandboxTree>> {
    Ok(Out(control.tree(&caller, &id).await?))
}

/// One sandbox.
#[utoipa::path(get, path = "/v1/sandboxes/{id}", operation_id = "getSandbox", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox)))]
async fn get(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<Sandbox>> {
    Ok(Out(control.sandbox(&caller, &id).await?))
}

/// Changes name, metadata, variables or network of a sandbox.
#[utoipa::path(patch, path = "/v1/sandboxes/{id}", operation_id = "updateSandbox", tag = "sandboxes", params(("id" = String, Path)),
    request_body = PatchSandbox, responses((status = 200, body = Sandbox)))]
async fn patch(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<PatchSandbox>,
) -> ApiResult<Out<Sandbox>> {
    Ok(Out(control.patch_sandbox(&caller, &id, request).await?))
}

/// Deletes a sandbox and everything in it.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", operation_id = "deleteSandbox", tag = "sandboxes", params(("id" = String, Path)),
    responses((status = 204)))]
async fn delete(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    control.delete_sandbox(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_is_read_and_nonsense_is_none() {
        let wait = |value: &'static str| {
            let headers = [(axum::http::HeaderName::from_static("prefer"), value.parse().expect("a value"))];
            preferred_wait(&headers.into_iter().collect()).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("wait=2"), Some(2));
        assert_eq!(wait("respond-async, wait=10"), Some(10));
        for nothing in ["wait=", "wait=-1", "wait=soon", "respond-async", "waits=3"] {
            assert_eq!(wait(nothing), None, "{nothing}");
        }
    }
}
