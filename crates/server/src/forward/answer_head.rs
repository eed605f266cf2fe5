//! The head of a guest's answer as the client sees it.
//!
//! A guest that has a host of its own may say about it what it likes. Below a path of the API it shares a host with others, so what
//! would concern the whole host is taken out, and cookies and redirects are moved below the path.

use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Version, header};

use super::destination::{Destination, connection_options};
use super::request_head::hop_by_hop;

/// Headers with which an answer speaks for its whole host.
const OF_THE_HOST: [&str; 7] = [
    "clear-site-data",
    "nel",
    "public-key-pins",
    "report-to",
    "service-worker-allowed",
    "strict-transport-security",
    "x-request-id",
];

/// What follows the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An ordinary body.
    Whole,
    /// Another protocol.
    Upgraded,
}

/// Changes a guest's head into what the client gets.
pub(super) fn change(destination: &Destination, head: &mut Parts, kind: Kind) {
    head.version = Version::HTTP_11;
    head.extensions.clear();
    let protocol = head.headers.get(header::UPGRADE).cloned();
    if head.headers.contains_key(header::TRANSFER_ENCODING) {
        head.headers.remove(header::CONTENT_LENGTH);
    }
    let named: Vec<String> = connection_options(&head.headers).collect();
    let unwanted: Vec<HeaderName> = head
        .headers
        .keys()
        .filter(|name| {
            let shared = destination.prefix().is_some() && OF_THE_HOST.contains(&name.as_str());
            hop_by_hop(name)
                || shared
                || **name == header::ALT_SVC
                || named.iter().any(|named| named == name.as_str())
        })
        .cloned()
        .collect();
    for name in unwanted {
        head.headers.remove(name);
    }
    cookies(destination, &mut head.headers);
    if let Some(prefix) = destination.prefix() {
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            let moved = head.headers.get(&name).and_then(|value| moved(destination, prefix, value));
            if let Some(value) = moved {
                head.headers.insert(name, value);
            }
        }
    }
    if kind == Kind::Upgraded {
        head.headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        if let Some(protocol) = protocol {
            head.headers.insert(header::UPGRADE, protocol);
        }
    }
}

/// Where a redirect leads when the guest's root is below a path. None when it leads elsewhere and stays as it is.
fn moved(destination: &Destination, prefix: &str, value: &HeaderValue) -> Option<HeaderValue> {
    let text = value.to_str().ok()?;
    let rest = match text {
        _ if text.starts_with("//") => return None,
        _ if text.starts_with('/') => text,
        _ => {
            let rest = text.strip_prefix("http://")?.strip_prefix(&destination.local_authority())?;
            if !(rest.is_empty() || rest.starts_with(['/', '?', '#'])) {
                return None;
            }
            rest
        }
    };
    let slash = if rest.starts_with('/') { "" } else { "/" };
    HeaderValue::try_from(format!("{prefix}{slash}{rest}")).ok()
}

/// Cookies are for this guest alone: never for neighbouring hosts, and below a path for that path only.
fn cookies(destination: &Destination, headers: &mut HeaderMap) {
    let given: Vec<HeaderValue> = headers.get_all(header::SET_COOKIE).iter().cloned().collect();
    headers.remove(header::SET_COOKIE);
    for cookie in given {
        let mut parts = cookie.as_bytes().split(|&byte| byte == b';');
        let mut kept = parts.next().unwrap_or_default().to_vec();
        for part in parts {
            let attribute = part.trim_ascii();
            let (name, value) = match attribute.iter().position(|&byte| byte == b'=') {
                Some(at) => (attribute[..at].trim_ascii(), attribute[at + 1..].trim_ascii()),
                None => (attribute, &b""[..]),
            };
            if name.eq_ignore_ascii_case(b"domain") {
                continue;
            }
            kept.extend_from_slice(b"; ");
            match destination.prefix() {
                Some(prefix) if name.eq_ignore_ascii_case(b"path") && value.starts_with(b"/") => {
                    kept.extend_from_slice(b"Path=");
                    kept.extend_from_slice(prefix.as_bytes());
                    kept.extend_from_slice(value);
                }
                _ => kept.extend_from_slice(attribute),
            }
        }
        if let Ok(value) = HeaderValue::from_bytes(&kept) {
            headers.append(header::SET_COOKIE, value);
        }
    }
}

#[cfg(test)]
mod tests;
