//! What a tool is, what it is called with and what comes of it.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use contract::file::FileWritten;
use control::{Caller, Control, ControlError, Kind};
use futures::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::hints;
use crate::answer;

/// Largest file that is read as one result.
const READ_BYTES_MAX: usize = 4 << 20;
/// As much of an argument's unknown name as is repeated.
const ARGUMENT_CHARS_MAX: usize = 64;

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
    pub(super) run: for<'a> fn(ToolCall<'a>) -> BoxFuture<'a, Result<ToolAnswer, ControlError>>,
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
            "inputSchema": {
                "type": "object",
                "properties": (self.arguments)(),
                "required": self.required,
                "additionalProperties": false,
            },
            "annotations": {
                "readOnlyHint": self.effect == Effect::Reads,
                "destructiveHint": self.effect == Effect::Destroys,
            },
        })
    }

    /// Refuses arguments that the tool does not have: a model that misnames one must hear of it.
    pub(super) fn check(&self, arguments: &Value) -> Result<(), ControlError> {
        let (Some(given), Value::Object(known)) = (arguments.as_object(), (self.arguments)()) else {
            return Ok(());
        };
        let unknown =
            given.keys().find(|name| !known.contains_key(*name) && !is_former_name(self.name, name));
        let Some(unknown) = unknown else { return Ok(()) };
        let known: Vec<&str> = known.keys().map(String::as_str).collect();
        let unknown: String = unknown.chars().take(ARGUMENT_CHARS_MAX).collect();
        let message = match known.as_slice() {
            [] => format!("unknown argument {unknown:?}; {} takes none", self.name),
            known => format!("unknown argument {unknown:?}; {} takes {}", self.name, known.join(", ")),
        };
        Err(ControlError::invalid(message))
    }
}

/// Names that published descriptions of a tool give its arguments, and that ours no longer does.
fn is_former_name(tool: &str, argument: &str) -> bool {
    (tool, argument) == ("shell", "timeout_ms")
}

/// What a server's tools are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All of a workspace.
    Workspace,
    /// One sandbox.
    Sandbox,
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
    /// What the server that was asked is about.
    pub(super) fn scope(&self) -> Scope {
        if self.sandbox.is_some() { Scope::Sandbox } else { Scope::Workspace }
    }

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

/// What a tool answers: for the model as text and images, for programs as an object.
#[derive(Debug)]
pub(super) struct ToolAnswer {
    text: String,
    images: Vec<Image>,
    structured: Option<Value>,
    is_error: bool,
}

/// A picture that a model can look at.
#[derive(Debug)]
pub(super) struct Image {
    pub(super) mime_type: &'static str,
    /// Base64 without line breaks.
    pub(super) data: String,
}

impl ToolAnswer {
    pub(super) fn text(text: String) -> Self {
        Self { text, images: Vec::new(), structured: None, is_error: false }
    }

    /// What the API would have answered. A list is an object's `items` for programs, because structured results are objects.
    pub(super) fn json(body: &impl Serialize) -> Result<Self, ControlError> {
        let value = serde_json::to_value(body).map_err(ControlError::internal)?;
        let text = value.to_string();
        let structured = match value {
            object @ Value::Object(_) => object,
            other => json!({ "items": other }),
        };
        Ok(Self { structured: Some(structured), ..Self::text(text) })
    }

    /// With pictures.
    pub(super) fn images(mut self, images: Vec<Image>) -> Self {
        self.images = images;
        self
    }

    /// With what programs read instead of the text.
    pub(super) fn structured(mut self, body: &impl Serialize) -> Result<Self, ControlError> {
        self.structured = Some(serde_json::to_value(body).map_err(ControlError::internal)?);
        Ok(self)
    }

    /// Says that what was tried did not work.
    pub(super) fn failed(mut self) -> Self {
        self.is_error = true;
        self
    }

    fn into_result(self) -> Value {
        let mut content = vec![json!({ "type": "text", "text": self.text })];
        content.extend(
            self.images
                .into_iter()
                .map(|image| json!({ "type": "image", "mimeType": image.mime_type, "data": image.data })),
        );
        let mut result = json!({ "content": content, "isError": self.is_error });
        if let Some(structured) = self.structured {
            result["structuredContent"] = structured;
        }
        result
    }
}

/// The result of a call. What a service refused is told as the API would have told it, in the words of the tools.
pub(super) fn result(outcome: Result<ToolAnswer, ControlError>, scope: Scope) -> Value {
    let answer = outcome.unwrap_or_else(|error| {
        let cause = error.cause();
        if error.kind == Kind::Internal {
            tracing::error!(cause, "a tool failed: {error}");
        } else if let Some(cause) = cause {
            tracing::info!(cause, "a tool failed: {error}");
        }
        let mut body = answer::body(error);
        let hint = body.hint.map(|hint| hints::translated(&hint, scope));
        body.hint = hint.or_else(|| hints::of_its_own(&body.error, scope).map(str::to_owned));
        body.error = hints::translated(&body.error, scope);
        ToolAnswer::json(&body).unwrap_or_else(|_| ToolAnswer::text(body.error)).failed()
    });
    answer.into_result()
}

/// Reads a file: as text, as a picture, or as base64 where it is neither.
pub(super) async fn read_file(call: &ToolCall<'_>, id: &str, path: &str) -> Result<ToolAnswer, ControlError> {
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
    if let Some(mime_type) = image_type(&bytes) {
        let text = format!("[{mime_type}, {} bytes: see the image]", bytes.len());
        return Ok(ToolAnswer::text(text).images(vec![Image { mime_type, data: STANDARD.encode(&bytes) }]));
    }
    Ok(ToolAnswer::text(
        String::from_utf8(bytes)
            .unwrap_or_else(|error| format!("[binary; base64]\n{}", STANDARD.encode(error.as_bytes()))),
    ))
}

/// The type of a picture that models can look at, told by its first bytes.
fn image_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', 0x0d, 0x0a, 0x1a, 0x0a, ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        _ => None,
    }
}

/// Writes a file.
pub(super) async fn write_file(
    call: &ToolCall<'_>,
    id: &str,
    path: String,
    content: &str,
) -> Result<ToolAnswer, ControlError> {
    let (_sandbox, mut writer) = call.control.write_file(call.caller, id, &path).await?;
    writer.write(content.as_bytes()).await?;
    let bytes = writer.finish().await?;
    ToolAnswer::json(&FileWritten { path, bytes })
}

/// A schema of one argument.
pub(super) fn argument(kind: &str, description: &str) -> Value {
    json!({ "type": kind, "description": description })
}

/// A schema of an argument that is one of a few words.
pub(super) fn choice(words: &[&str], description: &str) -> Value {
    json!({ "type": "string", "enum": words, "description": description })
}

/// A schema of an argument that is names and values.
pub(super) fn words(description: &str) -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" }, "description": description })
}

/// A schema of an argument that is names and values, or names and `null` for those that go.
pub(super) fn changed_words(description: &str) -> Value {
    json!({ "type": "object", "additionalProperties": { "type": ["string", "null"] }, "description": description })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool() -> Tool {
        Tool {
            name: "shell",
            description: "",
            effect: Effect::Reads,
            arguments: || json!({ "command": argument("string", ""), "timeout_seconds": argument("number", "") }),
            required: &[],
            run: |_| Box::pin(async { Ok(ToolAnswer::text(String::new())) }),
        }
    }

    #[test]
    fn arguments_that_a_tool_does_not_have_are_named() {
        let check = |arguments: Value| tool().check(&arguments).err().map(|error| error.message);
        assert_eq!(check(json!({ "command": "true", "timeout_seconds": 1 })), None);
        assert_eq!(check(json!({ "command": "true", "timeout_ms": 1 })), None, "as published");
        let said = check(json!({ "command": "true", "cmd": 1 })).unwrap_or_default();
        assert_eq!(said, "unknown argument \"cmd\"; shell takes command, timeout_seconds");
    }

    #[test]
    fn a_list_is_an_object_for_programs() {
        let result = result(ToolAnswer::json(&json!([1])), Scope::Workspace);
        assert_eq!(result["content"][0]["text"], "[1]");
        assert_eq!(result["structuredContent"], json!({ "items": [1] }));
    }

    #[test]
    fn pictures_are_told_from_other_files() {
        assert_eq!(image_type(b"\x89PNG\r\n\x1a\nrest"), Some("image/png"));
        assert_eq!(image_type(b"RIFF0000WEBPVP8 "), Some("image/webp"));
        assert_eq!(image_type(b"RIFF0000WAVEfmt "), None);
        assert_eq!(image_type(b""), None);
    }
}
