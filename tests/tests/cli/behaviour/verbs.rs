//! The verbs of the table as commands.

mod commands;
mod files;
mod looking;
mod sandboxes;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Outcome, Runner, failed};
use crate::program::Cli;

/// Text of a field; empty when it is absent.
fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// An option and its value for each field that is there.
fn options(value: &Value, names: &[(&str, &str)]) -> Vec<String> {
    let mut words = Vec::new();
    for (field, option) in names {
        match &value[field] {
            Value::Null => {}
            Value::String(text) => words.extend([(*option).to_owned(), text.clone()]),
            Value::Object(map) => {
                for (name, one) in map {
                    words.extend([
                        (*option).to_owned(),
                        format!("{name}={}", one.as_str().unwrap_or_default()),
                    ]);
                }
            }
            other => words.extend([(*option).to_owned(), other.to_string()]),
        }
    }
    words
}

/// Values of a field in a list.
fn all(list: &Value, field: &str) -> Value {
    list.as_array().into_iter().flatten().map(|one| one[field].clone()).collect()
}

impl Runner {
    /// Runs a command with JSON for its result.
    async fn call(&self, words: &[&str]) -> Result<Outcome> {
        self.call_with(&self.cli, words, b"").await
    }

    async fn call_with(&self, cli: &Cli, words: &[&str], input: &[u8]) -> Result<Outcome> {
        let went = cli.with_input(&[&["--output", "json"], words].concat(), input).await?;
        if went.code != 0 {
            return Ok(Err(failed(&went)?));
        }
        match went.stdout.trim() {
            "" => Ok(Ok(Value::Null)),
            said => Ok(Ok(serde_json::from_str(said).with_context(|| format!("{words:?} wrote {said}"))?)),
        }
    }

    pub(super) async fn perform(&self, verb: &str, on: Option<&Value>, with: &Value) -> Result<Outcome> {
        let id = on.map(|on| text(on, "id").to_owned()).unwrap_or_default();
        let id = if id.is_empty() { text(with, "id") } else { &id };
        match verb {
            "create" => self.create(with).await,
            "get" => self.call(&["sandbox", "get", id]).await,
            "list" => {
                Ok(self.call(&["sandbox", "list"]).await?.map(|list| json!({ "ids": all(&list, "id") })))
            }
            "delete" => self.call(&["sandbox", "delete", id]).await,
            "state" => self.call(&["sandbox", text(with, "to"), id]).await,
            "patch" => self.patch(id, with).await,
            "lifecycle" => self.lifecycle(id, with).await,
            "exec" if with["stream"] == true => self.stream(id, with).await,
            "exec" => self.exec(id, with).await,
            "write" => self.write(id, with).await,
            "read" => self.read(id, with).await,
            "files" => self.files(id, with).await,
            "transfer" => self.transfer(id, with).await,
            "terminal" => self.terminal(id, with).await,
            "spawn" => self.spawn(id, with).await,
            "process" => self.process(on.context("no process")?, with).await,
            "context" => self.context(id, with).await,
            "run" => self.run_code(on.context("nowhere to run")?, with).await,
            "snapshot" => self.call(&["sandbox", "snapshot", id]).await,
            "snapshots" => match text(with, "op") {
                "list" => {
                    let list =
                        self.call(&["snapshot", "list", "--sandbox", text(with, "sandbox_id")]).await?;
                    Ok(list.map(|list| json!({ "ids": all(&list, "id") })))
                }
                op => self.call(&["snapshot", op, text(with, "id")]).await,
            },
            "fork" => self.fork(id, with).await,
            "explore" => self.explore(id, with).await,
            "promote" => {
                let mut words = vec!["sandbox", "promote", id];
                if with["cleanup_siblings"] == true {
                    words.push("--cleanup-siblings");
                }
                if with["tree_id"].is_string() {
                    words.extend(["--tree-id", text(with, "tree_id")]);
                }
                self.call(&words).await
            }
            "volume" => self.volume(with).await,
            "token" => self.token(with).await,
            "show" => self.show(id, with).await,
            other => bail!("`{other}` is new in the table: map it to a command"),
        }
    }
}
