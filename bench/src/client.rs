//! A client that keeps its connection, as SDKs do.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::sync::Mutex;

type Payload = BoxBody<Bytes, Infallible>;

pub(crate) struct Client {
    address: SocketAddr,
    key: String,
    connection: Mutex<Option<SendRequest<Payload>>>,
}

impl Client {
    pub(crate) fn new(address: SocketAddr, key: &str) -> Self {
        Self { address, key: key.to_owned(), connection: Mutex::default() }
    }

    pub(crate) fn with_key(&self, key: &str) -> Self {
        Self::new(self.address, key)
    }

    async fn send(&self, method: Method, path: &str, body: Payload) -> Result<Response<Incoming>> {
        let mut kept = self.connection.lock().await;
        if kept.as_ref().is_none_or(SendRequest::is_closed) {
            let stream = TcpStream::connect(self.address).await.context("connect")?;
            stream.set_nodelay(true)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            // Ends with its sender.
            tokio::spawn(connection);
            *kept = Some(sender);
        }
        let sender = kept.as_mut().context("no connection")?;
        sender.ready().await?;
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, self.address.to_string())
            .header(AUTHORIZATION, format!("Bearer {}", self.key))
            .header(CONTENT_TYPE, "application/json")
            .body(body)?;
        Ok(sender.send_request(request).await?)
    }

    async fn answer(&self, method: Method, path: &str, body: Payload) -> Result<Bytes> {
        let response = self.send(method, path, body).await?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        ensure!(status.is_success(), "{status}: {}", String::from_utf8_lossy(&body));
        Ok(body)
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value> {
        let body = Full::new(Bytes::from(body.to_string())).boxed();
        Ok(serde_json::from_slice(&self.answer(Method::POST, path, body).await?)?)
    }

    pub(crate) async fn get_bytes(&self, path: &str) -> Result<Bytes> {
        self.answer(Method::GET, path, Full::default().boxed()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Result<()> {
        self.answer(Method::DELETE, path, Full::default().boxed()).await.map(drop)
    }

    /// Sends that many bytes in pieces.
    pub(crate) async fn upload(&self, path: &str, bytes: usize, piece_bytes: usize) -> Result<()> {
        let piece = Bytes::from(vec![7; piece_bytes]);
        let pieces = (0..bytes / piece_bytes).map(move |_| Ok::<_, Infallible>(Frame::data(piece.clone())));
        let body = BodyExt::boxed(StreamBody::new(futures::stream::iter(pieces)));
        self.answer(Method::PUT, path, body).await.map(drop)
    }

    /// How many bytes come.
    pub(crate) async fn download(&self, path: &str) -> Result<usize> {
        let response = self.send(Method::GET, path, Full::default().boxed()).await?;
        ensure!(response.status().is_success(), "{}", response.status());
        let (mut body, mut bytes) = (response.into_body(), 0);
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(bytes)
    }
}
