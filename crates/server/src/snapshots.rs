//! Snapshots.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Out};
use contract::snapshot::{Snapshot, Snapshots};
use control::{Caller, Control};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::{Path, Query};

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(list)).routes(routes!(get, delete))
}

/// Keeps an instant of a sandbox, memory and disk; the sandbox goes on.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/snapshots", operation_id = "createSnapshot", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 201, body = Snapshot)))]
async fn create(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<(StatusCode, Out<Snapshot>)> {
    Ok((StatusCode::CREATED, Out(control.create_snapshot(&caller, &id).await?)))
}

/// Which snapshots.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Of {
    /// Only those of this sandbox.
    sandbox_id: Option<String>,
}

/// Snapshots, newest first.
#[utoipa::path(get, path = "/v1/snapshots", operation_id = "listSnapshots", tag = "snapshots", params(Of),
    responses((status = 200, body = Snapshots)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Query(of): Query<Of>,
) -> ApiResult<Out<Snapshots>> {
    let snapshots = control.list_snapshots(&caller, of.sandbox_id.as_deref()).await?;
    Ok(Out(Snapshots { snapshots }))
}

/// One snapshot.
#[utoipa::path(get, path = "/v1/snapshots/{id}", operation_id = "getSnapshot", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 200, body = Snapshot)))]
async fn get(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<Snapshot>> {
    Ok(Out(control.snapshot(&caller, &id).await?))
}

/// Deletes a snapshot. Sandboxes made from it are not touched.
#[utoipa::path(delete, path = "/v1/snapshots/{id}", operation_id = "deleteSnapshot", tag = "snapshots", params(("id" = String, Path)),
    responses((status = 204)))]
async fn delete(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    control.delete_snapshot(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}
