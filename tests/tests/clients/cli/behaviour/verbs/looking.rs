//! What can be looked at, and what belongs to no sandbox: volumes and keys.

use std::ffi::OsStr;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::{all, options, text};
use crate::cli::behaviour::{Outcome, Runner};
use crate::cli::program::Cli;

impl Runner {
    pub(super) async fn volume(&self, with: &Value) -> Result<Outcome> {
        let size = with["size_mb"].as_i64().unwrap_or(256).to_string();
        match text(with, "op") {
            "list" => {
                Ok(self.call(&["volume", "list"]).await?.map(|list| json!({ "names": all(&list, "name") })))
            }
            op @ ("create" | "resize") => {
                self.call(&["volume", op, text(with, "name"), "--size-mb", &size]).await
            }
            op => self.call(&["volume", op, text(with, "name")]).await,
        }
    }

    pub(super) async fn token(&self, with: &Value) -> Result<Outcome> {
        match text(with, "op") {
            "list" => Ok(self
                .call(&["token", "list"])
                .await?
                .map(|list| json!({ "prefixes": all(&list, "prefix") }))),
            "revoke" => self.call(&["token", "revoke", text(with, "prefix")]).await,
            _ => {
                let mut words = vec!["token".to_owned(), "create".to_owned(), text(with, "label").to_owned()];
                words
                    .extend(options(with, &[("scope", "--scope"), ("expires_in_days", "--expires-in-days")]));
                self.call_words(&words).await
            }
        }
    }

    pub(super) async fn show(&self, id: &str, with: &Value) -> Result<Outcome> {
        let port = with["port"].as_u64().unwrap_or(0).to_string();
        match text(with, "what") {
            "me" => {
                let cli = Cli::new(&self.address)?;
                let cli = match with["api_key"].as_str() {
                    Some(key) => cli.with_key(key),
                    None => cli,
                };
                self.call_with(&cli, &["auth", "status"], b"").await
            }
            "set_network_default" => {
                self.call(&["auth", "network-default", with["network"].as_str().unwrap_or("default")]).await
            }
            "templates" => {
                Ok(self.call(&["template", "list"]).await?.map(|list| json!({ "names": all(&list, "name") })))
            }
            "audit" => {
                Ok(self.call(&["audit", "list"]).await?.map(|list| json!({ "paths": all(&list, "path") })))
            }
            "events" => {
                let events = self.call(&["sandbox", "events", id]).await?;
                Ok(events.map(|events| json!({ "types": all(&events["events"], "type") })))
            }
            "metrics" => self.call(&["sandbox", "metrics", id]).await,
            "add_port" => {
                let added =
                    self.call(&["sandbox", "add-port", id, &port, "--label", text(with, "label")]).await?;
                Ok(added.map(|port| json!({ "ports": [port["port"]] })))
            }
            "ports" => Ok(self
                .call(&["sandbox", "ports", id])
                .await?
                .map(|list| json!({ "ports": all(&list, "port") }))),
            "preview_url" => {
                let link = self.cli.ok(&["sandbox", "preview-url", id, &port]).await?;
                let seen = tests::command::run("/usr/bin/curl", &["-sSf", &link].map(OsStr::new))?;
                Ok(Ok(json!({ "text": String::from_utf8(seen.stdout)? })))
            }
            "preview" => self.call(&["sandbox", "preview-url", id, &port]).await,
            "logs" => Ok(Ok(json!({ "text": self.cli.ok(&["sandbox", "logs", id]).await? }))),
            other => bail!("`{other}` is new in the table: map it to a command"),
        }
    }
}
