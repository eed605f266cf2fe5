//! Templates.

use axum::Json as Out;
use axum::extract::State;
use axum::http::StatusCode;
use contract::template::Template;
use control::Control;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Answer;
use crate::extract::Path;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get)).routes(routes!(prepare))
}

/// All templates.
#[utoipa::path(get, path = "/v1/templates", tag = "templates", responses((status = 200, body = Vec<Template>)))]
async fn list(State(control): State<Control>) -> Out<Vec<Template>> {
    Out(control.list_templates())
}

/// One template.
#[utoipa::path(get, path = "/v1/templates/{name}", tag = "templates", params(("name" = String, Path)),
    responses((status = 200, body = Template)))]
async fn get(State(control): State<Control>, Path(name): Path<String>) -> Answer<Out<Template>> {
    Ok(Out(control.template(&name)?))
}

/// Starts preparing a template ahead of its first use, unless it is ready. `GET` tells how far it is.
#[utoipa::path(post, path = "/v1/templates/{name}/prepare", tag = "templates", params(("name" = String, Path)),
    responses((status = 202, body = Template)))]
async fn prepare(
    State(control): State<Control>,
    Path(name): Path<String>,
) -> Answer<(StatusCode, Out<Template>)> {
    control.template(&name)?;
    control.prepare_template(&name)?;
    Ok((StatusCode::ACCEPTED, Out(control.template(&name)?)))
}
