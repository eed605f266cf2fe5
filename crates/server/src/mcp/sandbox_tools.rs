//! Tools of the server that every sandbox has.

use std::collections::BTreeMap;

use contract::exec::ExecRequest;
use control::{ControlError, Kind};
use serde::Deserialize;
use serde_json::json;

use super::tool::{Effect, Tool, ToolAnswer, ToolCall, argument, read_file, words, write_file};
use super::{code, hints, processes};

/// How long a command may run unless told otherwise.
const TIMEOUT_SECONDS_DEFAULT: f64 = 30.0;
/// Where a model finds itself.
pub(super) const DIRECTORY_DEFAULT: &str = "/workspace";

pub(super) static TOOLS: [Tool; 9] = [
    Tool {
        name: "shell",
        description: "Run a shell command in the sandbox and get what it wrote and its exit code.",
        effect: Effect::Destroys,
        arguments: || {
            json!({
                "command": argument("string", "A line for the shell"),
                "cwd": argument("string", "The working directory; the user's home when absent"),
                "env": words("Variables on top of the sandbox's own, as names and values"),
                "timeout_seconds": argument("number", "After this long it is killed; 30 when absent"),
            })
        },
        required: &["command"],
        run: |call| Box::pin(shell(call)),
    },
    Tool {
        name: "run_code",
        description: "Run code in an interpreter that keeps its variables from call to call, and get its output and results. Plots come as images.",
        effect: Effect::Destroys,
        arguments: code::arguments,
        required: &["code"],
        run: |call| Box::pin(async move { code::run(&call, id(&call)?).await }),
    },
    Tool {
        name: "read_file",
        description: "Read a file. Pictures come as images, other files that are not UTF-8 text as base64.",
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
                ToolAnswer::json(&call.control.list_directory(call.caller, id(&call)?, path).await?)
            })
        },
    },
    Tool {
        name: "start_process",
        description: processes::START,
        effect: Effect::Destroys,
        arguments: processes::start_arguments,
        required: &["command"],
        run: |call| Box::pin(async move { processes::start(&call, id(&call)?).await }),
    },
    Tool {
        name: "list_processes",
        description: processes::LIST,
        effect: Effect::Reads,
        arguments: || json!({}),
        required: &[],
        run: |call| Box::pin(async move { processes::list(&call, id(&call)?).await }),
    },
    Tool {
        name: "process_logs",
        description: processes::LOGS,
        effect: Effect::Reads,
        arguments: processes::logs_arguments,
        required: &["process_id"],
        run: |call| Box::pin(async move { processes::logs(&call, id(&call)?).await }),
    },
    Tool {
        name: "stop_process",
        description: processes::STOP,
        effect: Effect::Destroys,
        arguments: processes::stop_arguments,
        required: &["process_id"],
        run: |call| Box::pin(async move { processes::stop(&call, id(&call)?).await }),
    },
];

#[derive(Debug, Deserialize)]
struct Shell {
    command: String,
    cwd: Option<String>,
    env: Option<BTreeMap<String, String>>,
    timeout_seconds: Option<f64>,
    /// The former name, in milliseconds.
    timeout_ms: Option<f64>,
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

async fn shell(call: ToolCall<'_>) -> Result<ToolAnswer, ControlError> {
    let Shell { command, cwd, env, timeout_seconds, timeout_ms } = call.arguments()?;
    let asked = timeout_seconds.or(timeout_ms.map(|ms| ms / 1000.0)).filter(|seconds| *seconds != 0.0);
    let timeout = asked.unwrap_or(TIMEOUT_SECONDS_DEFAULT);
    let request = ExecRequest {
        cmd: command.into(),
        cwd,
        env,
        timeout_seconds: Some(timeout),
        ..ExecRequest::default()
    };
    let mut answer = match call.control.exec(call.caller, id(&call)?, request).await {
        Ok(answer) => answer,
        Err(error) if error.kind == Kind::Timeout => {
            let partial = error.partial.as_deref().cloned().unwrap_or_default();
            let end =
                format!("[{error}; it was killed. Raise timeout_seconds, or start it with start_process]");
            let text = written(partial.stdout, &partial.stderr, partial.truncated, &end);
            return Ok(ToolAnswer::text(text).failed());
        }
        Err(error) => return Err(error),
    };
    answer.hint = answer.hint.map(|hint| hints::translated(&hint, call.scope()));
    let mut end = format!("[exit code {}]", answer.exit_code);
    if let Some(hint) = &answer.hint {
        end = format!("[{hint}]\n{end}");
    }
    let told = ToolAnswer::text(written(answer.stdout.clone(), &answer.stderr, answer.truncated, &end))
        .structured(&answer)?;
    Ok(if answer.exit_code == 0 { told } else { told.failed() })
}

/// What a command wrote, and how it ended.
fn written(mut text: String, stderr: &str, truncated: bool, end: &str) -> String {
    let mut section = |title: &str, body: &str| {
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(title);
        text.push_str(body);
    };
    if !stderr.is_empty() {
        section("[stderr]\n", stderr);
    }
    if truncated {
        section("[more output was dropped]", "");
    }
    section(end, "");
    text
}
