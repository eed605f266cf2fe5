//! A TCP connection to a port of a guest's loopback, over a WebSocket.
//!
//! Binary frames are its bytes, the text `{"eof":true}` says that no more come in that direction, a close frame ends it.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;
use crate::socket::{Received, Receiving, Sending};

/// What comes out of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TunnelEvent {
    /// Bytes.
    Bytes(Vec<u8>),
    /// The guest writes no more; it may still read.
    Eof,
    /// It is over.
    Closed,
}

/// Towards the guest.
pub struct TunnelInput {
    sending: Sending,
}

/// From the guest.
pub struct TunnelOutput {
    receiving: Receiving,
}

impl Api {
    /// Connects to a port of a sandbox. Dropping both ends closes the connection.
    ///
    /// # Errors
    /// When there is no such sandbox, or nothing listens on that port.
    pub async fn tunnel(&self, sandbox: &str, port: u16) -> Result<(TunnelInput, TunnelOutput), ClientError> {
        let path = format!("/v1/sandboxes/{}/ports/{port}/tcp", encoded(sandbox));
        let (sending, receiving) = self.open_socket(&path).await?;
        Ok((TunnelInput { sending }, TunnelOutput { receiving }))
    }
}

impl ClientError {
    /// Whether nothing listens where a tunnel was to lead.
    #[must_use]
    pub fn is_nothing_listening(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.status == StatusCode::BAD_GATEWAY.as_u16())
    }
}

impl TunnelInput {
    /// Sends bytes.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn write(&mut self, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.sending.bytes(bytes).await
    }

    /// Says that no more come.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn end(&mut self) -> Result<(), ClientError> {
        self.sending.json(&json!({ "eof": true })).await
    }

    /// Ends the connection.
    ///
    /// # Errors
    /// When it is broken already.
    pub async fn close(&mut self) -> Result<(), ClientError> {
        self.sending.close().await
    }
}

impl TunnelOutput {
    /// What comes next.
    ///
    /// # Errors
    /// When the connection breaks, or the server says why it ends.
    pub async fn next(&mut self) -> Result<TunnelEvent, ClientError> {
        /// What is said in text.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Said {
            eof: bool,
            error: Option<String>,
            code: String,
            hint: Option<String>,
        }
        loop {
            match self.receiving.next().await? {
                None => return Ok(TunnelEvent::Closed),
                Some(Received::Binary(bytes)) => return Ok(TunnelEvent::Bytes(bytes)),
                Some(Received::Text(text)) => {
                    let said: Said = serde_json::from_str(&text).unwrap_or_default();
                    if let Some(error) = said.error {
                        return Err(ClientError::said_with_code(&error, &said.code, said.hint.as_deref()));
                    }
                    if said.eof {
                        return Ok(TunnelEvent::Eof);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use futures::{SinkExt, StreamExt};
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};
    use tokio_tungstenite::accept_async;
    use tokio_tungstenite::tungstenite::Message;

    use super::*;
    use crate::address::ServerAddress;
    use crate::api::ApiSettings;

    /// Answers each piece with itself in capitals, the end of input with a last word and its own end.
    async fn serve(socket: TcpStream) {
        let mut head = [0; 256];
        let read = socket.peek(&mut head).await.unwrap();
        if !head[..read].starts_with(b"GET /v1/sandboxes/a%20b/ports/3000/tcp ") {
            let mut socket = socket;
            let body = r#"{"error": "nothing listens on port 1", "code": "not_listening"}"#;
            let head = format!("HTTP/1.1 502 Bad Gateway\r\ncontent-length: {}\r\n\r\n", body.len());
            socket.write_all((head + body).as_bytes()).await.unwrap();
            return;
        }
        let mut stream = accept_async(socket).await.unwrap();
        while let Some(Ok(message)) = stream.next().await {
            match message {
                Message::Binary(bytes) => {
                    stream.send(Message::Binary(bytes.to_ascii_uppercase().into())).await.unwrap();
                }
                Message::Text(text) => {
                    assert_eq!(text.as_str(), r#"{"eof":true}"#);
                    stream.send(Message::Binary(b"BYE".to_vec().into())).await.unwrap();
                    stream.send(Message::Text(r#"{"eof":true}"#.into())).await.unwrap();
                    stream.close(None).await.unwrap();
                }
                _ => {}
            }
        }
    }

    #[tokio::test]
    async fn bytes_go_both_ways_and_ends_are_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = ServerAddress::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let serving = tokio::spawn(async move {
            for _ in 0..2 {
                serve(listener.accept().await.unwrap().0).await;
            }
        });
        let api = Api::new(ApiSettings {
            server,
            key: None,
            create_patience: Duration::ZERO,
            stuck_timeout: Duration::ZERO,
            waiting: Arc::new(|_| {}),
        });
        let api = api.unwrap();
        let (mut input, mut output) = api.tunnel("a b", 3000).await.unwrap();
        for text in ["hello", "again"] {
            input.write(text.as_bytes().to_vec()).await.unwrap();
            let loud = text.to_uppercase().into_bytes();
            assert_eq!(output.next().await.unwrap(), TunnelEvent::Bytes(loud));
        }
        input.end().await.unwrap();
        assert_eq!(output.next().await.unwrap(), TunnelEvent::Bytes(b"BYE".to_vec()));
        assert_eq!(output.next().await.unwrap(), TunnelEvent::Eof);
        assert_eq!(output.next().await.unwrap(), TunnelEvent::Closed);
        drop((input, output));
        let Err(refused) = api.tunnel("a b", 1).await else { panic!("nothing listens there") };
        assert!(refused.is_nothing_listening(), "{refused:?}");
        serving.await.unwrap();
    }
}
