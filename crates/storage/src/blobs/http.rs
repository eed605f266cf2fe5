//! HTTP for the S3 protocol, with the client and the TLS that the rest of the program uses.

use std::error::Error;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse, HttpResponseBody,
    HttpService,
};
use rustls::{ClientConfig, RootCertStore};

use super::OpenError;

type Hyper = Client<HttpsConnector<HttpConnector>, HttpRequestBody>;

/// Gives clients that share connections.
#[derive(Debug)]
pub(super) struct Connector {
    client: Hyper,
}

#[derive(Debug)]
struct Service {
    client: Hyper,
}

impl Connector {
    pub(super) fn new(connect_timeout: Duration) -> Result<Connector, OpenError> {
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(connect_timeout));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        Ok(Connector { client: Client::builder(TokioExecutor::new()).build(connector) })
    }
}

/// Trusts what the host trusts. Without a certificate there it is still good for addresses that say `http://`.
fn tls() -> Result<ClientConfig, OpenError> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| OpenError::Tls(error.to_string()))?;
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

impl object_store::client::HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Service { client: self.client.clone() }))
    }
}

#[async_trait::async_trait]
impl HttpService for Service {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.client.request(request).await.map_err(|error| {
            let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Request };
            failed(kind, &error)
        })?;
        let (parts, body) = answer.into_parts();
        let body = body.map_err(|error| failed(HttpErrorKind::Interrupted, &error));
        Ok(HttpResponse::from_parts(parts, HttpResponseBody::new(body)))
    }
}

/// An error with all its causes in one text, because only the outermost one would be shown.
fn failed(kind: HttpErrorKind, error: &dyn Error) -> HttpError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    HttpError::new_boxed(kind, text.into())
}
