//! WebSockets: how they are opened, kept alive, bounded and closed.
//!
//! A client that does not read is dropped once something could not be sent for [`SEND_TIMEOUT`]; one that is silent, not even
//! answering pings, after [`SILENCE_MAX`]. Nothing is queued for it meanwhile: whoever makes the data waits.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::FromRequestParts;
use axum::extract::ws::rejection::WebSocketUpgradeRejection as Rejection;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::http::request::Parts;
use axum::response::Response;
use control::{Caller, Control, ControlError, Kind};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use serde::Serialize;
use serde_json::json;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};

use crate::answer::{ApiError, ApiResult};

/// Largest message from a client; a larger one ends the connection.
pub(crate) const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// How often clients are asked whether they are there.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long a client may be silent: two pings without an answer.
const SILENCE_MAX: Duration = Duration::from_secs(50);
/// How long a client may leave what is sent to it unread.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a client gets to answer that the connection is closed.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest reason that fits a closing frame.
const REASON_BYTES_MAX: usize = 120;
const READ_BUFFER_BYTES: usize = 16 << 10;

/// A request to open a WebSocket.
pub(crate) struct Upgrade(WebSocketUpgrade);

impl<S: Send + Sync> FromRequestParts<S> for Upgrade {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match WebSocketUpgrade::from_request_parts(parts, state).await {
            Ok(upgrade) => Ok(Self(upgrade)),
            Err(Rejection::MethodNotGet(_)) => {
                Err(ControlError::new(Kind::Method, "this route does not take that method").into())
            }
            Err(rejection) => {
                let error = ControlError::invalid("this route is a WebSocket and the request opens none");
                Err(error.hint(rejection.body_text()).into())
            }
        }
    }
}

/// A request to open a WebSocket, or why it is none.
pub(crate) type MaybeUpgrade = Result<Upgrade, ApiError>;

/// The request to open a WebSocket into a sandbox. One that opens none is told so only where the sandbox exists, and wakes nobody.
pub(crate) async fn expect_upgrade(
    control: &Control,
    caller: &Caller,
    id: &str,
    upgrade: MaybeUpgrade,
) -> ApiResult<Upgrade> {
    if upgrade.is_err() {
        control.check_sandbox(caller, id).await?;
    }
    upgrade
}

/// Both directions of an open WebSocket.
pub(crate) struct Socket {
    pub(crate) sending: Sending,
    pub(crate) receiving: Receiving,
}

impl Upgrade {
    /// Offers a subprotocol; it is used if the client asked for it.
    pub(crate) fn protocol(self, name: &'static str) -> Self {
        Self(self.0.protocols([name]))
    }

    /// Answers, then runs `work` on the open connection. A server that goes down waits for it.
    pub(crate) fn run<F>(self, control: &Control, work: impl FnOnce(Socket) -> F + Send + 'static) -> Response
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let control = control.clone();
        let upgrade = self
            .0
            .max_message_size(MESSAGE_BYTES_MAX)
            .max_frame_size(MESSAGE_BYTES_MAX)
            .read_buffer_size(READ_BUFFER_BYTES)
            .write_buffer_size(0);
        upgrade.on_upgrade(move |socket| async move {
            let (sink, stream) = socket.split();
            let socket = Socket { sending: Sending { sink }, receiving: Receiving { stream } };
            control.tracked(work(socket)).await;
        })
    }
}

/// The client is gone, or does not read.
#[derive(Debug)]
pub(crate) struct Lost;

/// Towards the client.
pub(crate) struct Sending {
    sink: SplitSink<WebSocket, Message>,
}

/// Why a connection is closed by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Goodbye {
    /// What it was for is over.
    Done,
    /// The server goes down.
    Away,
    /// The client broke a rule, or lost its permission.
    Refused(&'static str),
    /// A message was too large.
    TooLarge,
    /// What it was for broke.
    Broken(&'static str),
}

impl Sending {
    async fn send(&mut self, message: Message) -> Result<(), Lost> {
        match timeout(SEND_TIMEOUT, self.sink.send(message)).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Lost),
        }
    }

    pub(crate) async fn json(&mut self, value: &impl Serialize) -> Result<(), Lost> {
        let text = serde_json::to_string(value).map_err(|_| Lost)?;
        self.send(Message::Text(text.into())).await
    }

    pub(crate) async fn bytes(&mut self, bytes: Vec<u8>) -> Result<(), Lost> {
        self.send(Message::Binary(bytes.into())).await
    }

    pub(crate) async fn ping(&mut self) -> Result<(), Lost> {
        self.send(Message::Ping(Bytes::new())).await
    }
}

/// What came from the client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Received {
    Text(String),
    Binary(Bytes),
}

/// Why nothing more comes from the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gone {
    /// It closed the connection, or it broke.
    Left,
    /// It was silent too long.
    Silent,
    /// It sent a message larger than allowed.
    TooLarge,
}

impl From<Gone> for Goodbye {
    fn from(gone: Gone) -> Self {
        match gone {
            Gone::Left => Goodbye::Done,
            Gone::Silent => Goodbye::Refused("no sign of life"),
            Gone::TooLarge => Goodbye::TooLarge,
        }
    }
}

impl From<Lost> for Goodbye {
    fn from(_: Lost) -> Self {
        Goodbye::Refused("nothing is read")
    }
}

/// From the client.
pub(crate) struct Receiving {
    stream: SplitStream<WebSocket>,
}

impl Receiving {
    /// The next message. Must be asked for: that is how pings are answered and silence is noticed.
    pub(crate) async fn next(&mut self) -> Result<Received, Gone> {
        loop {
            match timeout(SILENCE_MAX, self.stream.next()).await {
                Err(_) => return Err(Gone::Silent),
                Ok(Some(Ok(Message::Text(text)))) => return Ok(Received::Text(text.as_str().to_owned())),
                Ok(Some(Ok(Message::Binary(bytes)))) => return Ok(Received::Binary(bytes)),
                Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
                Ok(Some(Ok(Message::Close(_))) | None) => return Err(Gone::Left),
                // The library says so in words only.
                Ok(Some(Err(error))) if format!("{error:?}").contains("MessageTooLong") => {
                    return Err(Gone::TooLarge);
                }
                Ok(Some(Err(_))) => return Err(Gone::Left),
            }
        }
    }
}

impl Socket {
    /// Closes the connection. What the client still sends is read for a moment, because a connection that is dropped with
    /// something unread takes back what was sent last.
    pub(crate) async fn close(mut self, goodbye: Goodbye) {
        let (code, reason) = match goodbye {
            Goodbye::Done => (close_code::NORMAL, ""),
            Goodbye::Away => (close_code::AWAY, "the server goes down"),
            Goodbye::Refused(reason) => (close_code::POLICY, reason),
            Goodbye::TooLarge => (close_code::SIZE, "a message was too large"),
            Goodbye::Broken(reason) => (close_code::ERROR, reason),
        };
        let reason: String = reason.chars().take(REASON_BYTES_MAX).collect();
        let on_disconnect = Message::Close(Some(CloseFrame { code, reason: reason.into() }));
        let closing = async {
            if self.sending.sink.send(on_disconnect).await.is_ok() {
                while let Some(Ok(_)) = self.receiving.stream.next().await {}
            }
        };
        let _ = timeout(CLOSE_TIMEOUT, closing).await;
    }
}

/// An error as it is told over a WebSocket.
pub(crate) fn told(error: &ControlError) -> serde_json::Value {
    let cause = error.cause();
    if error.kind == Kind::Internal {
        tracing::error!(cause, "a connection failed: {error}");
    } else if let Some(cause) = cause {
        tracing::info!(cause, "a connection failed: {error}");
    }
    let mut told = json!({ "error": error.message, "code": error.kind.code() });
    if let Some(hint) = &error.hint {
        told["hint"] = hint.as_str().into();
    }
    if let Some(partial) = &error.partial {
        told["partial"] = json!(partial);
    }
    told
}

/// When pings are due.
pub(crate) fn pings() -> Interval {
    let mut pings = interval_at(Instant::now() + PING_EVERY, PING_EVERY);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pings
}

/// Pings, and makes sure that the caller's key still works: a revoked one loses its connections too.
pub(crate) async fn keep_alive(
    control: &Control,
    caller: &Caller,
    sending: &mut Sending,
) -> Result<(), Goodbye> {
    match control.authenticate_again(caller).await {
        Err(error) if error.kind == Kind::Unauthorized => {
            Err(Goodbye::Refused("the key does not work any more"))
        }
        // A store that is busy is no reason to hang up.
        _ => Ok(sending.ping().await?),
    }
}
