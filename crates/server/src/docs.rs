//! The API's own description, for programs and for people.

use std::fmt::Write;
use std::sync::LazyLock;

use axum::Router;
use axum::extract::Request;
use axum::http::header;
use axum::middleware::Next;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use control::{Control, ControlError};
use futures::FutureExt;
use serde_json::Value;

use crate::answer::ApiError;
use crate::app::openapi;

static DOCUMENT: LazyLock<String> = LazyLock::new(|| serde_json::to_string(&openapi()).unwrap_or_default());
static PAGE: LazyLock<String> = LazyLock::new(page);

pub(crate) fn routes() -> Router<Control> {
    Router::new().route("/openapi.json", get(document)).route("/docs", get(readable))
}

async fn document() -> impl IntoResponse {
    ([(header::CONTENT_TYPE, "application/json")], DOCUMENT.as_str())
}

async fn readable() -> Html<&'static str> {
    Html(&PAGE)
}

/// A defect in one handler answers 500 like any other failure, rather than cutting the connection.
pub(crate) async fn no_panics(request: Request, next: Next) -> Response {
    without_panic(next.run(request)).await
}

/// The answer, or 500 where making it panicked.
pub(crate) async fn without_panic(answer: impl Future<Output = Response>) -> Response {
    match std::panic::AssertUnwindSafe(answer).catch_unwind().await {
        Ok(response) => response,
        Err(_) => ApiError(ControlError::internal("a handler panicked")).into_response(),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// What a schema is called, for people.
fn shape(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#{name}\">{name}</a>");
    }
    let kind = match &schema["type"] {
        Value::String(kind) => kind.clone(),
        Value::Array(kinds) => {
            let known: Vec<_> =
                kinds.iter().filter_map(Value::as_str).filter(|kind| *kind != "null").collect();
            known.join(" or ")
        }
        _ => String::new(),
    };
    if kind == "array" {
        return format!("list of {}", shape(&schema["items"]));
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<_> =
            words.iter().filter_map(Value::as_str).map(|word| format!("<code>{word}</code>")).collect();
        return words.join(" | ");
    }
    if let Some(choices) = schema["oneOf"].as_array() {
        let shown: Vec<_> = choices.iter().filter(|choice| choice["type"] != "null").map(shape).collect();
        return shown.join(" or ");
    }
    if kind == "object" && schema.get("additionalProperties").is_some() {
        return format!("map of {}", shape(&schema["additionalProperties"]));
    }
    kind
}

/// One page without scripts, made from the same document.
fn page() -> String {
    let document = serde_json::from_str::<Value>(&DOCUMENT).unwrap_or_default();
    let mut html = String::from(
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'><title>PandaStack API</title>\
         <style>body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#222}\
         code{background:#f3f3f3;padding:.1em .3em;border-radius:3px}h3{margin:2rem 0 .3rem;font-size:1rem}\
         table{border-collapse:collapse;width:100%}td{border-top:1px solid #ddd;padding:.3rem .6rem .3rem 0;vertical-align:top}\
         @media(prefers-color-scheme:dark){body{background:#161616;color:#ddd}code{background:#2a2a2a}a{color:#8bf}td{border-color:#333}}</style>\
         <h1>PandaStack API</h1>",
    );
    // Writing to a string cannot fail.
    let _ = write!(
        html,
        "<p>{}</p><p>Every request carries <code>Authorization: Bearer pds_…</code>. Failures answer \
         <a href='#ErrorBody'>ErrorBody</a>. For programs: <a href='/openapi.json'>openapi.json</a>.</p><h2>Requests</h2>",
        escape(document["info"]["description"].as_str().unwrap_or_default())
    );
    for (path, item) in document["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            let about = format!(
                "{} {}",
                operation["summary"].as_str().unwrap_or_default(),
                operation["description"].as_str().unwrap_or_default()
            );
            let _ = write!(
                html,
                "<h3><code>{} {}</code></h3><div>{}</div>",
                method.to_uppercase(),
                escape(path),
                escape(about.trim())
            );
            for (status, answer) in operation["responses"].as_object().into_iter().flatten() {
                if !status.starts_with('2') {
                    continue;
                }
                let content = answer["content"].as_object().and_then(|content| content.values().next());
                let body = content.map(|content| shape(&content["schema"])).unwrap_or_default();
                let _ = write!(html, "<div>→ {status} {body}</div>");
            }
            let request =
                operation["requestBody"]["content"].as_object().and_then(|content| content.values().next());
            if let Some(content) = request {
                let _ = write!(html, "<div>body: {}</div>", shape(&content["schema"]));
            }
        }
    }
    html.push_str("<h2>Objects</h2>");
    for (name, schema) in document["components"]["schemas"].as_object().into_iter().flatten() {
        let about = escape(schema["description"].as_str().unwrap_or_default());
        let _ = write!(html, "<h3 id='{name}'>{name}</h3><div>{about}</div><table>");
        for (field, of) in schema["properties"].as_object().into_iter().flatten() {
            let about = escape(of["description"].as_str().unwrap_or_default());
            let _ = write!(html, "<tr><td><code>{field}</code><td>{}<td>{about}", shape(of));
        }
        html.push_str("</table>");
    }
    html
}
