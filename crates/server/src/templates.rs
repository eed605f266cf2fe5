//! Templates: everybody's, and one's own.

use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json as Out};
use contract::template::Template;
use control::{Caller, Control};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::extract::Path;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, delete)).routes(routes!(prepare))
}

/// All templates: everybody's, then one's own, newest first.
#[utoipa::path(get, path = "/v1/templates", operation_id = "listTemplates", tag = "templates", responses((status = 200, body = Vec<Template>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
) -> ApiResult<Out<Vec<Template>>> {
    Ok(Out(control.list_templates(&caller).await?))
}

/// One template, with what it takes on the host.
#[utoipa::path(get, path = "/v1/templates/{name}", operation_id = "getTemplate", tag = "templates", params(("name" = String, Path)),
    responses((status = 200, body = Template)))]
async fn get(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> ApiResult<Out<Template>> {
    Ok(Out(control.template(&caller, &name).await?))
}

/// Deletes a template of one's own. Sandboxes made from it go on.
#[utoipa::path(delete, path = "/v1/templates/{name}", operation_id = "deleteTemplate", tag = "templates", params(("name" = String, Path)),
    responses((status = 204)))]
async fn delete(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    control.delete_template(&caller, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Starts preparing a template ahead of its first use, unless it is ready. `GET` tells how far it is.
#[utoipa::path(post, path = "/v1/templates/{name}/prepare", operation_id = "prepareTemplate", tag = "templates", params(("name" = String, Path)),
    responses((status = 202, body = Template)))]
async fn prepare(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> ApiResult<(StatusCode, Out<Template>)> {
    Ok((StatusCode::ACCEPTED, Out(control.prepare_template(&caller, &name).await?)))
}
