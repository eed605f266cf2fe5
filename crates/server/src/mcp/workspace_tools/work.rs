//! Tools that do something inside a sandbox.

use contract::exec::ExecRequest;
use contract::port::CreatePreview;
use control::ControlError;

use super::arguments::{At, Command, Expose, List, One, Write};
use crate::mcp::sandbox_tools::DIRECTORY_DEFAULT;
use crate::mcp::tool::{ToolAnswer, ToolCall, read_file, write_file};
use crate::mcp::{code, hints, processes};

/// How long a command may run unless told otherwise.
const TIMEOUT_SECONDS_DEFAULT: f64 = 60.0;
/// Longest it may be told to; longer is taken as this.
const TIMEOUT_SECONDS_MAX: f64 = 300.0;

/// How long a command may run.
pub(super) fn timeout_seconds(asked: Option<f64>) -> f64 {
    asked.filter(|seconds| *seconds != 0.0).unwrap_or(TIMEOUT_SECONDS_DEFAULT).min(TIMEOUT_SECONDS_MAX)
}

pub(super) async fn run_command(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Command { sandbox_id, command, cwd, env, timeout_seconds } = call.arguments()?;
    let timeout_seconds = Some(self::timeout_seconds(timeout_seconds));
    let request = ExecRequest { cmd: command.into(), cwd, env, timeout_seconds, ..ExecRequest::default() };
    let mut answer = call.control.exec(call.caller, &sandbox_id, request).await?;
    answer.hint = answer.hint.map(|hint| hints::translated(&hint, call.scope()));
    ToolAnswer::json(&answer)
}

pub(super) async fn run_code(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    code::run(&call, &sandbox_id).await
}

pub(super) async fn start_process(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    processes::start(&call, &sandbox_id).await
}

pub(super) async fn list_processes(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    processes::list(&call, &sandbox_id).await
}

pub(super) async fn process_logs(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    processes::logs(&call, &sandbox_id).await
}

pub(super) async fn stop_process(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let One { sandbox_id } = call.arguments()?;
    processes::stop(&call, &sandbox_id).await
}

pub(super) async fn read(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let At { sandbox_id, path } = call.arguments()?;
    read_file(&call, &sandbox_id, &path).await
}

pub(super) async fn write(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Write { sandbox_id, path, content } = call.arguments()?;
    write_file(&call, &sandbox_id, path, &content).await
}

pub(super) async fn list(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let List { sandbox_id, path } = call.arguments()?;
    let path = path.as_deref().unwrap_or(DIRECTORY_DEFAULT);
    ToolAnswer::json(&call.control.list_directory(call.caller, &sandbox_id, path).await?)
}

pub(super) async fn expose(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Expose { sandbox_id, port, ttl_seconds } = call.arguments()?;
    let request = CreatePreview { port, ttl_seconds, paths: None };
    ToolAnswer::json(&call.control.create_preview(call.caller, &sandbox_id, request, call.base).await?)
}
