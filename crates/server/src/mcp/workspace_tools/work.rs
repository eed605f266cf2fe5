//! Tools that do something inside a sandbox.

use contract::exec::ExecRequest;
use contract::interpreter::{CellAnswer, CreateContext, RunCell};
use contract::port::CreatePreview;
use control::ControlError;
use serde::Serialize;

use super::arguments::{At, Code, Command, Expose, List, Write};
use crate::mcp::sandbox_tools::DIRECTORY_DEFAULT;
use crate::mcp::tool::{Text, ToolCall, read_file, write_file};

/// How long a command may run unless told otherwise.
const TIMEOUT_SECONDS_DEFAULT: f64 = 60.0;
/// Longest it may be told to; longer is taken as this.
const TIMEOUT_SECONDS_MAX: f64 = 300.0;

pub(super) async fn run_command(call: ToolCall<'_>) -> Result<Text, ControlError> {
    let Command { sandbox_id, command, timeout_seconds } = call.arguments()?;
    let timeout = timeout_seconds.filter(|seconds| *seconds != 0.0).unwrap_or(TIMEOUT_SECONDS_DEFAULT);
    let request = ExecRequest {
        cmd: command.into(),
        timeout_seconds: Some(timeout.min(TIMEOUT_SECONDS_MAX)),
        ..ExecRequest::default()
    };
    Text::json(&call.control.exec(call.caller, &sandbox_id, request).await?)
}

/// What a cell did, and where.
#[derive(Debug, Serialize)]
struct CodeAnswer {
    context_id: String,
    #[serde(flatten)]
    cell: CellAnswer,
}

pub(super) async fn run_code(call: ToolCall<'_>) -> Result<Text, ControlError> {
    let Code { sandbox_id, code, language, context_id, timeout_ms } = call.arguments()?;
    let context_id = match context_id {
        Some(id) => id,
        None => context(&call, &sandbox_id, language).await?,
    };
    let request = RunCell { code, timeout_ms };
    let cell = call.control.run_cell(call.caller, &sandbox_id, &context_id, request).await?;
    Text::json(&CodeAnswer { context_id, cell })
}

/// The newest context of a language; a new one where there is none.
async fn context(call: &ToolCall<'_>, id: &str, language: Option<String>) -> Result<String, ControlError> {
    let request = CreateContext { language, cwd: None };
    let wanted = call.control.language(&request)?;
    let known = call.control.contexts(call.caller, id).await?;
    let newest = known.into_iter().filter(|context| context.language == wanted);
    if let Some(context) = newest.max_by(|one, other| one.created_at.cmp(&other.created_at)) {
        return Ok(context.id);
    }
    Ok(call.control.create_context(call.caller, id, request).await?.id)
}

pub(super) async fn read(call: ToolCall<'_>) -> Result<Text, ControlError> {
    let At { sandbox_id, path } = call.arguments()?;
    read_file(&call, &sandbox_id, &path).await
}

pub(super) async fn write(call: ToolCall<'_>) -> Result<Text, ControlError> {
    let Write { sandbox_id, path, content } = call.arguments()?;
    write_file(&call, &sandbox_id, path, &content).await
}

pub(super) async fn list(call: ToolCall<'_>) -> Result<Text, ControlError> {
    let List { sandbox_id, path } = call.arguments()?;
    let path = path.as_deref().unwrap_or(DIRECTORY_DEFAULT);
    Text::json(&call.control.list_directory(call.caller, &sandbox_id, path).await?)
}

pub(super) async fn expose(call: ToolCall<'_>) -> Result<Text, ControlError> {
    let Expose { sandbox_id, port, ttl_seconds } = call.arguments()?;
    let request = CreatePreview { port, ttl_seconds, paths: None };
    Text::json(&call.control.create_preview(call.caller, &sandbox_id, request, call.base).await?)
}
