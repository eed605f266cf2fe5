//! One request and its answer, redirects followed.

use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, LOCATION, RANGE, USER_AGENT};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

use super::address;
use super::error::{PullError, PullLimit};
use super::settings::{PlainHttp, PullSettings};
use super::tls::{self, TlsError};

/// Redirects that are followed for one request.
const REDIRECTS_MAX: usize = 5;
const AGENT: &str = concat!("pandastack/", env!("CARGO_PKG_VERSION"));

/// A request.
#[derive(Clone)]
pub(super) struct Ask {
    pub(super) address: Uri,
    pub(super) accept: &'static str,
    pub(super) authorization: Option<HeaderValue>,
    /// Where to begin in the content.
    pub(super) from_byte: u64,
    /// A form to send; then nothing is redirected.
    pub(super) form: Option<String>,
}

/// An answer, and who gave it in the end.
pub(super) struct Answer {
    pub(super) address: Uri,
    pub(super) response: Response<Incoming>,
    idle_timeout: Duration,
}

/// Speaks HTTP, with TLS where it must.
pub(super) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    plain: PlainHttp,
    idle_timeout: Duration,
}

impl Http {
    pub(super) fn new(settings: &PullSettings) -> Result<Self, TlsError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(settings.connect_timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls::config(&settings.certificates)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, plain: settings.plain_http.clone(), idle_timeout: settings.idle_timeout })
    }

    /// Sends a request and follows where it leads. Credentials stay with the server they are for.
    pub(super) async fn send(&self, mut ask: Ask) -> Result<Answer, PullError> {
        let first = ask.address.clone();
        for _ in 0..=REDIRECTS_MAX {
            let response = self.once(&ask).await?;
            let moved = matches!(
                response.status(),
                StatusCode::MOVED_PERMANENTLY
                    | StatusCode::FOUND
                    | StatusCode::SEE_OTHER
                    | StatusCode::TEMPORARY_REDIRECT
                    | StatusCode::PERMANENT_REDIRECT
            );
            if !moved || ask.form.is_some() {
                return Ok(Answer { address: ask.address, response, idle_timeout: self.idle_timeout });
            }
            let location =
                response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or("");
            let target = address::lead(&ask.address, location, &self.plain)?;
            if !address::same_server(&ask.address, &target) {
                ask.authorization = None;
            }
            ask.address = target;
        }
        Err(PullError::Protocol { host: address::host(&first), reason: "it redirects without end" })
    }

    async fn once(&self, ask: &Ask) -> Result<Response<Incoming>, PullError> {
        let host = address::host(&ask.address);
        let method = if ask.form.is_some() { Method::POST } else { Method::GET };
        let mut request = Request::builder()
            .method(method)
            .uri(ask.address.clone())
            .header(USER_AGENT, AGENT)
            .header(ACCEPT, ask.accept);
        if let Some(authorization) = &ask.authorization {
            request = request.header(AUTHORIZATION, authorization.clone());
        }
        if ask.from_byte > 0 {
            request = request.header(RANGE, format!("bytes={}-", ask.from_byte));
        }
        if ask.form.is_some() {
            request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        }
        let body = Full::from(ask.form.clone().unwrap_or_default());
        let wrong = || PullError::Protocol { host: host.clone(), reason: "its address cannot be asked" };
        let request = request.body(body).map_err(|_| wrong())?;
        match tokio::time::timeout(self.idle_timeout, self.client.request(request)).await {
            Err(_) => Err(PullError::Slow { host }),
            Ok(Err(error)) => Err(PullError::Unreachable { host, source: error.into() }),
            Ok(Ok(response)) => Ok(response),
        }
    }
}

impl Answer {
    pub(super) fn status(&self) -> StatusCode {
        self.response.status()
    }

    pub(super) fn host(&self) -> String {
        address::host(&self.address)
    }

    pub(super) fn header(&self, name: impl hyper::header::AsHeaderName) -> Option<&str> {
        self.response.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// The next piece of the content; nothing at its end.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, PullError> {
        loop {
            let host = self.host();
            match tokio::time::timeout(self.idle_timeout, self.response.body_mut().frame()).await {
                Err(_) => return Err(PullError::Slow { host }),
                Ok(None) => return Ok(None),
                Ok(Some(Err(error))) => return Err(PullError::Unreachable { host, source: error.into() }),
                Ok(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }

    /// All of a small content.
    pub(super) async fn whole(mut self, what: &'static str, max: u64) -> Result<Vec<u8>, PullError> {
        let mut bytes = Vec::new();
        while let Some(piece) = self.piece().await? {
            if (bytes.len() + piece.len()) as u64 > max {
                return Err(PullLimit::Small { what, max }.into());
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}
