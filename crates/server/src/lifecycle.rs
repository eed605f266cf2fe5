//! Pausing, sleeping, waking, and how long a sandbox may idle.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Out};
use contract::lifecycle::{Lifecycle, PatchLifecycle, StartRequest, StatusAnswer};
use contract::sandbox::SandboxStatus;
use control::{Caller, Control};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::Path;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(hibernate))
        .routes(routes!(stop))
        .routes(routes!(wake))
        .routes(routes!(start))
        .routes(routes!(lifecycle, patch_lifecycle))
}

const fn now(status: SandboxStatus) -> Out<StatusAnswer> {
    Out(StatusAnswer { status })
}

/// Stops a sandbox's CPUs; its memory stays.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/pause", operation_id = "pauseSandbox", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 204)))]
async fn pause(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    control.pause(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets a paused sandbox go on.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/resume", operation_id = "resumeSandbox", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 204)))]
async fn resume(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    control.resume(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Puts a sandbox to sleep: memory and disk are kept, nothing runs.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/hibernate", operation_id = "hibernateSandbox", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 200, body = StatusAnswer)))]
async fn hibernate(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<StatusAnswer>> {
    control.hibernate(&caller, &id).await?;
    Ok(now(SandboxStatus::Hibernated))
}

/// The same as `hibernate`.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/stop", operation_id = "stopSandbox", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 200, body = StatusAnswer)))]
async fn stop(
    state: State<Control>,
    caller: Extension<Caller>,
    id: Path<String>,
) -> ApiResult<Out<StatusAnswer>> {
    hibernate(state, caller, id).await
}

/// Wakes a sandbox. One that is awake stays so.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/wake", operation_id = "wakeSandbox", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 200, body = StatusAnswer)))]
async fn wake(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<StatusAnswer>> {
    control.wake(&caller, &id).await?;
    Ok(now(SandboxStatus::Running))
}

/// The same as `wake`; with `{"cold": true}` boots a sandbox from its disk, when its memory cannot be used any more.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/start", operation_id = "startSandbox", tag = "lifecycle", params(("id" = String, Path)),
    request_body = StartRequest, responses((status = 200, body = StatusAnswer)))]
async fn start(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<StartRequest>,
) -> ApiResult<Out<StatusAnswer>> {
    match request.cold.unwrap_or(false) {
        true => control.start_cold(&caller, &id).await?,
        false => control.wake(&caller, &id).await?,
    }
    Ok(now(SandboxStatus::Running))
}

/// How long a sandbox may idle.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/lifecycle", operation_id = "getLifecycle", tag = "lifecycle", params(("id" = String, Path)),
    responses((status = 200, body = Lifecycle)))]
async fn lifecycle(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<Lifecycle>> {
    Ok(Out(control.lifecycle(&caller, &id).await?))
}

/// Changes how long a sandbox may idle.
#[utoipa::path(patch, path = "/v1/sandboxes/{id}/lifecycle", operation_id = "updateLifecycle", tag = "lifecycle", params(("id" = String, Path)),
    request_body = PatchLifecycle, responses((status = 200, body = Lifecycle)))]
async fn patch_lifecycle(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<PatchLifecycle>,
) -> ApiResult<Out<Lifecycle>> {
    Ok(Out(control.patch_lifecycle(&caller, &id, request).await?))
}
