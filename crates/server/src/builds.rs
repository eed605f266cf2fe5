//! Builds of templates: forms received as they come, logs followed while they grow.

use axum::extract::multipart::{Field, Multipart};
use axum::extract::{FromRequest, Request, State};
use axum::http::{StatusCode, header};
use axum::response::Response;
use axum::{Extension, Json as Out};
use contract::template::{BuildForm, TemplateBuild};
use control::{Caller, Control, ControlError, Kind, Upload};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::{ApiError, ApiResult};
use crate::body;
use crate::extract::{Path, Query};
use crate::logs::wants;
use crate::sse::stream_events;

/// Bytes of a form without files; in this form most characters may take three.
const FORM_BYTES_MAX: usize = 8 << 20;

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new()
        .routes(routes!(build))
        .routes(routes!(list))
        .routes(routes!(get, cancel))
        .routes(routes!(logs))
}

/// How to build.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct How {
    /// `true`: the new template takes the place of one of that name when it is done.
    replace: Option<String>,
}

/// Asks for a template from a Dockerfile, an image or the files of a root file system. The answer is a build, which goes on by itself:
/// follow its log, or ask for it until its status is `done` or `failed`.
#[utoipa::path(post, path = "/v1/templates/build", operation_id = "buildTemplate", tag = "templates", params(How),
    request_body(content(
        (BuildForm = "multipart/form-data"),
        (BuildForm = "application/x-www-form-urlencoded"),
    )),
    responses((status = 202, body = TemplateBuild)))]
async fn build(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Query(how): Query<How>,
    request: Request,
) -> ApiResult<(StatusCode, Out<TemplateBuild>)> {
    let kind = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let mut upload = control.receive_build(&caller).await?;
    match kind.as_str() {
        "multipart/form-data" => receive_parts(&mut upload, request).await?,
        "application/x-www-form-urlencoded" => receive_pairs(&mut upload, request).await?,
        _ => {
            let message = "send a form: multipart/form-data or application/x-www-form-urlencoded";
            return Err(ControlError::invalid(message).into());
        }
    }
    let build = upload.start(wants(how.replace.as_deref())).await?;
    Ok((StatusCode::ACCEPTED, Out(build)))
}

async fn receive_pairs(upload: &mut Upload, request: Request) -> ApiResult<()> {
    let bytes = body::read(request.into_body(), FORM_BYTES_MAX).await?;
    let pairs: Vec<(String, String)> = serde_urlencoded::from_bytes(&bytes)
        .map_err(|error| ControlError::invalid(format!("malformed form: {error}")))?;
    for (name, value) in pairs {
        upload.text(&name, value)?;
    }
    Ok(())
}

fn cut_off(error: &axum::extract::multipart::MultipartError) -> ApiError {
    ControlError::invalid(format!("malformed form, or it was cut off: {}", error.body_text())).into()
}

async fn receive_parts(upload: &mut Upload, request: Request) -> ApiResult<()> {
    let form = Multipart::from_request(request, &()).await;
    let mut form = form.map_err(|error| ControlError::invalid(error.body_text()))?;
    while let Some(part) = form.next_field().await.map_err(|error| cut_off(&error))? {
        let Some(name) = part.name().map(str::to_owned) else {
            return Err(ControlError::invalid("a part of the form has no name").into());
        };
        // A part with a file name is a file, whatever it is called; one without never is.
        match part.file_name().is_some() {
            true => receive_file(upload, &name, part).await?,
            false => receive_text(upload, &name, part).await?,
        }
    }
    Ok(())
}

async fn receive_file(upload: &mut Upload, name: &str, mut part: Field<'_>) -> ApiResult<()> {
    upload.file(name, part.content_type()).await?;
    while let Some(piece) = part.chunk().await.map_err(|error| cut_off(&error))? {
        upload.write(&piece).await?;
    }
    Ok(())
}

async fn receive_text(upload: &mut Upload, name: &str, mut part: Field<'_>) -> ApiResult<()> {
    let mut bytes = Vec::new();
    while let Some(piece) = part.chunk().await.map_err(|error| cut_off(&error))? {
        bytes.extend_from_slice(&piece);
        if bytes.len() > upload.text_bytes_left() {
            return Err(
                ControlError::new(Kind::TooLarge, "the fields that are no files are too large").into()
            );
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| ControlError::invalid("a field is not UTF-8"))?;
    Ok(upload.text(name, text)?)
}

/// Builds, newest first.
#[utoipa::path(get, path = "/v1/templates/builds", operation_id = "listBuilds", tag = "templates",
    responses((status = 200, body = Vec<TemplateBuild>)))]
async fn list(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
) -> ApiResult<Out<Vec<TemplateBuild>>> {
    Ok(Out(control.list_builds(&caller).await?))
}

/// One build.
#[utoipa::path(get, path = "/v1/templates/builds/{id}", operation_id = "getBuild", tag = "templates", params(("id" = String, Path)),
    responses((status = 200, body = TemplateBuild)))]
async fn get(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<Out<TemplateBuild>> {
    Ok(Out(control.build(&caller, &id).await?))
}

/// Cancels a build: it ends as `failed` with the error `cancelled`. One that has ended stays as it is.
#[utoipa::path(delete, path = "/v1/templates/builds/{id}", operation_id = "cancelBuild", tag = "templates", params(("id" = String, Path)),
    responses((status = 204)))]
async fn cancel(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> ApiResult<StatusCode> {
    control.cancel_build(&caller, &id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Which lines.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct Which {
    /// `1` or `true`: lines that follow too, until the build ends.
    follow: Option<String>,
}

/// What a build says, as events without a name whose data is one line each; then an event `done` with the data `end`.
#[utoipa::path(get, path = "/v1/templates/builds/{id}/logs", operation_id = "getBuildLogs", tag = "templates", params(("id" = String, Path), Which),
    responses((status = 200, content((String = "text/event-stream")))))]
async fn logs(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> ApiResult<Response> {
    let follow = wants(which.follow.as_deref());
    let mut log = control.build_log(&caller, &id, 0).await?;
    Ok(stream_events(move |out| async move {
        loop {
            let progress = !log.lines.is_empty();
            for line in log.lines {
                if out.line(&harmless(&line)).await.is_err() {
                    return;
                }
            }
            if log.is_last || !follow && !progress {
                // Nobody is there to be told of a reader that is gone.
                let _ = out.done().await;
                return;
            }
            if !progress && !control.build_log_pause().await {
                return;
            }
            match control.build_log(&caller, &id, log.next).await {
                Ok(more) => log = more,
                Err(_) => return,
            }
        }
    }))
}

/// Published clients take some lines for something else: one ends a stream at a line `end`, another at `event: done` anywhere in one,
/// and takes what looks like a JSON object apart.
fn harmless(line: &str) -> String {
    let line = line.replace("event: done", "event:done");
    match line.trim() {
        "end" => format!("| {line}"),
        text if text.starts_with('{') => format!("| {line}"),
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn lines_are_taken_for_what_they_are() {
        for line in ["", "  RUN make", "ends", "append end", "a {\"error\":\"x\"}"] {
            assert_eq!(harmless(line), line);
        }
        assert_eq!(harmless(" end "), "|  end ");
        assert_eq!(harmless("{\"error\":\"x\"}"), "| {\"error\":\"x\"}");
        assert_eq!(harmless("echo event: done"), "echo event:done");
    }
}
