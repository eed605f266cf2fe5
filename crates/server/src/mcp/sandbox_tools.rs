//! Tools of the server that every sandbox has.

use contract::exec::ExecRequest;
use control::ControlError;
use serde::Deserialize;
use serde_json::json;

use super::tool::{Effect, Text, Tool, ToolCall, argument, read_file, write_file};

/// How long a command may run unless told otherwise.
const TIMEOUT_MS_DEFAULT: u64 = 30_000;
/// Where a model finds itself.
pub(super) const DIRECTORY_DEFAULT: &str = "/workspace";

pub(super) static TOOLS: [Tool; 4] = [
    Tool {
        name: "shell",
        description: "Run a shell command in the sandbox and get what it wrote and its exit code.",
        effect: Effect::Destroys,
        arguments: || {
            json!({
                "command": argument("string", "A line for the shell"),
                "timeout_ms": argument("integer", "After this many milliseconds it is killed; 30000 when absent"),
            })
        },
        required: &["command"],
        run: |call| Box::pin(shell(call)),
    },
    Tool {
        name: "read_file",
        description: "Read a file. One that is not UTF-8 text comes as base64.",
        effect: Effect::Reads,
        arguments: || json!({ "path": argument("string", "An absolute path") }),
        required: &["path"],
        run: |call| {
            Box::pin(async move {
                let file: File = call.arguments()?;
                read_file(&call, id(&call)?, &file.path).await
            })
        },
    },
    Tool {
        name: "write_file",
        description: "Write a text file. Missing directories are made; a file that is there is replaced.",
        effect: Effect::Destroys,
        arguments: || {
            json!({
                "path": argument("string", "An absolute path"),
                "content": argument("string", "The whole content"),
            })
        },
        required: &["path", "content"],
        run: |call| {
            Box::pin(async move {
                let file: NewFile = call.arguments()?;
                write_file(&call, id(&call)?, file.path, &file.content).await
            })
        },
    },
    Tool {
        name: "list_dir",
        description: "List a directory.",
        effect: Effect::Reads,
        arguments: || json!({ "path": argument("string", "An absolute path; /workspace when absent") }),
        required: &[],
        run: |call| {
            Box::pin(async move {
                let directory: Directory = call.arguments()?;
                let path = directory.path.as_deref().unwrap_or(DIRECTORY_DEFAULT);
                Text::json(&call.control.list_directory(call.caller, id(&call)?, path).await?)
            })
        },
    },
];

#[derive(Debug, Deserialize)]
struct Shell {
    command: String,
    timeout_ms: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct File {
    path: String,
}

#[derive(Debug, Deserialize)]
struct NewFile {
    path: String,
    content: String,
}

#[derive(Debug, Deserialize)]
struct Directory {
    path: Option<String>,
}

fn id<'a>(call: &ToolCall<'a>) -> Result<&'a str, ControlError> {
    call.sandbox.ok_or_else(|| ControlError::invalid("sandbox_id is missing"))
}

async fn shell(call: ToolCall<'_>) -> Result<Text, ControlError> {
    let arguments: Shell = call.arguments()?;
    let timeout_ms = arguments.timeout_ms.filter(|ms| *ms > 0).unwrap_or(TIMEOUT_MS_DEFAULT);
    let request = ExecRequest {
        cmd: arguments.command.into(),
        timeout_seconds: Some(timeout_ms as f64 / 1000.0),
        ..ExecRequest::default()
    };
    let answer = call.control.exec(call.caller, id(&call)?, request).await?;
    let mut text = answer.stdout;
    let mut section = |title: &str, body: &str| {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(title);
        text.push_str(body);
    };
    if !answer.stderr.is_empty() {
        section("[stderr]\n", &answer.stderr);
    }
    if answer.truncated {
        section("[more output was dropped]", "");
    }
    section(&format!("[exit code {}]", answer.exit_code), "");
    Ok(if answer.exit_code == 0 { Text::good(text) } else { Text::bad(text) })
}
