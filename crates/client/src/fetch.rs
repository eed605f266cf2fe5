//! Files from anywhere, such as a release of a program: no key goes along, and redirects are followed.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Incoming};
use hyper::header::{LOCATION, USER_AGENT};
use hyper::http::uri::Scheme;
use hyper::{Request, Response, Uri};

use crate::error::ClientError;
use crate::http::{AGENT, Bytes, Connections, connections, upload_bytes};

/// Redirects that are followed for one file.
const REDIRECTS_MAX: usize = 5;

/// Why a file could not be fetched. Addresses are named by their host alone: what follows it may be a signature.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// An address that leads nowhere.
    #[error("`{address}` is not an address of a file")]
    Address {
        /// It.
        address: String,
    },
    /// There is no TLS.
    #[error("could not set up connections")]
    Tls(#[source] ClientError),
    /// There is no connection, or it broke.
    #[error("could not fetch from {host}")]
    Broken {
        /// Which server.
        host: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing came for too long.
    #[error("{host} was silent for {seconds} s")]
    Silent {
        /// Which server.
        host: String,
        /// How long.
        seconds: u64,
    },
    /// The server has no such file, or does not give it.
    #[error("{host} answered {status}")]
    Refused {
        /// Which server.
        host: String,
        /// What it answered.
        status: u16,
    },
    /// A redirect that is not followed.
    #[error("{host} sends elsewhere, which is not followed: {reason}")]
    Redirect {
        /// Which server.
        host: String,
        /// Why not.
        reason: &'static str,
    },
}

impl FetchError {
    /// Whether asking again may help.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Broken { .. } | Self::Silent { .. } => true,
            Self::Refused { status, .. } => *status == 429 || *status >= 500,
            Self::Address { .. } | Self::Tls(_) | Self::Redirect { .. } => false,
        }
    }
}

/// Fetches files.
#[derive(Debug)]
pub struct Fetcher {
    connections: Connections,
    patience: Duration,
}

/// A file on its way here.
#[derive(Debug)]
pub struct Fetched {
    body: Incoming,
    host: String,
    patience: Duration,
    /// Its size, where that is known.
    pub size: Option<u64>,
}

impl Fetcher {
    /// One that waits so long for a server that says nothing.
    ///
    /// # Errors
    /// When there is no TLS.
    pub fn new(patience: Duration) -> Result<Self, FetchError> {
        Ok(Self { connections: connections().map_err(FetchError::Tls)?, patience })
    }

    /// Asks for a file.
    ///
    /// # Errors
    /// When it is not to be had.
    pub async fn get(&self, address: &str) -> Result<Fetched, FetchError> {
        let mut at = parse(address).ok_or_else(|| FetchError::Address { address: address.to_owned() })?;
        for _ in 0..=REDIRECTS_MAX {
            let answer = self.ask(&at).await?;
            let status = answer.status();
            if status.is_success() {
                let size = answer.body().size_hint().exact();
                return Ok(Fetched {
                    body: answer.into_body(),
                    host: host(&at),
                    patience: self.patience,
                    size,
                });
            }
            if !matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308) {
                return Err(FetchError::Refused { host: host(&at), status: status.as_u16() });
            }
            let location = answer.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            at = lead(&at, location.unwrap_or_default())
                .map_err(|reason| FetchError::Redirect { host: host(&at), reason })?;
        }
        Err(FetchError::Redirect { host: host(&at), reason: "there are too many redirects" })
    }

    async fn ask(&self, at: &Uri) -> Result<Response<Incoming>, FetchError> {
        let request = Request::get(at.clone()).header(USER_AGENT, AGENT);
        let request = request.body(upload_bytes(Bytes::new())).map_err(|source| broken(host(at), source))?;
        match tokio::time::timeout(self.patience, self.connections.request(request)).await {
            Err(_) => Err(silent(host(at), self.patience)),
            Ok(asked) => asked.map_err(|source| broken(host(at), source)),
        }
    }
}

impl Fetched {
    /// The next piece; nothing at its end.
    ///
    /// # Errors
    /// When the connection breaks, or nothing comes.
    pub async fn next(&mut self) -> Result<Option<Bytes>, FetchError> {
        loop {
            match tokio::time::timeout(self.patience, self.body.frame()).await {
                Err(_) => return Err(silent(self.host.clone(), self.patience)),
                Ok(None) => return Ok(None),
                Ok(Some(Err(source))) => return Err(broken(self.host.clone(), source)),
                Ok(Some(Ok(frame))) => {
                    if let Ok(piece) = frame.into_data() {
                        return Ok(Some(piece));
                    }
                }
            }
        }
    }
}

fn broken(host: String, source: impl std::error::Error + Send + Sync + 'static) -> FetchError {
    FetchError::Broken { host, source: Box::new(source) }
}

fn silent(host: String, patience: Duration) -> FetchError {
    FetchError::Silent { host, seconds: patience.as_secs() }
}

fn host(address: &Uri) -> String {
    address.authority().map(|authority| authority.as_str().to_owned()).unwrap_or_default()
}

fn parse(address: &str) -> Option<Uri> {
    let uri: Uri = address.parse().ok()?;
    let named = uri.host().is_some_and(|host| !host.is_empty()) && !host(&uri).contains('@');
    (named && matches!(uri.scheme_str(), Some("http" | "https"))).then_some(uri)
}

/// Where a redirect leads. A server that was asked over TLS cannot send us where there is none.
fn lead(from: &Uri, location: &str) -> Result<Uri, &'static str> {
    let target = if location.starts_with('/') && !location.starts_with("//") {
        let mut parts = from.clone().into_parts();
        parts.path_and_query = Some(location.parse().map_err(|_| "its address is none")?);
        Uri::from_parts(parts).map_err(|_| "its address is none")?
    } else {
        parse(location).ok_or("its address is none")?
    };
    if from.scheme() == Some(&Scheme::HTTPS) && target.scheme() != Some(&Scheme::HTTPS) {
        return Err("it is not encrypted");
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_where_they_may() {
        for (from, location, to) in [
            ("https://a.example/x", "https://b.example/y?sig=1", Ok("https://b.example/y?sig=1")),
            ("https://a.example/x?q=1", "/y", Ok("https://a.example/y")),
            ("http://a.example/x", "http://b.example/y", Ok("http://b.example/y")),
            ("http://a.example/x", "https://b.example/y", Ok("https://b.example/y")),
            ("https://a.example/x", "http://b.example/y", Err("it is not encrypted")),
            ("https://a.example/x", "y", Err("its address is none")),
            ("https://a.example/x", "//b.example/y", Err("its address is none")),
            ("https://a.example/x", "file:///etc/passwd", Err("its address is none")),
            ("https://a.example/x", "https://me@b.example/", Err("its address is none")),
            ("https://a.example/x", "", Err("its address is none")),
        ] {
            let led = lead(&from.parse().unwrap(), location);
            assert_eq!(led.map(|uri| uri.to_string()), to.map(str::to_owned), "{from} {location}");
        }
    }

    #[test]
    fn what_may_pass_is_tried_again() {
        let refused = |status| FetchError::Refused { host: String::new(), status }.may_pass();
        assert!(refused(503) && refused(429) && !refused(404) && !refused(403));
        assert!(!FetchError::Address { address: String::new() }.may_pass());
    }
}
