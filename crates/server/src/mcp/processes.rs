//! Processes for a model: started in the background, listed, read and stopped, in both servers alike.

use std::collections::BTreeMap;

use contract::process::{ProcessSignal, SignalName, StartProcess};
use control::ControlError;
use serde::Deserialize;
use serde_json::{Value, json};

use super::tool::{ToolAnswer, ToolCall, argument, words};

/// What `start_process` is called with, besides the sandbox.
#[derive(Debug, Deserialize)]
struct Start {
    command: String,
    cwd: Option<String>,
    env: Option<BTreeMap<String, String>>,
    tag: Option<String>,
    timeout_seconds: Option<f64>,
}

/// What `process_logs` is called with, besides the sandbox.
#[derive(Debug, Deserialize)]
struct Logs {
    process_id: u32,
    stdout_offset: Option<u64>,
    stderr_offset: Option<u64>,
}

/// What `stop_process` is called with, besides the sandbox.
#[derive(Debug, Deserialize)]
struct Stop {
    process_id: u32,
    signal: Option<String>,
}

/// For models: what each of these tools does.
pub(super) const START: &str = "Start a command in the background and do not wait for it: servers, watchers, long builds. It goes on \
    between calls; process_logs tells what it wrote, and stop_process ends it.";
pub(super) const LIST: &str =
    "List the processes that were started: those that run, and some that ended, with their exit codes.";
pub(super) const LOGS: &str = "Read what a process has written until now, running or ended. Without offsets it is the end; with \
    next_stdout_offset and next_stderr_offset of an earlier answer, what came since.";
pub(super) const STOP: &str = "Stop a process and everything it started.";

const PROCESS: &str = "The process's id, as start_process and list_processes tell it";

/// Schemas of the arguments of `start_process`.
pub(super) fn start_arguments() -> Value {
    json!({
        "command": argument("string", "A line for the shell"),
        "cwd": argument("string", "The working directory; the user's home when absent"),
        "env": words("Variables on top of the sandbox's own, as names and values"),
        "tag": argument("string", "A name of your own for it"),
        "timeout_seconds": argument("number", "After this long it is killed; never when absent"),
    })
}

/// Schemas of the arguments of `process_logs`.
pub(super) fn logs_arguments() -> Value {
    json!({
        "process_id": argument("integer", PROCESS),
        "stdout_offset": argument("integer", "Read standard output from this byte on"),
        "stderr_offset": argument("integer", "Read standard error from this byte on"),
    })
}

/// Schemas of the arguments of `stop_process`.
pub(super) fn stop_arguments() -> Value {
    json!({
        "process_id": argument("integer", PROCESS),
        "signal": argument("string", "Such as SIGINT or SIGKILL; SIGTERM when absent"),
    })
}

pub(super) async fn start(call: &ToolCall<'_>, id: &str) -> Result<ToolAnswer, ControlError> {
    let Start { command, cwd, env, tag, timeout_seconds } = call.arguments()?;
    let request =
        StartProcess { cmd: Some(command.into()), cwd, env, tag, timeout_seconds, ..StartProcess::default() };
    ToolAnswer::json(&call.control.start_process(call.caller, id, request).await?)
}

pub(super) async fn list(call: &ToolCall<'_>, id: &str) -> Result<ToolAnswer, ControlError> {
    ToolAnswer::json(&call.control.processes(call.caller, id).await?)
}

pub(super) async fn logs(call: &ToolCall<'_>, id: &str) -> Result<ToolAnswer, ControlError> {
    let Logs { process_id, stdout_offset, stderr_offset } = call.arguments()?;
    let read = call.control.process_output(call.caller, id, process_id, stdout_offset, stderr_offset).await?;
    ToolAnswer::json(&json!({
        "running": read.process.running,
        "exit_code": read.process.exit_code,
        "stdout": read.stdout.text,
        "stderr": read.stderr.text,
        "stdout_offset": read.stdout.offset,
        "stderr_offset": read.stderr.offset,
        "next_stdout_offset": read.stdout.next_offset,
        "next_stderr_offset": read.stderr.next_offset,
    }))
}

pub(super) async fn stop(call: &ToolCall<'_>, id: &str) -> Result<ToolAnswer, ControlError> {
    let Stop { process_id, signal } = call.arguments()?;
    let signal = ProcessSignal { signal: signal.map(SignalName::Name) };
    call.control.process_signal(call.caller, id, process_id, signal).await?;
    ToolAnswer::json(&json!({ "process_id": process_id, "status": "signalled" }))
}
