//! The Model Context Protocol: two servers over plain HTTP, one for a workspace and one inside every sandbox.
//!
//! ```text
//! POST /mcp, /v1/mcp ─► JSON-RPC ─► tools of the workspace ─► Control
//! POST /v1/sandboxes/{id}/mcp ─► JSON-RPC ─► tools of one sandbox ─► Control
//! ```
//!
//! One message per request, answered as JSON; there are no sessions and no streams. What a service refuses is a result that says
//! so, because models read results; errors of the protocol are for programs.

mod code;
mod hints;
mod message;
mod processes;
mod sandbox_tools;
mod tool;
mod workspace_tools;

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use control::{Caller, Control, ControlError};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::ApiResult;
use crate::body;
use crate::extract::Path;
use crate::mcp::message::{Call, INVALID_PARAMS, Message, SERVER_BUSY, UNKNOWN_METHOD, failed, succeeded};
use crate::mcp::tool::{Tool, ToolCall};
use crate::ports::base_url;
use crate::request_id;

/// Largest message.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Longest version of the protocol that is repeated.
const VERSION_BYTES_MAX: usize = 64;
/// What a client that names no version gets.
const VERSION_DEFAULT: &str = "2025-03-26";
/// The version that the servers inside sandboxes speak.
const SANDBOX_VERSION: &str = "2024-11-05";
const INSTRUCTIONS: &str = "Sandboxes are virtual machines of your own, with root. Create one, then run commands and code and \
    read and write files in it; start what goes on, such as a server, with start_process. A sandbox can be forked while it runs, to try several ways from the same state; hibernated, and \
    it wakes by itself when it is used; and snapshotted, to start from the same state later. Delete what you no longer need.";

pub(crate) fn routes() -> OpenApiRouter<Control> {
    OpenApiRouter::new().routes(routes!(workspace)).routes(routes!(workspace_v1)).routes(routes!(sandbox))
}

/// The MCP server of the workspace: one JSON-RPC message.
#[utoipa::path(post, path = "/mcp", operation_id = "postMcp", tag = "mcp", request_body = Value,
    responses((status = 200, body = Value), (status = 202, description = "A notification was taken"),
        (status = 400, description = "No message of the protocol", body = Value)))]
async fn workspace(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    request: Request,
) -> ApiResult<Response> {
    let headers = request.headers().clone();
    let call = match read(request).await? {
        Message::Call(call) => call,
        Message::Notification => return Ok(StatusCode::ACCEPTED.into_response()),
        Message::Invalid(answer) => return Ok((StatusCode::BAD_REQUEST, axum::Json(answer)).into_response()),
    };
    let offered = call.params["protocolVersion"].as_str();
    let version = offered.filter(|text| text.len() <= VERSION_BYTES_MAX).unwrap_or(VERSION_DEFAULT);
    let answer = match call.method.as_str() {
        "initialize" => succeeded(&call.id, introduction(version, "pandastack", INSTRUCTIONS)),
        "tools/call" => match control.count_tool_call(&caller) {
            Ok(()) => run(&control, &caller, None, &headers, &workspace_tools::TOOLS, &call).await,
            Err(error) => failed(&call.id, SERVER_BUSY, &error.message),
        },
        _ => common(&workspace_tools::TOOLS, &call),
    };
    Ok(axum::Json(answer).into_response())
}

/// The same under its versioned address.
#[utoipa::path(post, path = "/v1/mcp", operation_id = "postMcpV1", tag = "mcp", request_body = Value,
    responses((status = 200, body = Value), (status = 202, description = "A notification was taken"),
        (status = 400, description = "No message of the protocol", body = Value)))]
async fn workspace_v1(
    control: State<Control>,
    caller: Extension<Caller>,
    request: Request,
) -> ApiResult<Response> {
    workspace(control, caller, request).await
}

/// The MCP server of one sandbox: one JSON-RPC message.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/mcp", operation_id = "postSandboxMcp", tag = "mcp", params(("id" = String, Path)), request_body = Value,
    responses((status = 200, body = Value), (status = 204, description = "A notification was taken"),
        (status = 400, description = "No message of the protocol", body = Value)))]
async fn sandbox(
    State(control): State<Control>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    request: Request,
) -> ApiResult<Response> {
    control.check_sandbox(&caller, &id).await?;
    let headers = request.headers().clone();
    let call = match read(request).await? {
        Message::Call(call) => call,
        Message::Notification => return Ok(StatusCode::NO_CONTENT.into_response()),
        Message::Invalid(answer) => return Ok((StatusCode::BAD_REQUEST, axum::Json(answer)).into_response()),
    };
    let answer = match call.method.as_str() {
        "initialize" => {
            let instructions = "Tools inside one sandbox, a virtual machine in which you are root.";
            succeeded(&call.id, introduction(SANDBOX_VERSION, "pandastack-sandbox", instructions))
        }
        "tools/call" => run(&control, &caller, Some(&id), &headers, &sandbox_tools::TOOLS, &call).await,
        _ => common(&sandbox_tools::TOOLS, &call),
    };
    Ok(axum::Json(answer).into_response())
}

async fn read(request: Request) -> Result<Message, ControlError> {
    Ok(Message::parse(&body::read(request.into_body(), MESSAGE_BYTES_MAX).await?))
}

fn introduction(version: &str, name: &str, instructions: &str) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": { "tools": { "listChanged": false } },
        "serverInfo": { "name": name, "version": env!("CARGO_PKG_VERSION") },
        "instructions": instructions,
    })
}

/// What both servers answer alike.
fn common(tools: &[Tool], call: &Call) -> Value {
    match call.method.as_str() {
        "ping" => succeeded(&call.id, json!({})),
        "tools/list" => {
            let tools: Vec<Value> = tools.iter().map(Tool::described).collect();
            succeeded(&call.id, json!({ "tools": tools }))
        }
        _ => failed(&call.id, UNKNOWN_METHOD, "there is no such method"),
    }
}

async fn run(
    control: &Control,
    caller: &Caller,
    sandbox: Option<&str>,
    headers: &HeaderMap,
    tools: &[Tool],
    call: &Call,
) -> Value {
    let name = call.params["name"].as_str().unwrap_or_default();
    let Some(tool) = tools.iter().find(|tool| tool.name == name) else {
        return failed(&call.id, INVALID_PARAMS, "there is no such tool; tools/list tells which there are");
    };
    let arguments = match &call.params["arguments"] {
        Value::Null => json!({}),
        arguments => arguments.clone(),
    };
    let base = base_url(control, headers);
    let checked = tool.check(&arguments);
    let called = ToolCall { control, caller, sandbox, base: &base, arguments };
    let scope = called.scope();
    let target = called.sandbox_id().map(|id| format!("/{id}")).unwrap_or_default();
    let outcome = match checked {
        Ok(()) => (tool.run)(called).await,
        Err(error) => Err(error),
    };
    // The request itself is in the audit log as every POST is; this line says what it did.
    let status = match &outcome {
        Ok(_) => StatusCode::OK,
        Err(error) => crate::answer::status(error.kind),
    };
    let path = format!("/mcp/{name}{target}");
    control.audit(caller, &request_id::current(), "CALL", &path, status.as_u16()).await;
    succeeded(&call.id, tool::result(outcome, scope))
}
