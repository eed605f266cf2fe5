//! The small part of HTTP that Firecracker's control socket needs: one request and one answer for each connection.
//!
//! What comes back is untrusted: a guest may have taken over its Firecracker. Answers are capped and waited for with a deadline.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::room::{CONTROL_SOCKET, Room};
use crate::engine::ControlError;
use crate::on_demand;

/// Longest head of an answer.
const HEAD_BYTES_MAX: usize = 8 * 1024;
/// Longest body of an answer; the largest honest one is the description of a machine.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// How long a Firecracker that has all of its memory may take for an ordinary request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is done to a resource.
#[derive(Debug, Clone, Copy)]
pub(super) enum Method {
    Get,
    Put,
    Patch,
}

/// Firecracker's control socket.
#[derive(Debug)]
pub(super) struct Api {
    room: Arc<Room>,
    /// How long Firecracker may take for an ordinary request.
    patience: Duration,
}

impl Api {
    /// One whose guest's memory comes on demand may wait for that at any time.
    pub(super) fn new(room: Arc<Room>, is_on_demand: bool) -> Self {
        Self { room, patience: on_demand::patience(is_on_demand, TIMEOUT) }
    }

    /// Changes something, with the ordinary deadline. `command` names it in errors.
    pub(super) async fn put(
        &self,
        command: &'static str,
        path: &str,
        body: &Value,
    ) -> Result<(), ControlError> {
        self.call(command, Method::Put, path, Some(body)).await.map(drop)
    }

    /// Makes a request and waits for the answer, with the ordinary deadline.
    pub(super) async fn call(
        &self,
        command: &'static str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ControlError> {
        self.call_within(self.patience, command, method, path, body).await
    }

    /// Makes a request that may take longer.
    pub(super) async fn call_within(
        &self,
        patience: Duration,
        command: &'static str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ControlError> {
        let patience = patience.max(self.patience);
        let exchange = async {
            let mut stream = self.room.connect(CONTROL_SOCKET).await?;
            stream.write_all(request(method, path, body).as_bytes()).await?;
            receive(&mut stream).await
        };
        let received = tokio::time::timeout(patience, exchange)
            .await
            .map_err(|_| ControlError::Unresponsive { command, seconds: patience.as_secs() })?;
        let (status, body) = match received {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(ControlError::Garbled { command }),
            Err(error) if is_gone(&error) => return Err(ControlError::Ended),
            Err(source) => return Err(ControlError::Host { action: "reach the control socket", source }),
        };
        let value = if body.is_empty() { Value::Null } else { parse_body(command, &body)? };
        if (200..300).contains(&status) {
            return Ok(value);
        }
        let reason = value.get("fault_message").and_then(Value::as_str).unwrap_or("no reason given");
        Err(ControlError::Refused { command, reason: reason.chars().take(500).collect() })
    }
}

fn parse_body(command: &'static str, body: &[u8]) -> Result<Value, ControlError> {
    serde_json::from_slice(body).map_err(|_| ControlError::Garbled { command })
}

/// A process that ends takes its socket, and the answers it owes, along.
fn is_gone(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionRefused, ConnectionReset, NotFound, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionRefused | ConnectionReset | NotFound | UnexpectedEof)
}

fn request(method: Method, path: &str, body: Option<&Value>) -> String {
    let method = match method {
        Method::Get => "GET",
        Method::Put => "PUT",
        Method::Patch => "PATCH",
    };
    let body = body.map(Value::to_string).unwrap_or_default();
    let length = if body.is_empty() {
        String::new()
    } else {
        format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len())
    };
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n{length}\r\n{body}")
}

/// Status and body; `None` when it is no answer.
async fn receive(stream: &mut UnixStream) -> io::Result<Option<(u16, Vec<u8>)>> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if bytes.len() > HEAD_BYTES_MAX {
            return Ok(None);
        }
        read_more(stream, &mut bytes).await?;
    };
    let Some((status, length)) = parse_head(&bytes[..head]) else { return Ok(None) };
    if length > BODY_BYTES_MAX {
        return Ok(None);
    }
    let start = head + 4;
    while bytes.len() < start + length {
        read_more(stream, &mut bytes).await?;
    }
    Ok(Some((status, bytes[start..start + length].to_vec())))
}

async fn read_more(stream: &mut UnixStream, bytes: &mut Vec<u8>) -> io::Result<()> {
    let mut buffer = [0; 4096];
    match stream.read(&mut buffer).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        count => {
            bytes.extend_from_slice(&buffer[..count]);
            Ok(())
        }
    }
}

/// Status and length of the body.
pub(crate) fn parse_head(head: &[u8]) -> Option<(u16, usize)> {
    let head = std::str::from_utf8(head).ok()?;
    let mut lines = head.split("\r\n");
    let status = lines.next()?.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let mut length = 0;
    for line in lines {
        let (name, value) = line.split_once(':')?;
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().ok()?;
        }
    }
    Some((status, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read() {
        let head =
            b"HTTP/1.1 400 \r\nServer: Firecracker API\r\nConnection: keep-alive\r\nContent-Length: 12";
        assert_eq!(parse_head(head), Some((400, 12)));
        assert_eq!(parse_head(b"HTTP/1.1 204 \r\nServer: Firecracker API"), Some((204, 0)));
        assert_eq!(parse_head(b"HTTP/1.1 ok"), None);
        assert_eq!(parse_head(b"SSH-2.0"), None);
        assert_eq!(parse_head(b"HTTP/1.1 200 \r\nContent-Length: -1"), None);
        assert_eq!(parse_head(b"\xff\xfe"), None);
    }

    #[test]
    fn requests_have_a_body_or_none() {
        let bare = request(Method::Get, "/", None);
        assert!(bare.starts_with("GET / HTTP/1.1\r\n") && bare.ends_with("\r\n\r\n"), "{bare}");
        let full = request(Method::Put, "/vsock", Some(&serde_json::json!({ "guest_cid": 3 })));
        assert!(
            full.contains("Content-Length: 15\r\n") && full.ends_with("\r\n\r\n{\"guest_cid\":3}"),
            "{full}"
        );
    }
}
