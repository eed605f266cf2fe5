//! Measurements for callers.

use axum::extract::State;
use axum::{Extension, Json as Out};
use contract::operation::{BootStats, SandboxMetrics};
use control::{Caller, Control};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::{Path, Query};

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(sandbox)).routes(routes!(boot))
}

/// What a sandbox costs its host, and what its guest sees. Does not wake it.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/metrics", operation_id = "getMetrics", tag = "observation", params(("id" = String, Path)),
    responses((status = 200, body = SandboxMetrics)))]
async fn sandbox(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<SandboxMetrics>> {
    Ok(Out(control.sandbox_metrics(&caller, &id).await?))
}

/// How many.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Limit {
    /// How many recent creations are listed; 50 when absent.
    limit: Option<usize>,
}

/// How long recent creations took.
#[utoipa::path(get, path = "/v1/stats/boot", operation_id = "getBootStats", tag = "observation", params(Limit),
    responses((status = 200, body = BootStats)))]
async fn boot(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Query(limit): Query<Limit>,
) -> ApiResult<Out<BootStats>> {
    Ok(Out(control.boot_stats(&caller, limit.limit).await?))
}
