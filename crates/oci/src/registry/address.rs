//! Addresses: which may be asked, and where a redirect leads.

use hyper::Uri;
use hyper::http::uri::Scheme;

use super::error::PullError;
use super::settings::PlainHttp;
use crate::reference::{RegistryHost, is_nearby};

/// The host and port of an address, for people and for comparing.
pub(super) fn host(address: &Uri) -> String {
    address.authority().map(|authority| authority.as_str().to_ascii_lowercase()).unwrap_or_default()
}

/// Whether two addresses are of one server: then credentials may go along.
pub(super) fn same_server(one: &Uri, other: &Uri) -> bool {
    let port = |address: &Uri| {
        address.port_u16().unwrap_or(if address.scheme() == Some(&Scheme::HTTP) { 80 } else { 443 })
    };
    let name = |address: &Uri| address.host().map(str::to_ascii_lowercase);
    one.scheme() == other.scheme() && name(one) == name(other) && port(one) == port(other)
}

/// Where a redirect from `from`, or the realm it names, leads.
///
/// A server that was asked over TLS cannot send us where there is none, and one that is elsewhere cannot send us to what only this
/// machine can reach: its own services, or its cloud's.
pub(super) fn lead(from: &Uri, location: &str, plain: &PlainHttp) -> Result<Uri, PullError> {
    let refused =
        |target: &Uri, reason| PullError::Redirect { host: host(from), target: host(target), reason };
    let wrong = || PullError::Protocol { host: host(from), reason: "it sends to an address that is none" };
    let mut target: Uri = location.parse().map_err(|_| wrong())?;
    if target.authority().is_none() {
        if !location.starts_with('/') {
            return Err(wrong());
        }
        let mut parts = target.into_parts();
        parts.scheme = from.scheme().cloned();
        parts.authority = from.authority().cloned();
        target = Uri::from_parts(parts).map_err(|_| wrong())?;
    }
    if target.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        return Err(refused(&target, "it has a user's name in it"));
    }
    match target.scheme_str() {
        Some("https") => {}
        Some("http") => {
            let known = RegistryHost::parse(&host(&target)).is_some_and(|host| plain.allows(&host));
            if from.scheme() != Some(&Scheme::HTTP) || !known {
                return Err(refused(&target, "it is not encrypted"));
            }
        }
        _ => return Err(wrong()),
    }
    if target.host().is_some_and(is_nearby) && !from.host().is_some_and(is_nearby) {
        return Err(refused(&target, "it is an address of this machine"));
    }
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_where_they_may() {
        for (from, location, fine) in [
            ("https://a.example/v2/x", "https://cdn.example/blob?sig=1", true),
            ("https://a.example/v2/x", "/other", true),
            ("https://a.example/v2/x", "other", false),
            ("https://a.example/v2/x", "http://a.example/x", false),
            ("https://a.example/v2/x", "http://127.0.0.1:8080/x", false),
            ("https://a.example/v2/x", "https://127.0.0.1/x", false),
            ("https://a.example/v2/x", "https://[::1]/x", false),
            ("https://a.example/v2/x", "https://169.254.169.254/latest", false),
            ("https://a.example/v2/x", "https://user@cdn.example/x", false),
            ("https://a.example/v2/x", "ftp://a.example/x", false),
            ("https://a.example/v2/x", "", false),
            ("http://127.0.0.1:5000/v2/x", "http://127.0.0.1:6000/x", true),
            ("http://127.0.0.1:5000/v2/x", "http://other.example/x", false),
            ("http://127.0.0.1:5000/v2/x", "https://other.example/x", true),
        ] {
            let led = lead(&from.parse().unwrap(), location, &PlainHttp::Loopback);
            assert_eq!(led.is_ok(), fine, "{from} {location}: {led:?}");
        }
        let here: Uri = "https://a.example/v2".parse().unwrap();
        for (other, same) in [
            ("https://A.example:443/x", true),
            ("https://a.example:444/x", false),
            ("http://a.example/x", false),
            ("https://b.a.example/x", false),
        ] {
            assert_eq!(same_server(&here, &other.parse().unwrap()), same, "{other}");
        }
    }
}
