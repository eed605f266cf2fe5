//! Making, changing and forking sandboxes.

use anyhow::Result;
use serde_json::{Value, json};

use super::{all, options, text};
use crate::cli::behaviour::{Failed, Outcome, Runner};

impl Runner {
    pub(super) async fn create(&self, with: &Value) -> Result<Outcome> {
        let mut words = vec!["sandbox".to_owned(), "create".to_owned()];
        if with["from_snapshot"].is_null() && with["template"].is_null() {
            words.extend(["--template".to_owned(), self.template.clone()]);
        }
        words.extend(options(
            with,
            &[
                ("template", "--template"),
                ("from_snapshot", "--from-snapshot"),
                ("metadata", "--metadata"),
                ("env", "--env"),
                ("ttl_seconds", "--ttl"),
                ("network", "--network"),
                ("name", "--name"),
                ("cpu", "--cpu"),
                ("memory_mb", "--memory"),
                ("disk_gb", "--disk"),
            ],
        ));
        if with["persistent"] == true {
            words.push("--persistent".to_owned());
        }
        for volume in with["volumes"].as_array().into_iter().flatten() {
            let word = match volume.as_str() {
                Some(word) => word.to_owned(),
                None => {
                    let mount = volume["mount"].as_str().map(|mount| format!(":{mount}")).unwrap_or_default();
                    let mode = if volume["read_only"] == true { ":ro" } else { "" };
                    format!("{}{mount}{mode}", text(volume, "name"))
                }
            };
            words.extend(["--volume".to_owned(), word]);
        }
        self.call_words(&words).await
    }

    pub(super) async fn patch(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = vec!["sandbox".to_owned(), "update".to_owned(), id.to_owned()];
        words.extend(options(with, &[("name", "--name"), ("network", "--network")]));
        if with.get("name") == Some(&Value::Null) {
            words.extend(["--name".to_owned(), String::new()]);
        }
        for (field, set, unset) in
            [("metadata", "--metadata", "--unset-metadata"), ("env", "--env", "--unset-env")]
        {
            for (name, value) in with[field].as_object().into_iter().flatten() {
                match value.as_str() {
                    Some(value) => words.extend([set.to_owned(), format!("{name}={value}")]),
                    None => words.extend([unset.to_owned(), name.clone()]),
                }
            }
        }
        self.call_words(&words).await
    }

    pub(super) async fn lifecycle(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut outcome = None;
        if let Some(seconds) = with["ttl_seconds"].as_i64() {
            outcome = Some(self.call(&["sandbox", "set-ttl", id, &seconds.to_string()]).await?);
        }
        if let Some(persistent) = with["persistent"].as_bool() {
            outcome = Some(self.call(&["sandbox", "set-persistent", id, &persistent.to_string()]).await?);
        }
        match outcome {
            Some(outcome) => Ok(outcome),
            None => self.call(&["sandbox", "lifecycle", id]).await,
        }
    }

    pub(super) async fn fork(&self, id: &str, with: &Value) -> Result<Outcome> {
        let verb = if with["count"].is_null() { "fork" } else { "fork-tree" };
        let mut words = vec!["sandbox".to_owned(), verb.to_owned(), id.to_owned()];
        words.extend(options(with, &[("count", "--count"), ("metadata", "--metadata")]));
        self.call_words(&words).await
    }

    pub(super) async fn explore(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = vec!["sandbox", "explore", id, "--candidates", "-"];
        if with["promote"] == false {
            words.push("--no-promote");
        }
        let candidates = with["candidates"].to_string();
        Ok(match self.call_with(&self.cli, &words, candidates.as_bytes()).await? {
            // It is the winner's sandbox that later steps mean.
            Ok(found) => Ok(json!({
                "id": found["winner"],
                "winner": found["winner_outcome"]["label"],
                "reaped": found["reaped"].as_array().map(Vec::len),
                "labels": all(&found["outcomes"], "label"),
            })),
            Err(failed) if text(&failed.error, "error").starts_with("explore: ") => {
                Err(Failed { kind: "explore".to_owned(), ..failed })
            }
            failed => failed,
        })
    }
}
