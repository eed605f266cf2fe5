//! Who is calling, keys, organisations.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Out};
use contract::event::Audit;
use contract::identity::{CreateToken, CreatedToken, Me, Organisation, PatchMe, Token};
use control::{Caller, Control, ControlError};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body::Json;
use crate::extract::{Path, Query};

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(me, patch_me))
        .routes(routes!(tokens, create_token))
        .routes(routes!(revoke_token))
        .routes(routes!(organisations))
        .routes(routes!(organisation))
        .routes(routes!(audit))
}

/// Who is calling.
#[utoipa::path(get, path = "/v1/me", operation_id = "getMe", tag = "identity", responses((status = 200, body = Me)))]
async fn me(State(control): State<Control>, Extension(caller): Extension<Caller>) -> ApiResult<Out<Me>> {
    Ok(Out(control.me(&caller).await?))
}

/// Changes the workspace. Needs an admin key.
#[utoipa::path(patch, path = "/v1/me", operation_id = "updateMe", tag = "identity", request_body = PatchMe, responses((status = 200, body = Me)))]
async fn patch_me(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Json(patch): Json<PatchMe>,
) -> ApiResult<Out<Me>> {
    Ok(Out(control.patch_me(&caller, patch).await?))
}

/// Keys of the workspace, without the keys.
#[utoipa::path(get, path = "/v1/me/tokens", operation_id = "listApiKeys", tag = "identity", responses((status = 200, body = Vec<Token>)))]
async fn tokens(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
) -> ApiResult<Out<Vec<Token>>> {
    Ok(Out(control.tokens(&caller).await?))
}

/// A new key. It is shown this once.
#[utoipa::path(post, path = "/v1/me/tokens", operation_id = "createApiKey", tag = "identity", request_body = CreateToken,
    responses((status = 201, body = CreatedToken)))]
async fn create_token(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Json(request): Json<CreateToken>,
) -> ApiResult<(StatusCode, Out<CreatedToken>)> {
    Ok((StatusCode::CREATED, Out(control.create_token(&caller, request).await?)))
}

/// Makes a key useless from now on.
#[utoipa::path(delete, path = "/v1/me/tokens/{prefix}", operation_id = "revokeApiKey", tag = "identity", params(("prefix" = String, Path)),
    responses((status = 204)))]
async fn revoke_token(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(prefix): Path<String>,
) -> ApiResult<StatusCode> {
    control.revoke_token(&caller, &prefix).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Organisations of the caller: its workspace.
#[utoipa::path(get, path = "/v1/orgs", operation_id = "listOrganisations", tag = "identity", responses((status = 200, body = Vec<Organisation>)))]
async fn organisations(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
) -> ApiResult<Out<Vec<Organisation>>> {
    Ok(Out(vec![control.organisation(&caller).await?]))
}

/// One organisation.
#[utoipa::path(get, path = "/v1/orgs/{id}", operation_id = "getOrganisation", tag = "identity", params(("id" = String, Path)),
    responses((status = 200, body = Organisation)))]
async fn organisation(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<Organisation>> {
    let own = control.organisation(&caller).await?;
    match own.id == id {
        true => Ok(Out(own)),
        false => Err(ControlError::not_found("there is no such organisation").into()),
    }
}

/// Which lines of the audit log.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Lines {
    /// From when on: RFC 3339, or seconds of Unix time.
    since: Option<String>,
    /// How many at most.
    limit: Option<usize>,
}

/// Requests that changed something, newest first.
#[utoipa::path(get, path = "/v1/audit", operation_id = "listAudit", tag = "identity", params(Lines), responses((status = 200, body = Audit)))]
async fn audit(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Query(lines): Query<Lines>,
) -> ApiResult<Out<Audit>> {
    Ok(Out(control.audit_entries(&caller, lines.since.as_deref(), lines.limit).await?))
}
