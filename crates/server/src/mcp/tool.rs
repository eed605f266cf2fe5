//! What a tool is, what it is called with and what comes of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::file::FileWritten;
use control::{Caller, Control, ControlError, Kind};
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::answer;

/// Largest file that is read as one result.
const READ_BYTES_MAX: usize = 4 << 20;

/// A tool.
pub(super) struct Tool {
    pub(super) name: &'static str,
    /// For models: when to use it and what it gives.
    pub(super) description: &'static str,
    pub(super) effect: Effect,
    /// Properties of its arguments, as JSON schemas.
    pub(super) arguments: fn() -> Value,
    /// Arguments that must be given.
    pub(super) required: &'static [&'static str],
    pub(super) run: for<'a> fn(ToolCall<'a>) -> BoxFuture<'a, Result<Text, ControlError>>,
}

/// What a tool does to the world, so that clients know when to ask a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It looks.
    Reads,
    /// It adds or changes something.
    Changes,
    /// It may take something away.
    Destroys,
}

impl Tool {
    /// As clients are told of it.
    pub(super) fn described(&self) -> Value {
        json!({
            "name": self.name,
            "description": self.description,
            "inputSchema": { "type": "object", "properties": (self.arguments)(), "required": self.required },
            "annotations": {
                "readOnlyHint": self.effect == Effect::Reads,
                "destructiveHint": self.effect == Effect::Destroys,
            },
        })
    }
}

/// A tool that is called.
pub(super) struct ToolCall<'a> {
    pub(super) control: &'a Control,
    pub(super) caller: &'a Caller,
    /// The sandbox whose server was asked; the workspace's takes it from the arguments.
    pub(super) sandbox: Option<&'a str>,
    /// Where the API is reached.
    pub(super) base: &'a str,
    pub(super) arguments: Value,
}

impl ToolCall<'_> {
    /// The arguments, as a tool wants them.
    pub(super) fn arguments<T: DeserializeOwned>(&self) -> Result<T, ControlError> {
        if !self.arguments.is_object() {
            return Err(ControlError::invalid("the arguments of a tool are an object"));
        }
        serde_json::from_value(self.arguments.clone())
            .map_err(|error| ControlError::invalid(format!("the arguments do not fit this tool: {error}")))
    }

    /// The sandbox that is meant, if it looks like one.
    pub(super) fn sandbox_id(&self) -> Option<&str> {
        let named = self.arguments["sandbox_id"].as_str();
        let plain =
            |id: &&str| id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        self.sandbox.or(named).filter(plain)
    }
}

/// What a tool answers.
#[derive(Debug)]
pub(super) struct Text {
    text: String,
    /// Whether it is bad news.
    bad: bool,
}

impl Text {
    pub(super) fn good(text: String) -> Self {
        Self { text, bad: false }
    }

    pub(super) fn bad(text: String) -> Self {
        Self { text, bad: true }
    }

    /// What the API would have answered.
    pub(super) fn json(body: &impl Serialize) -> Result<Self, ControlError> {
        Ok(Self::good(serde_json::to_string(body).map_err(ControlError::internal)?))
    }
}

/// The result of a call. What a service refused is told as the API would have told it.
pub(super) fn result(outcome: Result<Text, ControlError>) -> Value {
    let Text { text, bad } = outcome.unwrap_or_else(|error| {
        let cause = error.cause();
        if error.kind == Kind::Internal {
            tracing::error!(cause, "a tool failed: {error}");
        } else if let Some(cause) = cause {
            tracing::info!(cause, "a tool failed: {error}");
        }
        let body = answer::body(error);
        Text::bad(serde_json::to_string(&body).unwrap_or(body.error))
    });
    json!({ "content": [{ "type": "text", "text": text }], "isError": bad })
}

/// Reads a file as text, or as base64 where it is none.
pub(super) async fn read_file(call: &ToolCall<'_>, id: &str, path: &str) -> Result<Text, ControlError> {
    let (_sandbox, mut reader) = call.control.read_file(call.caller, id, path).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = reader.next().await? {
        if bytes.len() + piece.len() > READ_BYTES_MAX {
            let message = format!("the file is larger than {READ_BYTES_MAX} bytes");
            return Err(ControlError::new(Kind::TooLarge, message)
                .hint("read a part of it with a command, such as head -c 100000"));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(Text::good(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| format!("[binary; base64]\n{}", STANDARD.encode(error.as_bytes()))),
    ))
}

/// Writes a file.
pub(super) async fn write_file(
    call: &ToolCall<'_>,
    id: &str,
    path: String,
    content: &str,
) -> Result<Text, ControlError> {
    let (_sandbox, mut writer) = call.control.write_file(call.caller, id, &path).await?;
    writer.write(content.as_bytes()).await?;
    let bytes = writer.finish().await?;
    Text::json(&FileWritten { path, bytes })
}

/// A schema of one argument.
pub(super) fn argument(kind: &str, description: &str) -> Value {
    json!({ "type": kind, "description": description })
}
