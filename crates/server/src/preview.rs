//! Signed links: `/v1/p/{token}/…` leads to a port of a sandbox without a key, until the link expires.
//!
//! The answer is the guest's alone: these routes stand outside of what is put around the API.

use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use control::{Control, ControlError};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::forward::{Destination, ProxyRoute, SIGNED_PREFIX, check, forward};
use crate::page;
use crate::request_id::{self, Incoming};

const ROUTE: &str = "/v1/p/{token}/{*path}";

#[derive(OpenApi)]
#[openapi(paths(preview))]
struct SnapshotMetadata;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::with_openapi(SnapshotMetadata::openapi())
        .route("/v1/p/{token}", any(preview))
        .route("/v1/p/{token}/", any(preview))
        .route(ROUTE, any(preview))
}

/// Passes any request on to the port that a signed link names, WebSockets included. Every method; the path behind the token may
/// have any number of segments.
#[utoipa::path(get, path = "/v1/p/{token}/{path}", operation_id = "openPreview", tag = "ports", security(()),
    params(("token" = String, Path), ("path" = String, Path)),
    responses(
        (status = "default", description = "Whatever the program answers"),
        (status = 401, description = "The link is not valid or has expired", body = contract::error::ErrorBody),
        (status = 403, description = "The link does not cover this path", body = contract::error::ErrorBody),
        (status = 404, description = "The sandbox is gone", body = contract::error::ErrorBody),
        (status = 502, description = "The program failed", body = contract::error::ErrorBody),
        (status = 503, description = "The sandbox does not run", body = contract::error::ErrorBody),
        (status = 504, description = "The program did not answer", body = contract::error::ErrorBody),
    ))]
async fn preview(State(control): State<Control>, request: Request) -> Response {
    // Which sandbox it is about is known when the token has been read.
    let incoming = Incoming::new(request_id::fresh(), request.method().clone(), ROUTE, None);
    let page = page::wanted(request.headers());
    let handled = async {
        match open(&control, request).await {
            Ok(response) => response,
            Err(error) => page::failed(error, page),
        }
    };
    request_id::scope(&control, incoming, handled).await
}

async fn open(control: &Control, request: Request) -> Result<Response, ControlError> {
    let path = request.uri().path();
    let rest = path.strip_prefix(SIGNED_PREFIX).unwrap_or_default();
    // Tokens hold nothing that would need to be percent-encoded.
    let (token, inner) = rest.find('/').map_or((rest, "/"), |at| rest.split_at(at));
    let grant = control.open_preview(token)?;
    if !grant.covers(inner) {
        return Err(ControlError::forbidden("this preview link does not cover this path"));
    }
    check(&request)?;
    let prefix = format!("{SIGNED_PREFIX}{token}");
    let guest = control.connect_preview(&grant).await?;
    tracing::Span::current().record("sandbox.id", guest.0.id());
    let destination =
        Destination { port: grant.port, passage: ProxyRoute::Signed { prefix, limited: grant.is_limited() } };
    forward(control, &destination, guest, request).await
}
