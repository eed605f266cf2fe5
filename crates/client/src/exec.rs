//! A command in a sandbox: its output byte for byte as it comes, its input, signals for it.
//!
//! It ends with its connection. Input is sent in pieces of which a few may be on their way; the server says when the guest has one.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::error::Partial;
pub use contract::exec::CommandLine;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::address::encoded;
use crate::api::Api;
use crate::error::{ClientError, Refusal};
use crate::socket::{Received, Receiving, Sending};

/// There is one command per connection.
const NAME: &str = "1";

/// A command to run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Command {
    /// A line for the shell, or a program and its arguments.
    pub cmd: CommandLine,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Variables on top of the sandbox's own.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The user who runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// After this long it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<f64>,
    /// Whether it reads what is written to it; otherwise it reads nothing.
    pub open_stdin: bool,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecEvent {
    /// It wrote to standard output.
    Stdout(Vec<u8>),
    /// It wrote to standard error.
    Stderr(Vec<u8>),
    /// A piece of its input has reached it.
    Taken,
    /// It takes no more input.
    Deaf,
    /// It ended.
    Exited {
        /// Its exit code; 128 + n when signal n ended it.
        code: i32,
        /// What may help, where the server knows why it failed.
        hint: Option<String>,
    },
}

/// Where a command is steered.
pub struct ExecInput {
    sending: Sending,
}

/// Where a command's output comes from.
pub struct ExecOutput {
    receiving: Receiving,
}

impl Api {
    /// Starts a command. Dropping both ends kills it.
    ///
    /// # Errors
    /// When there is no such sandbox, or it cannot be used. That the command itself is refused comes with its output.
    pub async fn exec(
        &self,
        sandbox: &str,
        command: &Command,
    ) -> Result<(ExecInput, ExecOutput), ClientError> {
        /// What starts a command.
        #[derive(Serialize)]
        struct Start<'a> {
            id: &'static str,
            binary: bool,
            #[serde(flatten)]
            command: &'a Command,
        }
        let path = format!("/v1/sandboxes/{}/exec/ws", encoded(sandbox));
        let (mut sending, receiving) = self.open_socket(&path).await?;
        sending.json(&Start { id: NAME, binary: true, command }).await?;
        Ok((ExecInput { sending }, ExecOutput { receiving }))
    }
}

impl ExecInput {
    /// Writes to it. At most 16 pieces may be without their [`ExecEvent::Taken`].
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.sending.json(&json!({ "id": NAME, "input": STANDARD.encode(bytes) })).await
    }

    /// Ends its input.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn end(&mut self) -> Result<(), ClientError> {
        self.sending.json(&json!({ "id": NAME, "input_end": true })).await
    }

    /// Signals it and everything it started.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn signal(&mut self, name: &str) -> Result<(), ClientError> {
        self.sending.json(&json!({ "id": NAME, "signal": name })).await
    }
}

impl ExecOutput {
    /// What it did next; [`ExecEvent::Exited`] is the last.
    ///
    /// # Errors
    /// When it could not be started or ran out of time, or when the connection breaks.
    pub async fn next(&mut self) -> Result<ExecEvent, ClientError> {
        /// What the server says.
        #[derive(Deserialize)]
        struct Said {
            stream: Option<String>,
            #[serde(default)]
            base64: String,
            taken: Option<u64>,
            exit: Option<i32>,
            error: Option<String>,
            hint: Option<String>,
            #[serde(default)]
            code: String,
            partial: Option<Partial>,
        }
        loop {
            let text = match self.receiving.next().await? {
                Some(Received::Text(text)) => text,
                Some(Received::Binary(_)) => continue,
                None => return Err(self.receiving.protocol("the connection ended before the command did")),
            };
            let said: Said =
                serde_json::from_str(&text).map_err(|error| self.receiving.protocol(error.to_string()))?;
            if let Some(error) = said.error {
                let mut told = Refusal::said(&error, said.hint.as_deref());
                (told.code, told.partial) = (said.code, said.partial);
                return Err(ClientError::Refused(Box::new(told)));
            }
            if let Some(code) = said.exit {
                return Ok(ExecEvent::Exited { code, hint: said.hint });
            }
            if let Some(taken) = said.taken {
                return Ok(if taken == 0 { ExecEvent::Deaf } else { ExecEvent::Taken });
            }
            let bytes =
                STANDARD.decode(&said.base64).map_err(|error| self.receiving.protocol(error.to_string()))?;
            match said.stream.as_deref() {
                Some("stdout") => return Ok(ExecEvent::Stdout(bytes)),
                Some("stderr") => return Ok(ExecEvent::Stderr(bytes)),
                _ => {}
            }
        }
    }
}
