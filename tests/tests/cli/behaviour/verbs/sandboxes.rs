//! Making, changing and forking sandboxes.

use anyhow::Result;
use serde_json::{Value, json};

use super::{all, options, text};
use crate::behaviour::{Failed, Outcome, Runner};

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
            ],
        ));
        if with["persistent"] == true {
            words.push("--persistent".to_owned());
        }
        for volume in with["volumes"].as_array().into_iter().flatten() {
            let mode = if volume["read_only"] == true { ":ro" } else { "" };
            words.extend(["--volume".to_owned(), format!("{}{mode}", text(volume, "name"))]);
        }
        self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
    }

    pub(super) async fn patch(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = vec!["sandbox".to_owned(), "update".to_owned(), id.to_owned()];
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
        self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
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
        self.call(&words.iter().map(String::as_str).collect::<Vec<_>>()).await
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
            Err(Failed { error, .. }) if text(&error, "error").starts_with("explore: ") => {
                Err(Failed { kind: "explore".to_owned(), error })
            }
            failed => failed,
        })
    }
}
