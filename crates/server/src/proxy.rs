//! Ports of a sandbox, reached with a key: `/v1/sandboxes/{id}/proxy/{port}/…`.

use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::any;
use control::{Caller, Control, ControlError};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

use crate::answer::ApiResult;
use crate::extract::Path;
use crate::forward::{Destination, ProxyRoute, check, forward};

/// Segments of a path before those that are the guest's.
const SEGMENTS: usize = 5;

#[derive(OpenApi)]
#[openapi(paths(proxy))]
struct SnapshotMetadata;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::with_openapi(SnapshotMetadata::openapi())
        .route("/v1/sandboxes/{id}/proxy/{port}", any(proxy))
        .route("/v1/sandboxes/{id}/proxy/{port}/", any(proxy))
        .route("/v1/sandboxes/{id}/proxy/{port}/{*path}", any(proxy))
}

/// The part of a path that stands for the guest's root, as the client wrote it.
fn prefix(path: &str) -> String {
    let ends = path.match_indices('/').nth(SEGMENTS).map_or(path.len(), |(at, _)| at);
    path[..ends].to_owned()
}

/// Passes any request on to a program that listens on a port of the sandbox, WebSockets included. Every method; the path behind
/// the port may have any number of segments.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/proxy/{port}/{path}", operation_id = "proxyRequest", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path), ("path" = String, Path)),
    responses((status = "default", description = "Whatever the program answers")))]
async fn proxy(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(parts): Path<Vec<(String, String)>>,
    request: Request,
) -> ApiResult<Response> {
    let part = |name: &str| parts.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value.as_str());
    let port: u16 =
        part("port").parse().map_err(|_| ControlError::invalid("port must be between 1 and 65535"))?;
    check(&request)?;
    let guest = control.connect(&caller, part("id"), port).await?;
    let destination =
        Destination { port, passage: ProxyRoute::Keyed { prefix: prefix(request.uri().path()) } };
    Ok(forward(&control, &destination, guest, request).await?)
}

#[cfg(test)]
mod tests {
    use super::prefix;

    #[test]
    fn everything_behind_the_port_is_the_guests() {
        for path in
            ["/v1/sandboxes/a/proxy/80", "/v1/sandboxes/a/proxy/80/", "/v1/sandboxes/a/proxy/80//x/%2F"]
        {
            assert_eq!(prefix(path), "/v1/sandboxes/a/proxy/80", "{path}");
        }
    }
}
