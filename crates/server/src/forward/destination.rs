//! Where a request goes, and by which of three ways it came.

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Version, header};

/// The way a client addresses a guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ProxyRoute {
    /// Below a path of the API, with a key.
    Keyed {
        /// The path.
        prefix: String,
    },
    /// Below a path of the API that holds a signed link.
    Signed {
        /// The path.
        prefix: String,
        /// Whether the link is good for some paths only.
        limited: bool,
    },
    /// By a host name of its own.
    Host,
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Destination {
    /// The guest's port.
    pub(crate) port: u16,
    /// The way it came.
    pub(crate) passage: ProxyRoute,
}

/// Names in `Connection`, which concern this connection and no other.
pub(super) fn connection_options(headers: &HeaderMap) -> impl Iterator<Item = String> {
    let values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(|name| name.trim().to_ascii_lowercase())
}

impl Destination {
    /// The part of the API's paths that stands for the guest's root; none when the guest has a host of its own.
    pub(super) fn prefix(&self) -> Option<&str> {
        match &self.passage {
            ProxyRoute::Keyed { prefix } | ProxyRoute::Signed { prefix, .. } => Some(prefix),
            ProxyRoute::Host => None,
        }
    }

    /// What the guest is told it is called when it has no host of its own.
    pub(super) fn local_authority(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// The protocol a client wants to change to, if that may be.
    ///
    /// A link that is good for some paths only allows WebSockets: on a connection that became HTTP/2 any path could be asked for.
    pub(super) fn protocol_wanted(&self, request: &Request) -> Option<HeaderValue> {
        let protocol = request.headers().get(header::UPGRADE)?;
        let asked = connection_options(request.headers()).any(|name| name == "upgrade");
        let limited = matches!(self.passage, ProxyRoute::Signed { limited: true, .. });
        let fits = !limited || protocol.as_bytes().eq_ignore_ascii_case(b"websocket");
        (asked && fits && request.version() == Version::HTTP_11).then(|| protocol.clone())
    }
}
