//! Forks, and choosing among the children.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Out};
use contract::snapshot::{ForkAnswer, ForkRequest, PromoteAnswer, PromoteRequest};
use control::{Caller, Control};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::Path;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(fork)).routes(routes!(fork_tree)).routes(routes!(promote))
}

/// Makes children that go on from this instant of a sandbox: one unless `count` says otherwise. The sandbox goes on too.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fork", operation_id = "forkSandbox", tag = "forks", params(("id" = String, Path)),
    request_body = ForkRequest, responses((status = 201, body = ForkAnswer)))]
async fn fork(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<ForkRequest>,
) -> ApiResult<(StatusCode, Out<ForkAnswer>)> {
    Ok((StatusCode::CREATED, Out(control.fork(&caller, &id, request).await?)))
}

/// The same as `fork`. Children that could not be created are in `errors`.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fork-tree", operation_id = "forkSandboxTree", tag = "forks", params(("id" = String, Path)),
    request_body = ForkRequest, responses((status = 201, body = ForkAnswer)))]
async fn fork_tree(
    state: State<Control>,
    caller: Extension<Caller>,
    id: Path<String>,
    request: Json<ForkRequest>,
) -> ApiResult<(StatusCode, Out<ForkAnswer>)> {
    fork(state, caller, id, request).await
}

/// Keeps one child of a fork and, with `cleanup_siblings`, deletes the others.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/promote", operation_id = "promoteSandbox", tag = "forks", params(("id" = String, Path)),
    request_body = PromoteRequest, responses((status = 200, body = PromoteAnswer)))]
async fn promote(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<PromoteRequest>,
) -> ApiResult<Out<PromoteAnswer>> {
    Ok(Out(control.promote(&caller, &id, request).await?))
}
