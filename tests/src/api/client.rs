//! A small HTTP client: one connection per request, nothing followed, retried or decoded behind a test's back.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::api::event_stream::EventStream;

/// How long an answer may take. Clients give up after 30 s; emulated guests on a busy host are given more.
const TIMEOUT: Duration = Duration::from_secs(120);

/// What is sent with a request.
pub type Payload = BoxBody<Bytes, std::convert::Infallible>;

/// No body.
pub fn nothing() -> Payload {
    Empty::new().boxed()
}

/// Speaks to one server with one key, or none.
#[derive(Debug, Clone)]
pub struct Client {
    address: SocketAddr,
    key: Option<String>,
}

/// An answer, read to its end.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Answer {
    /// The body as JSON; `null` when there is none.
    pub fn json(&self) -> Result<Value> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body).with_context(|| format!("not JSON: {}", self.text()))
    }

    /// The body as text, for messages.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// An error unless this is the status.
    pub fn expect(self, status: u16) -> Result<Self> {
        ensure!(self.status == status, "expected {status}, got {}: {}", self.status, self.text());
        Ok(self)
    }

    /// A header's text; empty when it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The sentence of a failed request; an error unless this is one with this status, in the form every client reads.
    pub fn failure(&self, status: u16) -> Result<String> {
        ensure!(self.status == status, "expected {status}, got {}: {}", self.status, self.text());
        ensure!(self.header("content-type").starts_with("application/json"), "{:?}", self.headers);
        let body = self.json()?;
        let sentence = body["error"].as_str().filter(|text| !text.is_empty());
        ensure!(body["code"].is_string() && body["request_id"].is_string(), "{body}");
        Ok(sentence.with_context(|| format!("no error text: {body}"))?.to_owned())
    }
}

impl Client {
    /// A client of the server at an address.
    pub fn new(address: SocketAddr, key: Option<&str>) -> Self {
        Self { address, key: key.map(str::to_owned) }
    }

    /// The same with another key.
    #[must_use]
    pub fn with_key(&self, key: &str) -> Self {
        Self::new(self.address, Some(key))
    }

    /// The same without a key.
    #[must_use]
    pub fn without_key(&self) -> Self {
        Self::new(self.address, None)
    }

    /// The key.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Sends a request whose body is JSON, or empty without a content type.
    pub async fn request(&self, method: Method, path: &str, body: Option<Value>) -> Result<Answer> {
        match body {
            Some(body) => self.bytes(method, path, "application/json", body.to_string()).await,
            None => self.read(self.send(method, path, &[], nothing()).await?).await,
        }
    }

    /// Sends a request with any bytes.
    pub async fn bytes(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Answer> {
        let headers = [(CONTENT_TYPE.as_str(), content_type)];
        self.read(self.send(method, path, &headers, Full::new(body.into()).boxed()).await?).await
    }

    /// `GET`.
    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.request(Method::GET, path, None).await
    }

    /// `POST` with JSON.
    pub async fn post(&self, path: &str, body: Value) -> Result<Answer> {
        self.request(Method::POST, path, Some(body)).await
    }

    /// `POST` without a body.
    pub async fn post_nothing(&self, path: &str) -> Result<Answer> {
        self.request(Method::POST, path, None).await
    }

    /// `PATCH` with JSON.
    pub async fn patch(&self, path: &str, body: Value) -> Result<Answer> {
        self.request(Method::PATCH, path, Some(body)).await
    }

    /// `PUT` with bytes.
    pub async fn put(&self, path: &str, body: impl Into<Bytes>) -> Result<Answer> {
        self.bytes(Method::PUT, path, "application/octet-stream", body).await
    }

    /// `DELETE`.
    pub async fn delete(&self, path: &str) -> Result<Answer> {
        self.request(Method::DELETE, path, None).await
    }

    /// Sends a request and returns when the answer's head is there. The connection ends with the answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Payload,
    ) -> Result<Response<Incoming>> {
        let what = format!("{method} {path}");
        let stream = TcpStream::connect(self.address).await.context("connect")?;
        stream.set_nodelay(true)?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        // Ends by itself when the answer has been read or dropped.
        tokio::spawn(connection);
        let mut request = Request::builder().method(method).uri(path).header(HOST, self.address.to_string());
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, format!("Bearer {key}"));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).with_context(|| format!("{what}: make the request"))?;
        let answer = tokio::time::timeout(TIMEOUT, sender.send_request(request)).await;
        answer.with_context(|| format!("{what}: no answer"))?.with_context(|| what)
    }

    /// Reads an answer to its end.
    pub async fn read(&self, response: Response<Incoming>) -> Result<Answer> {
        let (parts, body) = response.into_parts();
        let body = tokio::time::timeout(TIMEOUT, body.collect()).await.context("the body does not end")??;
        Ok(Answer { status: parts.status.as_u16(), headers: parts.headers, body: body.to_bytes() })
    }

    /// Sends a request whose answer is an event stream.
    pub async fn events(&self, method: Method, path: &str, body: Option<Value>) -> Result<EventStream> {
        let (headers, body) = match body {
            Some(body) => (
                vec![(CONTENT_TYPE.as_str(), "application/json")],
                Full::new(body.to_string().into()).boxed(),
            ),
            None => (Vec::new(), nothing()),
        };
        let response = self.send(method, path, &headers, body).await?;
        if response.status() != 200 {
            self.read(response).await?.expect(200)?;
            anyhow::bail!("unreachable: the status was checked");
        }
        Ok(EventStream::new(response))
    }

    /// Sends any bytes on a connection of its own and returns all that comes back until the server closes it.
    pub async fn raw(&self, bytes: &[u8]) -> Result<String> {
        let mut stream = TcpStream::connect(self.address).await.context("connect")?;
        stream.write_all(bytes).await.context("write")?;
        stream.shutdown().await.context("end the request")?;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(TIMEOUT, read).await.context("no end")?.context("read")?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}
