//! Files, streamed both ways.

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json as Out};
use contract::file::{DirectoryListing, FileChange, FileEntry, FileWritten};
use control::{Caller, Control, ControlError};
use futures::{StreamExt, stream};
use guest_link::client::FileWriter;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::{Path, Query};

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(read, write, remove))
        .routes(routes!(list))
        .routes(routes!(stat))
        .routes(routes!(make_directory))
        .routes(routes!(rename))
        .routes(routes!(set_mode))
}

/// Which file.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct At {
    /// An absolute path in the sandbox.
    #[serde(default)]
    path: String,
}

/// A file's contents.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/fs", operation_id = "readFile", tag = "files", params(("id" = String, Path), At),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
async fn read(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(at): Query<At>,
) -> ApiResult<Response> {
    let (sandbox, reader) = control.read_file(&caller, &id, &at.path).await?;
    let size = reader.entry().size;
    let regular = reader.entry().kind == guest_link::message::EntryKind::File;
    let body = stream::unfold((sandbox, reader), |(sandbox, mut reader)| async move {
        match reader.next().await {
            Ok(Some(bytes)) => Some((Ok(Bytes::from(bytes)), (sandbox, reader))),
            Ok(None) => None,
            // The answer has begun: all that is left is to cut it off.
            Err(error) => Some((Err(std::io::Error::from(error)), (sandbox, reader))),
        }
    });
    let mut response = Body::from_stream(body).into_response();
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // A file that grows or shrinks meanwhile would make the length a lie; so would one in /proc, whose size is 0.
    if regular && size > 0 {
        headers.insert("x-file-size", HeaderValue::from(size));
    }
    Ok(response)
}

/// Writes a file: aside first, so that it is replaced as a whole or not at all. Missing directories are made.
#[utoipa::path(put, path = "/v1/sandboxes/{id}/fs", operation_id = "writeFile", tag = "files", params(("id" = String, Path), At),
    request_body(content_type = "application/octet-stream", content = Vec<u8>),
    responses((status = 200, body = FileWritten)))]
async fn write(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(at): Query<At>,
    request: Request,
) -> ApiResult<Out<FileWritten>> {
    let (_sandbox, writer) = control.write_file(&caller, &id, &at.path).await?;
    let bytes = receive(writer, request.into_body()).await?;
    Ok(Out(FileWritten { path: at.path, bytes }))
}

/// Writes what comes; how many bytes that was. Nothing is replaced when it is cut off.
pub(crate) async fn receive(mut writer: FileWriter, body: Body) -> Result<u64, ControlError> {
    let mut body = body.into_data_stream();
    while let Some(piece) = body.next().await {
        let piece =
            piece.map_err(|_| ControlError::invalid("the upload was cut off; nothing was written"))?;
        writer.write(&piece).await.map_err(ControlError::from)?;
    }
    Ok(writer.finish().await?)
}

/// Removes a file, or a directory with everything in it.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/fs", operation_id = "deleteFile", tag = "files", params(("id" = String, Path), At),
    responses((status = 204)))]
async fn remove(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(at): Query<At>,
) -> ApiResult<StatusCode> {
    control.remove_file(&caller, &id, &at.path).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What is in a directory; `/` when no path is given.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/fs/dir", operation_id = "listDirectory", tag = "files", params(("id" = String, Path), At),
    responses((status = 200, body = DirectoryListing)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(at): Query<At>,
) -> ApiResult<Out<DirectoryListing>> {
    Ok(Out(control.list_directory(&caller, &id, &at.path).await?))
}

/// One file's metadata.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/fs/stat", operation_id = "getFileInfo", tag = "files", params(("id" = String, Path), At),
    responses((status = 200, body = FileEntry)))]
async fn stat(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(at): Query<At>,
) -> ApiResult<Out<FileEntry>> {
    Ok(Out(control.stat(&caller, &id, &at.path).await?))
}

/// Makes a directory, with its parents.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fs/mkdir", operation_id = "makeDirectory", tag = "files", params(("id" = String, Path)),
    request_body = FileChange, responses((status = 204)))]
async fn make_directory(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(change): Json<FileChange>,
) -> ApiResult<StatusCode> {
    control.make_directory(&caller, &id, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Moves a file or a directory.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fs/move", operation_id = "moveFile", tag = "files", params(("id" = String, Path)),
    request_body = FileChange, responses((status = 204)))]
async fn rename(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(change): Json<FileChange>,
) -> ApiResult<StatusCode> {
    control.move_file(&caller, &id, change).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Changes who may do what with a file.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fs/chmod", operation_id = "setFileMode", tag = "files", params(("id" = String, Path)),
    request_body = FileChange, responses((status = 204)))]
async fn set_mode(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(change): Json<FileChange>,
) -> ApiResult<StatusCode> {
    control.set_mode(&caller, &id, change).await?;
    Ok(StatusCode::NO_CONTENT)
}
