//! Tools of the workspace's server.

mod arguments;
mod explore;
mod sandboxes;
mod work;

use serde_json::json;

use super::code;
use super::tool::{Effect, Tool, argument};

/// Every tool that names a sandbox describes it alike.
const SANDBOX: &str = "The sandbox's id";

pub(super) static TOOLS: [Tool; 17] = [
    Tool {
        name: "create_sandbox",
        description: "Create a sandbox: a virtual machine of your own, ready when this returns.",
        effect: Effect::Changes,
        arguments: || {
            json!({
                "template": argument("string", "The template; code-interpreter when absent. list_templates tells which there are"),
                "from_snapshot": argument("string", "The id of a snapshot to start from instead of a template"),
                "ttl_seconds": argument("integer", "Seconds of idleness after which it is deleted"),
                "metadata": { "type": "object", "additionalProperties": { "type": "string" },
                    "description": "Metadata as names and values" },
            })
        },
        required: &[],
        run: |call| Box::pin(sandboxes::create(call)),
    },
    Tool {
        name: "list_sandboxes",
        description: "List your sandboxes, newest first.",
        effect: Effect::Reads,
        arguments: || json!({}),
        required: &[],
        run: |call| Box::pin(sandboxes::list(call)),
    },
    Tool {
        name: "delete_sandbox",
        description: "Delete a sandbox and everything in it.",
        effect: Effect::Destroys,
        arguments: || json!({ "sandbox_id": argument("string", SANDBOX) }),
        required: &["sandbox_id"],
        run: |call| Box::pin(sandboxes::delete(call)),
    },
    Tool {
        name: "fork_sandbox",
        description: "Make copies of a running sandbox, memory and processes included. They go on from this instant, and so does it.",
        effect: Effect::Changes,
        arguments: || {
            json!({
                "sandbox_id": argument("string", SANDBOX),
                "count": argument("integer", "How many copies; 1 when absent"),
                "metadata": { "type": "object", "additionalProperties": { "type": "string" },
                    "description": "Metadata of the copies, as names and values" },
            })
        },
        required: &["sandbox_id"],
        run: |call| Box::pin(sandboxes::fork(call)),
    },
    Tool {
        name: "hibernate_sandbox",
        description: "Put a sandbox to sleep, memory included. It wakes by itself when it is used.",
        effect: Effect::Changes,
        arguments: || json!({ "sandbox_id": argument("string", SANDBOX) }),
        required: &["sandbox_id"],
        run: |call| Box::pin(sandboxes::hibernate(call)),
    },
    Tool {
        name: "wake_sandbox",
        description: "Wake a sandbox that sleeps.",
        effect: Effect::Changes,
        arguments: || json!({ "sandbox_id": argument("string", SANDBOX) }),
        required: &["sandbox_id"],
        run: |call| Box::pin(sandboxes::wake(call)),
    },
    Tool {
        name: "create_snapshot",
        description: "Keep this instant of a sandbox, to create sandboxes from it later. The sandbox goes on.",
        effect: Effect::Changes,
        arguments: || json!({ "sandbox_id": argument("string", SANDBOX) }),
        required: &["sandbox_id"],
        run: |call| Box::pin(sandboxes::snapshot(call)),
    },
    Tool {
        name: "list_snapshots",
        description: "List your snapshots, newest first.",
        effect: Effect::Reads,
        arguments: || json!({ "sandbox_id": argument("string", "Only snapshots of this sandbox") }),
        required: &[],
        run: |call| Box::pin(sandboxes::snapshots(call)),
    },
    Tool {
        name: "delete_snapshot",
        description: "Delete a snapshot. Sandboxes made from it go on.",
        effect: Effect::Destroys,
        arguments: || json!({ "snapshot_id": argument("string", "The snapshot's id") }),
        required: &["snapshot_id"],
        run: |call| Box::pin(sandboxes::delete_snapshot(call)),
    },
    Tool {
        name: "explore",
        description: "Try several commands from the same state, each in a fork of its own, and keep the best fork. The sandbox itself \
            is not changed. Use it to compare approaches: builds, fixes, parameters.",
        effect: Effect::Changes,
        arguments: || {
            json!({
                "sandbox_id": argument("string", SANDBOX),
                "commands": { "type": "array", "items": { "type": "string" }, "minItems": 2, "maxItems": 16,
                    "description": "Shell commands, one for each fork" },
                "score_command": argument("string", "A shell command that is run in each fork afterwards and writes a number: the highest \
                    wins. When absent, the first fork whose command succeeded wins"),
                "timeout_seconds": argument("number", "After this long a command is killed; 60 when absent, 300 at most"),
                "keep_all": argument("boolean", "Keep the other forks too, instead of deleting them"),
            })
        },
        required: &["sandbox_id", "commands"],
        run: |call| Box::pin(explore::explore(call)),
    },
    Tool {
        name: "run_command",
        description: "Run a shell command in a sandbox and get what it wrote and its exit code.",
        effect: Effect::Destroys,
        arguments: || {
            json!({
                "sandbox_id": argument("string", SANDBOX),
                "command": argument("string", "A line for the shell"),
                "timeout_seconds": argument("number", "After this long it is killed; 60 when absent, 300 at most"),
            })
        },
        required: &["sandbox_id", "command"],
        run: |call| Box::pin(work::run_command(call)),
    },
    Tool {
        name: "run_code",
        description: "Run code in an interpreter that keeps its variables from call to call, and get its output and results. Plots come as images.",
        effect: Effect::Destroys,
        arguments: || {
            let mut arguments = code::arguments();
            arguments["sandbox_id"] = argument("string", SANDBOX);
            arguments
        },
        required: &["sandbox_id", "code"],
        run: |call| Box::pin(work::run_code(call)),
    },
    Tool {
        name: "read_file",
        description: "Read a file of a sandbox. Pictures come as images, other files that are not UTF-8 text as base64.",
        effect: Effect::Reads,
        arguments: || json!({ "sandbox_id": argument("string", SANDBOX), "path": argument("string", "An absolute path") }),
        required: &["sandbox_id", "path"],
        run: |call| Box::pin(work::read(call)),
    },
    Tool {
        name: "write_file",
        description: "Write a text file in a sandbox. Missing directories are made; a file that is there is replaced.",
        effect: Effect::Destroys,
        arguments: || {
            json!({
                "sandbox_id": argument("string", SANDBOX),
                "path": argument("string", "An absolute path"),
                "content": argument("string", "The whole content"),
            })
        },
        required: &["sandbox_id", "path", "content"],
        run: |call| Box::pin(work::write(call)),
    },
    Tool {
        name: "list_dir",
        description: "List a directory of a sandbox.",
        effect: Effect::Reads,
        arguments: || {
            json!({
                "sandbox_id": argument("string", SANDBOX),
                "path": argument("string", "An absolute path; /workspace when absent"),
            })
        },
        required: &["sandbox_id"],
        run: |call| Box::pin(work::list(call)),
    },
    Tool {
        name: "expose_port",
        description: "Make a link to a web server in a sandbox that works in a browser, without a key, for a while.",
        effect: Effect::Changes,
        arguments: || {
            json!({
                "sandbox_id": argument("string", SANDBOX),
                "port": argument("integer", "The port that the server listens on"),
                "ttl_seconds": argument("integer", "How long the link works; an hour when absent"),
            })
        },
        required: &["sandbox_id", "port"],
        run: |call| Box::pin(work::expose(call)),
    },
    Tool {
        name: "list_templates",
        description: "List what sandboxes can be made from.",
        effect: Effect::Reads,
        arguments: || json!({}),
        required: &[],
        run: |call| Box::pin(sandboxes::templates(call)),
    },
];
