//! Volumes.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Out};
use contract::volume::{CreateVolume, PatchVolume, Volume};
use control::{Caller, Control};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::Path;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(get, patch, delete))
}

/// Volumes, newest first.
#[utoipa::path(get, path = "/v1/volumes", operation_id = "listVolumes", tag = "volumes", responses((status = 200, body = Vec<Volume>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
) -> ApiResult<Out<Vec<Volume>>> {
    Ok(Out(control.list_volumes(&caller).await?))
}

/// Makes a volume with an empty ext4 file system.
#[utoipa::path(post, path = "/v1/volumes", operation_id = "createVolume", tag = "volumes", request_body = CreateVolume,
    responses((status = 201, body = Volume)))]
async fn create(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<CreateVolume>,
) -> ApiResult<(StatusCode, Out<Volume>)> {
    Ok((StatusCode::CREATED, Out(control.create_volume(&caller, request).await?)))
}

/// One volume.
#[utoipa::path(get, path = "/v1/volumes/{name}", operation_id = "getVolume", tag = "volumes", params(("name" = String, Path)),
    responses((status = 200, body = Volume)))]
async fn get(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> ApiResult<Out<Volume>> {
    Ok(Out(control.volume(&caller, &name).await?))
}

/// Grows a volume. The file system in it is the guest's to grow, with `resize2fs`.
#[utoipa::path(patch, path = "/v1/volumes/{name}", operation_id = "updateVolume", tag = "volumes", params(("name" = String, Path)),
    request_body = PatchVolume, responses((status = 200, body = Volume)))]
async fn patch(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    Json(request): Json<PatchVolume>,
) -> ApiResult<Out<Volume>> {
    Ok(Out(control.patch_volume(&caller, &name, request).await?))
}

/// Deletes a volume that no sandbox has.
#[utoipa::path(delete, path = "/v1/volumes/{name}", operation_id = "deleteVolume", tag = "volumes", params(("name" = String, Path)),
    responses((status = 204)))]
async fn delete(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    control.delete_volume(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
