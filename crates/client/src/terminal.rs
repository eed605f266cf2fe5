//! A shell in a terminal.

use serde::Deserialize;
use serde_json::json;

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;
use crate::socket::{Received, Receiving, Sending};

/// How large a terminal is, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TerminalSize {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub cols: u16,
}

/// What a terminal did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TerminalEvent {
    /// Bytes for the screen.
    Output(Vec<u8>),
    /// Its shell ended.
    Exited(i32),
}

/// Where a terminal is typed at.
pub struct TerminalInput {
    sending: Sending,
}

/// Where a terminal's output comes from.
pub struct TerminalOutput {
    receiving: Receiving,
}

impl Api {
    /// Opens a terminal with a login shell. Dropping both ends hangs it up.
    ///
    /// # Errors
    /// When there is no such sandbox, or it cannot be used.
    pub async fn terminal(
        &self,
        sandbox: &str,
        size: TerminalSize,
        term: Option<&str>,
        cwd: Option<&str>,
    ) -> Result<(TerminalInput, TerminalOutput), ClientError> {
        let TerminalSize { rows, cols } = size;
        let mut path = format!("/v1/sandboxes/{}/ssh?rows={rows}&cols={cols}", encoded(sandbox));
        for (name, value) in [("term", term), ("cwd", cwd)] {
            if let Some(value) = value {
                path.push_str(&format!("&{name}={}", encoded(value)));
            }
        }
        let (sending, receiving) = self.open_socket(&path).await?;
        Ok((TerminalInput { sending }, TerminalOutput { receiving }))
    }
}

impl TerminalInput {
    /// Types.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn write(&mut self, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.sending.bytes(bytes).await
    }

    /// Changes its size.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn resize(&mut self, size: TerminalSize) -> Result<(), ClientError> {
        self.sending.json(&json!({ "resize": { "rows": size.rows, "cols": size.cols } })).await
    }
}

impl TerminalOutput {
    /// What it did next; [`TerminalEvent::Exited`] is the last.
    ///
    /// # Errors
    /// When it could not be opened, or the connection breaks.
    pub async fn next(&mut self) -> Result<TerminalEvent, ClientError> {
        /// What the server says in text.
        #[derive(Deserialize)]
        struct Said {
            exit: Option<i32>,
            error: Option<String>,
            hint: Option<String>,
        }
        loop {
            match self.receiving.next().await? {
                Some(Received::Binary(bytes)) => return Ok(TerminalEvent::Output(bytes)),
                None => return Err(self.receiving.protocol("the connection ended before the terminal did")),
                Some(Received::Text(text)) => {
                    let said: Said = serde_json::from_str(&text)
                        .map_err(|error| self.receiving.protocol(error.to_string()))?;
                    match (said.exit, said.error) {
                        (Some(code), _) => return Ok(TerminalEvent::Exited(code)),
                        (None, Some(error)) => return Err(ClientError::said(&error, said.hint.as_deref())),
                        (None, None) => {}
                    }
                }
            }
        }
    }
}
