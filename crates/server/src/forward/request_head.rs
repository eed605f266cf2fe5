//! The head of a request as the guest sees it: nothing of the platform's, nothing that only concerned the client's connection.

use std::net::IpAddr;

use axum::http::request::Parts;
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Uri, header};
use control::ControlError;

use super::destination::{Destination, ProxyRoute, connection_options};
use crate::auth::QUERY_KEY;

/// What every key of ours begins with.
const KEY_MARK: &[u8] = b"pds_";
/// Where signed links are.
pub(crate) const SIGNED_PREFIX: &str = "/v1/p/";
/// Headers that the platform gives a meaning, or that whoever sends a request could lie with.
const PLATFORM: [&str; 4] = ["x-request-id", "x-real-ip", "forwarded", "via"];
const PLATFORM_PREFIXES: [&str; 4] = ["x-pandastack-", "x-fcs-", "x-stub-", "x-forwarded-"];
/// Headers that concern one connection only, and `expect`, which is answered here.
const HOP_BY_HOP: [HeaderName; 9] = [
    header::CONNECTION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::EXPECT,
    HeaderName::from_static("keep-alive"),
];
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// What the guest is told of the way to it.
pub(super) struct Proxy {
    /// Who asks.
    pub(super) peer: Option<IpAddr>,
    /// By which scheme.
    pub(super) scheme: &'static str,
    /// The protocol to change to.
    pub(super) protocol: Option<HeaderValue>,
}

/// Whether a header concerns one connection only.
pub(super) fn hop_by_hop(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || *name == PROXY_CONNECTION
}

fn platform(name: &HeaderName) -> bool {
    let name = name.as_str();
    PLATFORM.contains(&name) || PLATFORM_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

fn holds(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark)
}

/// A query without keys of ours. A guest's own `access_token` stays where no key is asked for.
fn query(destination: &Destination, query: &str) -> String {
    let keyed = matches!(destination.passage, ProxyRoute::Keyed { .. });
    let ours = |pair: &&str| {
        let value = pair.strip_prefix(QUERY_KEY).and_then(|rest| rest.strip_prefix('='));
        value.is_some_and(|value| keyed || holds(value.as_bytes(), KEY_MARK)) || (keyed && *pair == QUERY_KEY)
    };
    let kept: Vec<&str> = query.split('&').filter(|pair| !ours(pair)).collect();
    kept.join("&")
}

/// A path and query of the API as the guest sees them.
fn inner(destination: &Destination, path: &str, given: Option<&str>) -> Option<String> {
    let path = match destination.prefix() {
        None => path,
        Some(prefix) => match path.strip_prefix(prefix)? {
            "" => "/",
            rest if rest.starts_with('/') => rest,
            _ => return None,
        },
    };
    let query = given.map(|given| query(destination, given)).filter(|query| !query.is_empty());
    Some(query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}")))
}

/// What the guest is asked for.
pub(super) fn target(destination: &Destination, uri: &Uri) -> Result<Uri, ControlError> {
    let text = inner(destination, uri.path(), uri.query());
    let target = text.and_then(|text| PathAndQuery::try_from(text).ok());
    target.map(Uri::from).ok_or_else(|| ControlError::invalid("malformed path"))
}

/// The host a client asked for, as it wrote it.
pub(crate) fn authority(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    if let Some(authority) = uri.authority() {
        return Some(authority.as_str().to_owned());
    }
    headers.get(header::HOST).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// The page a request was made from, without keys and signed links; none when the guest should not know it.
fn referer(destination: &Destination, value: &HeaderValue, host: Option<&str>) -> Option<HeaderValue> {
    let uri: Uri = value.to_str().ok()?.parse().ok()?;
    if destination.prefix().is_none() {
        let secret = holds(value.as_bytes(), KEY_MARK) || uri.path().starts_with(SIGNED_PREFIX);
        return (!secret).then(|| value.clone());
    }
    if uri.authority().map(|authority| authority.as_str()) != host {
        return None;
    }
    let text = inner(destination, uri.path(), uri.query())?;
    format!("http://{}{text}", destination.local_authority()).try_into().ok()
}

/// Programs compare `Origin` with `Host`; where the latter is changed the former goes with it, unless it is another site.
fn origin(destination: &Destination, value: &HeaderValue, host: Option<&str>) -> HeaderValue {
    let same = value.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, rest)| rest) == host;
    let local = format!("http://{}", destination.local_authority());
    match HeaderValue::try_from(local) {
        Ok(local) if same && destination.prefix().is_some() => local,
        _ => value.clone(),
    }
}

/// The headers the guest sees.
pub(super) fn headers(destination: &Destination, parts: &Parts, proxy: &Proxy) -> HeaderMap {
    let host = authority(&parts.uri, &parts.headers);
    let named: Vec<String> = connection_options(&parts.headers).collect();
    let keyed = matches!(destination.passage, ProxyRoute::Keyed { .. });
    let chunked = parts.headers.contains_key(header::TRANSFER_ENCODING);
    let mut seen = HeaderMap::with_capacity(parts.headers.len() + 6);
    for (name, value) in &parts.headers {
        let of_connection = hop_by_hop(name) || named.iter().any(|named| named == name.as_str());
        if of_connection || platform(name) || *name == header::HOST {
            continue;
        }
        let value = match *name {
            header::AUTHORIZATION if keyed || holds(value.as_bytes(), KEY_MARK) => continue,
            header::CONTENT_LENGTH if chunked => continue,
            header::REFERER => match referer(destination, value, host.as_deref()) {
                Some(value) => value,
                None => continue,
            },
            header::ORIGIN => origin(destination, value, host.as_deref()),
            _ => value.clone(),
        };
        seen.append(name, value);
    }
    let host = host.unwrap_or_else(|| destination.local_authority());
    let told = match destination.passage {
        ProxyRoute::Host => host.clone(),
        _ => destination.local_authority(),
    };
    let mut set = |name: HeaderName, text: &str| {
        if let Ok(value) = HeaderValue::from_str(text) {
            seen.insert(name, value);
        }
    };
    set(header::HOST, &told);
    set(FORWARDED_HOST, &host);
    set(FORWARDED_PROTO, proxy.scheme);
    if let Some(peer) = proxy.peer {
        set(FORWARDED_FOR, &peer.to_string());
    }
    match &proxy.protocol {
        Some(protocol) => {
            seen.insert(header::UPGRADE, protocol.clone());
            seen.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        }
        // Each request has a connection of its own.
        None => drop(seen.insert(header::CONNECTION, HeaderValue::from_static("close"))),
    }
    seen
}

#[cfg(test)]
mod tests;
