//! The verbs of the table as commands.

mod commands;
mod files;
mod following;
mod looking;
mod sandboxes;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::{Outcome, Runner, failed};
use crate::cli::program::Cli;

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

/// Options of `list` and `delete` that say which sandboxes are meant.
fn filters(with: &Value) -> Vec<String> {
    let mut words = options(
        with,
        &[("template", "--template"), ("name", "--name"), ("parent", "--parent"), ("root", "--root")],
    );
    let statuses = match &with["status"] {
        Value::Array(several) => several.iter().collect(),
        Value::Null => Vec::new(),
        one => vec![one],
    };
    for status in statuses {
        words.extend(["--status".to_owned(), status.as_str().unwrap_or_default().to_owned()]);
    }
    for (name, value) in with["metadata"].as_object().into_iter().flatten() {
        let word = value.as_str().map_or(name.clone(), |value| format!("{name}={value}"));
        words.extend(["--metadata".to_owned(), word]);
    }
    words
}

/// Ids of all in a tree, parents before children.
fn ids_of_tree(node: &Value) -> Vec<Value> {
    let below = node["children"].as_array().into_iter().flatten().flat_map(ids_of_tree);
    [node["id"].clone()].into_iter().chain(below).collect()
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

    async fn call_words(&self, words: &[String]) -> Result<Outcome> {
        self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
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
                let words = [&["sandbox", "list"].map(str::to_owned)[..], &filters(with)].concat();
                Ok(self.call_words(&words).await?.map(|list| json!({ "ids": all(&list, "id") })))
            }
            "delete_all" => {
                let words = ["sandbox", "delete", "--all", "--yes"].map(str::to_owned);
                self.call_words(&[&words[..], &filters(with)].concat()).await
            }
            "tree" => Ok(self.call(&["sandbox", "tree", id]).await?.map(|mut tree| {
                tree["ids"] = ids_of_tree(&tree["tree"]).into();
                tree
            })),
            "delete" => self.call(&["sandbox", "delete", id]).await,
            "state" => {
                let mut words = vec!["sandbox", text(with, "to"), id];
                if with["cold"] == true {
                    words.push("--cold");
                }
                self.call(&words).await
            }
            "patch" => self.patch(id, with).await,
            "lifecycle" => self.lifecycle(id, with).await,
            "exec" if with["stream"] == true => self.stream(id, with).await,
            "exec" => self.exec(id, with).await,
            "write" => self.write(id, with).await,
            "read" => self.read(id, with).await,
            "files" => self.files(id, with).await,
            "transfer" => self.transfer(id, with).await,
            "link" => self.link(id, with).await,
            "watch" => self.watch(id, with).await,
            "tunnel" => self.tunnel(id, with).await,
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
