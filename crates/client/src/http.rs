//! One request and the head of its answer; refusals as errors.

use std::io;
use std::time::Duration;

use contract::error::{Partial, Progress};
use futures::Stream;
use futures::StreamExt;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
pub use hyper::body::Bytes;
use hyper::body::{Frame, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;

use crate::address::ServerAddress;
use crate::error::{ClientError, Refusal};
use crate::tls;

pub(crate) const AGENT: &str = concat!("pandastack-cli/", env!("CARGO_PKG_VERSION"));
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an answer may take to begin. Snapshots of large sandboxes and templates on slow hosts take their time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(300);
/// Longest silence within a body; event streams have a heartbeat.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// Largest answer that is read as a whole.
const ANSWER_BYTES_MAX: usize = 256 << 20;

/// What is sent with a request.
pub type Upload = UnsyncBoxBody<Bytes, io::Error>;

/// Bytes to send.
pub fn upload_bytes(bytes: impl Into<Bytes>) -> Upload {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

/// Pieces to send as they come.
pub fn upload_stream(pieces: impl Stream<Item = io::Result<Bytes>> + Send + 'static) -> Upload {
    StreamBody::new(pieces.map(|piece| piece.map(Frame::data))).boxed_unsync()
}

/// Connections, with and without TLS.
pub(crate) type Connections = Client<HttpsConnector<HttpConnector>, Upload>;

/// No connections yet, but all that is needed to make them.
pub(crate) fn connections() -> Result<Connections, ClientError> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_nodelay(true);
    connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let connector = HttpsConnectorBuilder::new()
        .with_tls_config(tls::config()?)
        .https_or_http()
        .enable_http1()
        .wrap_connector(connector);
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// Speaks HTTP with one server.
#[derive(Debug, Clone)]
pub(crate) struct Http {
    client: Connections,
    server: ServerAddress,
    authorization: Option<HeaderValue>,
}

/// A request.
pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) accept: &'static str,
    pub(crate) content_type: Option<&'a str>,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Upload,
}

impl Http {
    pub(crate) fn new(server: ServerAddress, key: Option<&str>) -> Result<Self, ClientError> {
        let client = connections()?;
        let authorization = key.map(|key| {
            let mut value = HeaderValue::try_from(format!("Bearer {key}")).map_err(|_| ClientError::Key)?;
            value.set_sensitive(true);
            Ok::<_, ClientError>(value)
        });
        Ok(Self { client, server, authorization: authorization.transpose()? })
    }

    pub(crate) fn server(&self) -> &ServerAddress {
        &self.server
    }

    pub(crate) fn protocol(&self, reason: impl Into<String>) -> ClientError {
        ClientError::Protocol { server: self.server.host().to_owned(), reason: reason.into() }
    }

    /// Sends a request. Whatever is not a success (or a changed protocol) is an error.
    pub(crate) async fn send(&self, ask: Ask<'_>) -> Result<Response<Incoming>, ClientError> {
        let mut request = Request::builder()
            .method(ask.method)
            .uri(self.server.at(ask.path)?)
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, ask.accept);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if let Some(content_type) = ask.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        for (name, value) in ask.headers {
            request = request.header(name, value);
        }
        let request = request.body(ask.body).map_err(|error| self.protocol(error.to_string()))?;
        // The body of an upload may take as long as it takes; the server answers after it.
        let uploads = !hyper::body::Body::is_end_stream(request.body())
            && hyper::body::Body::size_hint(request.body()).exact().is_none();
        let asked = self.client.request(request);
        let response = match uploads {
            true => asked.await,
            false => tokio::time::timeout(HEAD_TIMEOUT, asked).await.map_err(|_| self.silent())?,
        };
        let response = response.map_err(|error| self.broken(error))?;
        if response.status().is_success() || response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Ok(response);
        }
        Err(self.refusal(response).await)
    }

    /// A connection that cannot be made, or breaks.
    pub(crate) fn broken(&self, error: impl std::error::Error + Send + Sync + 'static) -> ClientError {
        ClientError::Unreachable { server: self.server.to_string(), source: Box::new(error) }
    }

    pub(crate) fn silent(&self) -> ClientError {
        ClientError::Silent { server: self.server.host().to_owned() }
    }

    /// The next piece of a body; nothing at its end.
    pub(crate) async fn piece(&self, body: &mut Incoming) -> Result<Option<Bytes>, ClientError> {
        loop {
            match tokio::time::timeout(IDLE_TIMEOUT, body.frame()).await {
                Err(_) => return Err(self.silent()),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(self.broken(error)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    /// All of a body.
    pub(crate) async fn whole(&self, mut body: Incoming) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece(&mut body).await? {
            if bytes.len() + piece.len() > ANSWER_BYTES_MAX {
                return Err(self.protocol("the answer is too large"));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }

    async fn refusal(&self, response: Response<Incoming>) -> ClientError {
        let status = response.status();
        let header = |name: &str| response.headers().get(name).and_then(|value| value.to_str().ok());
        let retry_after_seconds = header(RETRY_AFTER.as_str()).and_then(|text| text.trim().parse().ok());
        let request_id = header("x-request-id").map(str::to_owned);
        let body = self.whole(response.into_body()).await.unwrap_or_default();
        /// The parts of an error that are shown; servers in between leave out most.
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Body {
            error: Option<String>,
            message: Option<String>,
            detail: Option<String>,
            code: Option<String>,
            hint: Option<String>,
            request_id: Option<String>,
            partial: Option<Partial>,
            progress: Option<Progress>,
        }
        let body: Body = serde_json::from_slice(&body).unwrap_or_default();
        let said = body.error.or(body.message).or(body.detail).filter(|text| !text.is_empty());
        let reason = status.canonical_reason().unwrap_or("no reason");
        let message =
            said.unwrap_or_else(|| format!("{} answered {} ({reason})", self.server.host(), status.as_u16()));
        ClientError::Refused(Box::new(Refusal {
            status: status.as_u16(),
            message,
            code: body.code.unwrap_or_default(),
            hint: body.hint,
            request_id: body.request_id.or(request_id),
            retry_after_seconds,
            partial: body.partial,
            progress: body.progress,
        }))
    }
}
