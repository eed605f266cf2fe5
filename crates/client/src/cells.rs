//! Code whose output comes as it is written: cells of a context that keeps its state.

use std::collections::BTreeMap;

use hyper::Method;
use serde::{Deserialize, Serialize};

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;
use crate::events::Events;

/// The context that each sandbox has for each language, made at its first use.
pub const DEFAULT_CONTEXT: &str = "default";

/// A cell to run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The code.
    pub code: String,
    /// After this long it is interrupted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<i64>,
    /// Its language, in [`DEFAULT_CONTEXT`] only; Python when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
}

/// What a cell did, and where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellRun {
    /// What it wrote.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
    /// 0, or 1 when it raised.
    pub exit: i32,
    /// The same.
    pub exit_code: i32,
    /// The traceback when it raised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What it showed: one object of MIME types per result.
    pub results: Vec<BTreeMap<String, String>>,
    /// How long it took.
    pub duration_ms: u64,
    /// The context it ran in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
}

/// What a cell does while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellEvent {
    /// It wrote to standard output.
    Stdout(String),
    /// It wrote to standard error.
    Stderr(String),
    /// It showed something: one object of MIME types.
    Shown(BTreeMap<String, String>),
    /// It ended.
    Ended {
        /// 0, or 1 when it raised.
        exit_code: i32,
        /// The traceback when it raised.
        error: Option<String>,
    },
}

/// Where what a cell does comes from. Dropping it does not stop the cell.
pub struct CellOutput {
    events: Events,
}

fn at(sandbox: &str, context: &str) -> String {
    format!("/v1/sandboxes/{}/repl/sessions/{}/run", encoded(sandbox), encoded(context))
}

impl Api {
    /// Runs a cell and waits for it.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn run_cell(&self, sandbox: &str, context: &str, cell: &Cell) -> Result<CellRun, ClientError> {
        self.post(&at(sandbox, context), cell).await
    }

    /// Runs a cell and follows it.
    pub async fn follow_cell(
        &self,
        sandbox: &str,
        context: &str,
        cell: &Cell,
    ) -> Result<CellOutput, ClientError> {
        let path = format!("{}/stream", at(sandbox, context));
        Ok(CellOutput { events: self.follow(Method::POST, &path, Some(cell)).await? })
    }
}

impl CellOutput {
    /// What it did next; [`CellEvent::Ended`] is the last.
    ///
    /// # Errors
    /// When it was interrupted, or the connection breaks.
    pub async fn next(&mut self) -> Result<CellEvent, ClientError> {
        loop {
            let Some(event) = self.events.next().await? else {
                return Err(ClientError::said("the connection ended before the cell did", None));
            };
            if let Some(event) = read(&event.name, &event.data)? {
                return Ok(event);
            }
        }
    }
}

/// An event of a cell; nothing for one that is not known.
fn read(name: &str, data: &str) -> Result<Option<CellEvent>, ClientError> {
    /// What the server says of it.
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Said {
        chunk: String,
        exit_code: i32,
        error: Option<String>,
        code: String,
        hint: Option<String>,
    }
    if name == "result" {
        return Ok(serde_json::from_str(data).ok().map(CellEvent::Shown));
    }
    let Ok(said) = serde_json::from_str::<Said>(data) else { return Ok(None) };
    match name {
        "stdout" => Ok(Some(CellEvent::Stdout(said.chunk))),
        "stderr" => Ok(Some(CellEvent::Stderr(said.chunk))),
        "exit" => Ok(Some(CellEvent::Ended { exit_code: said.exit_code, error: said.error })),
        "error" => {
            let message = said.error.unwrap_or_else(|| "the server gave up the cell".to_owned());
            Err(ClientError::said_with_code(&message, &said.code, said.hint.as_deref()))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read() {
        let read = |name: &str, data: &str| super::read(name, data).unwrap();
        assert_eq!(read("stdout", r#"{"chunk": "a"}"#), Some(CellEvent::Stdout("a".to_owned())));
        let shown = BTreeMap::from([("text/plain".to_owned(), "42".to_owned())]);
        assert_eq!(read("result", r#"{"text/plain": "42"}"#), Some(CellEvent::Shown(shown)));
        let end = r#"{"exit": 1, "exit_code": 1, "error": "no", "duration_ms": 3, "context_id": "x"}"#;
        assert_eq!(read("exit", end), Some(CellEvent::Ended { exit_code: 1, error: Some("no".to_owned()) }));
        assert_eq!(read("later", "{}"), None);
        let error = super::read("error", r#"{"error": "time is up", "code": "timeout"}"#).unwrap_err();
        assert_eq!(error.refusal().map(|refusal| refusal.code.as_str()), Some("timeout"));
    }
}
