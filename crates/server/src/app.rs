//! All routes together, and the document that describes them.

use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::{Extension, Router};
use control::{Control, ControlError, Kind};
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder,
};
use utoipa_axum::router::OpenApiRouter;

use crate::answer::ApiError;
use crate::operations::Build;
use crate::query::Parameters;
use crate::{
    auth, builds, contexts, docs, events, exec, exec_socket, file_watch, files, forks, identity,
    language_server, lifecycle, logs, mcp, metrics, operations, ports, preview, processes, proxy, query,
    request_id, sandboxes, signed_file, snapshots, templates, terminal, tunnel, volumes,
};

#[derive(OpenApi)]
#[openapi(
    info(
        title = "PandaStack",
        description = "Real machines for AI agents: every sandbox a VM of its own, forkable while it runs, asleep when idle.",
    ),
    components(schemas(contract::error::ErrorBody))
)]
struct SnapshotMetadata;

/// Statuses that any request with a key may be answered with.
const FAILURES: [(&str, &str); 12] = [
    ("400", "The request is malformed"),
    ("401", "The key is missing, unknown, expired or revoked"),
    ("403", "The key does not allow it"),
    ("404", "It is not there, or it is somebody else's"),
    ("409", "It conflicts with the current state"),
    ("413", "Larger than allowed"),
    ("429", "Too much or too often; with `Retry-After` when waiting helps"),
    ("500", "Something went wrong on the server"),
    ("502", "The guest failed"),
    ("503", "Not now; with `Retry-After` when waiting helps"),
    ("504", "It took too long"),
    ("507", "The host has no room"),
];

fn with_key() -> OpenApiRouter<Control> {
    api().merge(proxy::routes())
}

/// What is answered here and passed on to no guest.
fn api() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .merge(sandboxes::routes())
        .merge(lifecycle::routes())
        .merge(exec::routes())
        .merge(exec_socket::routes())
        .merge(terminal::routes())
        .merge(language_server::routes())
        .merge(processes::routes())
        .merge(files::routes())
        .merge(file_watch::routes())
        .merge(signed_file::routes())
        .merge(contexts::routes())
        .merge(snapshots::routes())
        .merge(forks::routes())
        .merge(ports::routes())
        .merge(tunnel::routes())
        .merge(volumes::routes())
        .merge(templates::routes())
        .merge(builds::routes())
        .merge(logs::routes())
        .merge(events::routes())
        .merge(metrics::routes())
        .merge(identity::routes())
        .merge(mcp::routes())
}

/// The document that describes the API.
#[must_use]
pub fn openapi() -> Document {
    let (_, document) = OpenApiRouter::with_openapi(SnapshotMetadata::openapi())
        .merge(with_key())
        .merge(operations::routes())
        .merge(preview::routes())
        .merge(signed_file::open_routes())
        .split_for_parts();
    complete(document)
}

/// What is true of every request and would only be repeated at each.
fn complete(mut document: Document) -> Document {
    let components = document.components.get_or_insert_with(Components::new);
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    components.add_security_scheme("key", bearer);
    document.security = Some(vec![SecurityRequirement::new("key", Vec::<String>::new())]);
    let failure = |description: &str| -> RefOr<Response> {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
        ResponseBuilder::new().description(description).content("application/json", content).build().into()
    };
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.post, &mut item.put, &mut item.patch, &mut item.delete]
            .into_iter()
            .flatten();
        for operation in operations {
            if operation.security.is_some() {
                continue;
            }
            for (status, description) in FAILURES {
                operation
                    .responses
                    .responses
                    .entry(status.to_owned())
                    .or_insert_with(|| failure(description));
            }
        }
    }
    document
}

async fn unknown_route() -> ApiError {
    let error = ControlError::not_found("there is no such route");
    ApiError(error.hint("the routes are described at /docs and /openapi.json"))
}

async fn wrong_method() -> ApiError {
    ApiError(ControlError::new(Kind::Method, "this route does not take that method"))
}

/// The whole API.
pub fn router(control: &Control, build: &Build) -> Router {
    let (api, document) = api().split_for_parts();
    let api = api.layer(from_fn_with_state(Parameters::of(&document), query::layer));
    let (proxied, _) = proxy::routes().split_for_parts();
    let protected = api.merge(proxied).layer(from_fn_with_state(control.clone(), auth::layer));
    let (open, _) = operations::routes().split_for_parts();
    let open = open.layer(Extension(build.clone()));
    let (signed, _) = signed_file::open_routes().split_for_parts();
    let (previews, _) = preview::routes().split_for_parts();
    let previews = previews.layer(DefaultBodyLimit::disable()).layer(from_fn(docs::no_panics));
    Router::new()
        .merge(protected)
        .merge(open)
        .merge(signed)
        .merge(docs::routes())
        .fallback(unknown_route)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn(docs::no_panics))
        .layer(from_fn_with_state(control.clone(), request_id::layer))
        // Answers of guests are theirs: nothing of the API's is put around them.
        .merge(previews)
        .with_state(control.clone())
}
