//! Processes of a sandbox that outlive the connection that started them.

use contract::process::{Process, ProcessInput, ProcessSignal, StartProcess};
use hyper::Method;
use serde::Deserialize;

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;
use crate::events::Events;

fn at(sandbox: &str) -> String {
    format!("/v1/sandboxes/{}/processes", encoded(sandbox))
}

/// What a process did. Bytes that are no UTF-8 come as replacement characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEvent {
    /// It wrote to standard output.
    Stdout(String),
    /// It wrote to standard error.
    Stderr(String),
    /// It ended; 128 + n when signal n ended it.
    Exited(i32),
}

/// Where a process's output comes from. Dropping it leaves the process alone.
pub struct ProcessOutput {
    events: Events,
}

impl Api {
    /// Processes that run, and some that ended.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn processes(&self, sandbox: &str) -> Result<Vec<Process>, ClientError> {
        self.get(&at(sandbox)).await
    }

    /// One process.
    pub async fn process(&self, sandbox: &str, process: u32) -> Result<Process, ClientError> {
        self.get(&format!("{}/{process}", at(sandbox))).await
    }

    /// Starts a process and does not wait for it.
    pub async fn start_process(&self, sandbox: &str, request: &StartProcess) -> Result<Process, ClientError> {
        self.post(&at(sandbox), request).await
    }

    /// Writes to its standard input.
    pub async fn process_input(
        &self,
        sandbox: &str,
        process: u32,
        input: &ProcessInput,
    ) -> Result<(), ClientError> {
        self.tell(Method::POST, &format!("{}/{process}/input", at(sandbox)), Some(input)).await
    }

    /// Signals it and everything it started.
    pub async fn process_signal(
        &self,
        sandbox: &str,
        process: u32,
        signal: &ProcessSignal,
    ) -> Result<(), ClientError> {
        self.tell(Method::POST, &format!("{}/{process}/signal", at(sandbox)), Some(signal)).await
    }

    /// Follows its output, from as early on as the sandbox holds it.
    pub async fn process_output(&self, sandbox: &str, process: u32) -> Result<ProcessOutput, ClientError> {
        let path = format!("{}/{process}/output", at(sandbox));
        Ok(ProcessOutput { events: self.follow(Method::GET, &path, None::<&()>).await? })
    }
}

impl ProcessOutput {
    /// What it did next; [`ProcessEvent::Exited`] is the last.
    ///
    /// # Errors
    /// When it cannot be followed any more, or the connection breaks.
    pub async fn next(&mut self) -> Result<ProcessEvent, ClientError> {
        /// What the server says of it.
        #[derive(Deserialize)]
        struct Said {
            #[serde(default)]
            chunk: String,
            #[serde(default)]
            exit_code: i32,
            #[serde(default)]
            error: String,
        }
        loop {
            let Some(event) = self.events.next().await? else {
                return Err(ClientError::said("the connection ended before the process did", None));
            };
            let Ok(said) = serde_json::from_str::<Said>(&event.data) else { continue };
            match event.name.as_str() {
                "stdout" => return Ok(ProcessEvent::Stdout(said.chunk)),
                "stderr" => return Ok(ProcessEvent::Stderr(said.chunk)),
                "exit" => return Ok(ProcessEvent::Exited(said.exit_code)),
                "error" => return Err(ClientError::said(&said.error, None)),
                _ => {}
            }
        }
    }
}
