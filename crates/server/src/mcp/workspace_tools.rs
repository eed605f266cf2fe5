//! Tools of the workspace's server.

mod arguments;
mod explore;
mod sandboxes;
mod work;

use serde_json::{Value, json};

use super::tool::{Effect, Tool, argument, changed_words, choice, words};
use super::{code, processes};

/// Every tool that names a sandbox describes it alike.
const SANDBOX: &str = "The sandbox's id or name";
const NETWORK: &str = "all: it reaches whatever the operator lets sandboxes reach; none: nothing";

/// Arguments of a tool that both servers have, and the sandbox they are about.
fn with_sandbox(mut arguments: Value) -> Value {
    arguments["sandbox_id"] = argument("string", SANDBOX);
    arguments
}

fn volume() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": argument("string", "The volume's name"),
            "mount": argument("string", "Where to mount it, such as /data; only attached as /dev/vdb and so on when absent"),
            "read_only": argument("boolean", "Whether it may not be written to"),
        },
        "required": ["name"],
        "additionalProperties": false,
    })
}

pub(super) static TOOLS: [Tool; 23] = [
    Tool {
        name: "create_sandbox",
        description: "Create a sandbox: a virtual machine of your own, ready when this returns.",
        effect: Effect::Changes,
        arguments: || {
            json!({
                "template": argument("string", "The template; code-interpreter when absent. list_templates tells which there are"),
                "from_snapshot": argument("string", "The id of a snapshot to start from instead of a template"),
                "name": argument("string", "A name of your own, which stands wherever an id does: lowercase letters, digits and -, at most 40"),
                "ttl_seconds": argument("integer", "Seconds of idleness after which it is deleted, or sleeps if it is persistent"),
                "persistent": argument("boolean", "Sleep when idle instead of being deleted"),
                "env": words("Variables of every command, as names and values. They are never shown again"),
                "volumes": { "type": "array", "items": volume(), "description": "Volumes to attach" },
                "network": choice(&["none", "all"], NETWORK),
                "cpu": argument("integer", "Virtual CPUs; those of the template when absent"),
                "memory_mb": argument("integer", "Memory in MiB; that of the template when absent"),
                "disk_gb": argument("integer", "Size of its disk in GiB; that of what it starts from when absent"),
                "metadata": words("Metadata as names and values"),
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
        name: "get_sandbox",
        description: "Tell everything about a sandbox: its status, size, network, metadata and how long it may still idle.",
        effect: Effect::Reads,
        arguments: || json!({ "sandbox_id": argument("string", SANDBOX) }),
        required: &["sandbox_id"],
        run: |call| Box::pin(sandboxes::get(call)),
    },
    Tool {
        name: "update_sandbox",
        description: "Change a sandbox: its name, how long it may idle, its metadata, variables or network. What is absent stays.",
        effect: Effect::Changes,
        arguments: || {
            json!({
                "sandbox_id": argument("string", SANDBOX),
                "name": argument("string", "A new name; an empty one removes it"),
                "ttl_seconds": argument("integer", "Seconds of idleness after which it is deleted, or sleeps if it is persistent"),
                "persistent": argument("boolean", "Sleep when idle instead of being deleted"),
                "metadata": changed_words("Metadata to set, or to remove with null"),
                "env": changed_words("Variables to set, or to remove with null, for commands started from now on"),
                "network": choice(&["none", "all"], NETWORK),
            })
        },
        required: &["sandbox_id"],
        run: |call| Box::pin(sandboxes::update(call)),
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
                "name": argument("string", "A name for the copy, where it is only one"),
                "metadata": words("Metadata of the copies, as names and values"),
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
        description: "Wake a sandbox that sleeps, let one go on that is paused, or start one from its disk.",
        effect: Effect::Changes,
        arguments: || {
            json!({
                "sandbox_id": argument("string", SANDBOX),
                "cold": argument("boolean", "Start it from its disk, where its memory cannot be used: what was in memory is lost"),
            })
        },
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
                "cwd": argument("string", "The working directory; the user's home when absent"),
                "env": words("Variables on top of the sandbox's own, as names and values"),
                "timeout_seconds": argument("number", "After this long it is killed; 60 when absent, 300 at most"),
            })
        },
        required: &["sandbox_id", "command"],
        run: |call| Box::pin(work::run_command(call)),
    },
    Tool {
        name: "start_process",
        description: processes::START,
        effect: Effect::Destroys,
        arguments: || with_sandbox(processes::start_arguments()),
        required: &["sandbox_id", "command"],
        run: |call| Box::pin(work::start_process(call)),
    },
    Tool {
        name: "list_processes",
        description: processes::LIST,
        effect: Effect::Reads,
        arguments: || json!({ "sandbox_id": argument("string", SANDBOX) }),
        required: &["sandbox_id"],
        run: |call| Box::pin(work::list_processes(call)),
    },
    Tool {
        name: "process_logs",
        description: processes::LOGS,
        effect: Effect::Reads,
        arguments: || with_sandbox(processes::logs_arguments()),
        required: &["sandbox_id", "process_id"],
        run: |call| Box::pin(work::process_logs(call)),
    },
    Tool {
        name: "stop_process",
        description: processes::STOP,
        effect: Effect::Destroys,
        arguments: || with_sandbox(processes::stop_arguments()),
        required: &["sandbox_id", "process_id"],
        run: |call| Box::pin(work::stop_process(call)),
    },
    Tool {
        name: "run_code",
        description: "Run code in an interpreter that keeps its variables from call to call, and get its output and results. Plots come as images.",
        effect: Effect::Destroys,
        arguments: || with_sandbox(code::arguments()),
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

#[cfg(test)]
mod tests {
    use contract::sandbox::CreateSandbox;
    use utoipa::PartialSchema;

    use super::*;
    use crate::mcp::sandbox_tools;

    #[test]
    fn what_is_required_is_an_argument_and_every_argument_is_described() {
        for tool in TOOLS.iter().chain(&sandbox_tools::TOOLS) {
            let arguments = (tool.arguments)();
            for name in tool.required {
                assert!(arguments.get(name).is_some(), "{}: {name}", tool.name);
            }
            for (name, schema) in arguments.as_object().into_iter().flatten() {
                assert!(schema["description"].is_string(), "{}: {name}", tool.name);
                assert!(!name.ends_with("_ms"), "{}: {name}: times are in seconds", tool.name);
            }
        }
    }

    #[test]
    fn a_sandbox_is_created_with_all_that_the_api_takes() {
        let schema = serde_json::to_value(CreateSandbox::schema()).unwrap();
        let api = schema["properties"].as_object().unwrap();
        let create = TOOLS.iter().find(|tool| tool.name == "create_sandbox").unwrap();
        let arguments = (create.arguments)();
        let arguments = arguments.as_object().unwrap();
        assert_eq!(api.keys().collect::<Vec<_>>(), arguments.keys().collect::<Vec<_>>());
    }
}
