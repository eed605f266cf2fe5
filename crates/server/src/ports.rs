//! Ports, and links to them.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::{Extension, Json as Out};
use contract::port::{AddPort, CreatePreview, Port, Preview};
use control::{Caller, Control};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::Path;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(list, add))
        .routes(routes!(remove))
        .routes(routes!(preview_token))
        .routes(routes!(preview))
}

/// Ports that something listens on, and those that were named.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports", operation_id = "listPorts", tag = "ports", params(("id" = String, Path)),
    responses((status = 200, body = Vec<Port>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<Vec<Port>>> {
    Ok(Out(control.ports(&caller, &id).await?))
}

/// Names a port, and opens it to whoever knows the sandbox's address.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/ports", operation_id = "addPort", tag = "ports", params(("id" = String, Path)),
    request_body = AddPort, responses((status = 201, body = Port)))]
async fn add(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Json(request): Json<AddPort>,
) -> ApiResult<(StatusCode, Out<Port>)> {
    Ok((StatusCode::CREATED, Out(control.add_port(&caller, &id, request).await?)))
}

/// Forgets a port's name.
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/ports/{port}", operation_id = "removePort", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path)), responses((status = 204)))]
async fn remove(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path((id, port)): Path<(String, u16)>,
) -> ApiResult<StatusCode> {
    control.remove_port(&caller, &id, port).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Where the API is reached, for links: as the operator set it, else as this request came.
pub(crate) fn base_url(control: &Control, headers: &HeaderMap) -> String {
    if let Some(url) = &control.config().public_url {
        return url.clone();
    }
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let plain =
        |host: &&str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-:[]_".contains(&byte));
    format!("http://{}", host.filter(plain).unwrap_or("localhost"))
}

/// A link to a port that works without a key for a while.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/preview-token", operation_id = "createPreviewToken", tag = "ports", params(("id" = String, Path)),
    request_body = CreatePreview, responses((status = 200, body = Preview)))]
async fn preview_token(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    Json(request): Json<CreatePreview>,
) -> ApiResult<Out<Preview>> {
    let base = base_url(&control, &headers);
    Ok(Out(control.create_preview(&caller, &id, request, &base).await?))
}

/// The same as `preview-token`.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/preview", operation_id = "createPreview", tag = "ports", params(("id" = String, Path)),
    request_body = CreatePreview, responses((status = 200, body = Preview)))]
async fn preview(
    state: State<Control>,
    caller: Extension<Caller>,
    id: Path<String>,
    headers: HeaderMap,
    request: Json<CreatePreview>,
) -> ApiResult<Out<Preview>> {
    preview_token(state, caller, id, headers, request).await
}
