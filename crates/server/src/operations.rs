//! The server itself: version, health, measurements for Prometheus. No key needed.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::{Extension, Json as Out};
use contract::operation::{Health, Version};
use control::Control;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// What the program was built from, told by the program: a library would have to be compiled anew for every commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// The commit, with `-dirty` behind it when files had changed since; `unknown` when the source was in no repository.
    pub commit: String,
    /// When, as RFC 3339; `unknown` when neither a repository nor `SOURCE_DATE_EPOCH` told.
    pub built_at: String,
}

impl Default for Build {
    fn default() -> Self {
        Self { commit: "unknown".to_owned(), built_at: "unknown".to_owned() }
    }
}

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(version))
        .routes(routes!(version_of_api))
        .routes(routes!(health))
        .routes(routes!(prometheus))
}

/// Which program answers.
#[utoipa::path(get, path = "/version", operation_id = "getServerVersion", tag = "operations", security(()), responses((status = 200, body = Version)))]
async fn version(Extension(build): Extension<Build>) -> Out<Version> {
    Out(Version {
        service: "pandastack".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        semver: env!("CARGO_PKG_VERSION").to_owned(),
        commit: build.commit,
        build_time: build.built_at.clone(),
        built_at: build.built_at,
        os: std::env::consts::OS.to_owned(),
        arch: std::env::consts::ARCH.to_owned(),
    })
}

/// The same as `/version`.
#[utoipa::path(get, path = "/v1/version", operation_id = "getApiVersion", tag = "operations", security(()), responses((status = 200, body = Version)))]
async fn version_of_api(build: Extension<Build>) -> Out<Version> {
    version(build).await
}

/// Whether the server can work.
#[utoipa::path(get, path = "/healthz", operation_id = "getHealth", tag = "operations", security(()),
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn health(State(control): State<Control>) -> (StatusCode, Out<Health>) {
    let checks = control.health().await;
    let well = checks.iter().all(|(_, outcome)| outcome.is_ok());
    let word = if well { "ok" } else { "unavailable" };
    let told =
        checks.into_iter().map(|(name, outcome)| (name.to_owned(), outcome.unwrap_or_else(|error| error)));
    let status = if well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Out(Health { status: word.to_owned(), checks: told.collect() }))
}

/// Measurements, for Prometheus.
#[utoipa::path(get, path = "/metrics", operation_id = "getPrometheusMetrics", tag = "operations", security(()),
    responses((status = 200, content_type = "application/openmetrics-text", body = String)))]
async fn prometheus(State(control): State<Control>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], control.prometheus().await)
}
