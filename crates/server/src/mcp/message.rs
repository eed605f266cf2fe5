//! JSON-RPC 2.0, one message at a time.

use serde_json::{Value, json};

/// The body is no JSON.
const PARSE_ERROR: i32 = -32700;
/// It is JSON and no request.
const INVALID_REQUEST: i32 = -32600;
/// Nobody knows the method.
pub(super) const UNKNOWN_METHOD: i32 = -32601;
/// The method is known and its parameters are malformed.
pub(super) const INVALID_PARAMS: i32 = -32602;
/// The caller asks too often.
pub(super) const SERVER_BUSY: i32 = -32000;

/// What a body holds.
#[derive(Debug, PartialEq)]
pub(super) enum Message {
    /// Wants an answer.
    Call(Call),
    /// Wants none: a notification, or the answer to something that was never asked.
    Notification,
    /// Makes no sense; this is what to answer.
    Invalid(Value),
}

/// A request.
#[derive(Debug, PartialEq)]
pub(super) struct Call {
    /// A string or a number; repeated in the answer.
    pub(super) id: Value,
    pub(super) method: String,
    /// An object, or null.
    pub(super) params: Value,
}

impl Message {
    pub(super) fn parse(bytes: &[u8]) -> Self {
        let invalid = |message| Self::Invalid(failed(&Value::Null, INVALID_REQUEST, message));
        let mut message = match serde_json::from_slice::<Value>(bytes) {
            Ok(Value::Object(message)) => message,
            Ok(Value::Array(_)) => return invalid("batches are not taken; send one message per request"),
            Ok(_) => return invalid("a message is an object"),
            Err(error) => {
                let text = format!("the body is no JSON: {error}");
                return Self::Invalid(failed(&Value::Null, PARSE_ERROR, &text));
            }
        };
        if message.get("jsonrpc").and_then(Value::as_str) != Some("2.0") {
            return invalid("`jsonrpc` must be \"2.0\"");
        }
        let method = match message.remove("method") {
            Some(Value::String(method)) => method,
            None if message.contains_key("result") || message.contains_key("error") => {
                return Self::Notification;
            }
            _ => return invalid("`method` must be a string"),
        };
        let id = match message.remove("id") {
            None => return Self::Notification,
            Some(_) if method.starts_with("notifications/") => return Self::Notification,
            Some(id @ (Value::String(_) | Value::Number(_))) => id,
            Some(_) => return invalid("`id` must be a string or a number"),
        };
        let params = message.remove("params").unwrap_or_default();
        if !params.is_object() && !params.is_null() {
            return Self::Invalid(failed(&id, INVALID_REQUEST, "`params` must be an object"));
        }
        Self::Call(Call { id, method, params })
    }
}

pub(super) fn succeeded(id: &Value, result: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "result": result })
}

pub(super) fn failed(id: &Value, code: i32, message: &str) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<i64> {
        match Message::parse(text.as_bytes()) {
            Message::Invalid(answer) => answer["error"]["code"].as_i64(),
            _ => None,
        }
    }

    #[test]
    fn what_is_no_request_is_told_apart() {
        assert_eq!(code("{"), Some(-32700));
        assert_eq!(code("\u{feff}{}"), Some(-32700));
        for bad in [
            "[]",
            "null",
            "{}",
            r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":5}"#,
            r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}"#,
        ] {
            assert_eq!(code(bad), Some(-32600), "{bad}");
        }
    }

    #[test]
    fn requests_and_notifications() {
        for quiet in [
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            r#"{"jsonrpc":"2.0","method":"ping"}"#,
            r#"{"jsonrpc":"2.0","id":4,"result":{}}"#,
        ] {
            assert_eq!(Message::parse(quiet.as_bytes()), Message::Notification, "{quiet}");
        }
        let call = Call { id: json!("a"), method: "ping".to_owned(), params: Value::Null };
        assert_eq!(Message::parse(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#), Message::Call(call));
    }
}
