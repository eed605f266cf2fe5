//! WebSockets: opened by an ordinary request, so that refusals are ordinary refusals.

use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper::{Method, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::api::Api;
use crate::error::ClientError;
use crate::http::{Ask, Http, upload_bytes};

type Stream = WebSocketStream<TokioIo<Upgraded>>;

/// Towards the server.
pub(crate) struct Sending {
    http: Http,
    sink: SplitSink<Stream, Message>,
}

/// From the server.
pub(crate) struct Receiving {
    http: Http,
    stream: SplitStream<Stream>,
}

/// What came from the server.
pub(crate) enum Received {
    Text(String),
    Binary(Vec<u8>),
}

impl Api {
    pub(crate) async fn open_socket(&self, path: &str) -> Result<(Sending, Receiving), ClientError> {
        let key = generate_key();
        let headers = vec![
            ("connection", "Upgrade".to_owned()),
            ("upgrade", "websocket".to_owned()),
            ("sec-websocket-version", "13".to_owned()),
            ("sec-websocket-key", key.clone()),
        ];
        let body = upload_bytes(Vec::new());
        let ask =
            Ask { method: Method::GET, path, accept: "application/json", content_type: None, headers, body };
        let response = self.http.send(ask).await?;
        let accepted = response.headers().get("sec-websocket-accept").map(|value| value.as_bytes());
        let meant = accepted == Some(derive_accept_key(key.as_bytes()).as_bytes());
        if response.status() != StatusCode::SWITCHING_PROTOCOLS || !meant {
            return Err(self.http.protocol("it does not open a WebSocket"));
        }
        let upgraded = hyper::upgrade::on(response).await.map_err(|error| self.http.broken(error))?;
        let stream = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Client, None).await;
        let (sink, stream) = stream.split();
        Ok((Sending { http: self.http.clone(), sink }, Receiving { http: self.http.clone(), stream }))
    }
}

impl Sending {
    pub(crate) async fn json(&mut self, value: &impl Serialize) -> Result<(), ClientError> {
        let text = serde_json::to_string(value).map_err(|error| self.http.protocol(error.to_string()))?;
        self.send(Message::Text(text.into())).await
    }

    pub(crate) async fn bytes(&mut self, bytes: Vec<u8>) -> Result<(), ClientError> {
        self.send(Message::Binary(bytes.into())).await
    }

    /// Ends the connection.
    pub(crate) async fn close(&mut self) -> Result<(), ClientError> {
        self.sink.close().await.map_err(|error| self.http.broken(error))
    }

    async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        self.sink.send(message).await.map_err(|error| self.http.broken(error))
    }
}

impl Receiving {
    /// The next message; nothing when the server closed the connection because all is said. Must be asked for, because that is
    /// how pings are answered.
    pub(crate) async fn next(&mut self) -> Result<Option<Received>, ClientError> {
        loop {
            match self.stream.next().await {
                None => return Ok(None),
                Some(Ok(Message::Text(text))) => return Ok(Some(Received::Text(text.as_str().to_owned()))),
                Some(Ok(Message::Binary(bytes))) => return Ok(Some(Received::Binary(bytes.to_vec()))),
                Some(Ok(Message::Close(Some(frame)))) if !frame.reason.is_empty() => {
                    return Err(ClientError::said(
                        &format!("the connection was closed: {}", frame.reason),
                        None,
                    ));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(self.http.broken(error)),
            }
        }
    }

    pub(crate) fn protocol(&self, reason: impl Into<String>) -> ClientError {
        self.http.protocol(reason)
    }
}
