//! Where a collector is, as OpenTelemetry's settings say it.

use hyper::Uri;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

/// Where traces go below a collector's address.
const TRACES_PATH: &str = "v1/traces";

/// A collector that takes OTLP over HTTP.
#[derive(Debug, Clone)]
pub struct Collector {
    /// Host and port, to connect to.
    pub(crate) authority: String,
    /// Path and query.
    pub(crate) path: String,
    /// Sent with every request. Secret.
    pub(crate) headers: HeaderMap,
}

/// Why a collector cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CollectorError {
    /// It is not an address.
    #[error("`{0}` is not an address such as http://localhost:4318")]
    Address(String),
    /// It wants encryption.
    #[error(
        "`{0}`: only http:// is spoken; for a collector elsewhere run one on this host that passes traces on"
    )]
    Encrypted(String),
    /// A list of pairs is none.
    #[error("not a list of the form name=value,name=value")]
    Pairs,
    /// A header cannot be sent.
    #[error("`{0}` is not a header that can be sent")]
    Header(String),
}

impl Collector {
    /// The collector at an address, such as `http://localhost:4318`: traces go to `/v1/traces` below it.
    pub fn at(address: &str) -> Result<Self, CollectorError> {
        Self::exactly(&format!("{}/{TRACES_PATH}", address.trim().trim_end_matches('/')))
    }

    /// The collector whose traces go to exactly this address.
    pub fn exactly(address: &str) -> Result<Self, CollectorError> {
        let wrong = || CollectorError::Address(address.to_owned());
        let uri: Uri = address.trim().parse().map_err(|_| wrong())?;
        match uri.scheme_str() {
            Some("http") => {}
            Some("https") => return Err(CollectorError::Encrypted(address.to_owned())),
            _ => return Err(wrong()),
        }
        let authority = uri.authority().filter(|authority| !authority.host().is_empty()).ok_or_else(wrong)?;
        if authority.as_str().contains('@') {
            return Err(wrong());
        }
        let authority = match authority.port_u16() {
            Some(_) => authority.as_str().to_owned(),
            None => format!("{}:80", authority.host()),
        };
        let path = uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { authority, path, headers: HeaderMap::new() })
    }

    /// The same with headers, as `name=value,name=value` with values percent-encoded.
    pub fn with_headers(mut self, text: &str) -> Result<Self, CollectorError> {
        for (name, value) in pairs(text)? {
            let wrong = || CollectorError::Header(name.clone());
            let header = HeaderName::try_from(name.as_str()).map_err(|_| wrong())?;
            let mut value = HeaderValue::try_from(value).map_err(|_| wrong())?;
            value.set_sensitive(true);
            self.headers.append(header, value);
        }
        Ok(self)
    }
}

/// Reads `name=value,name=value`, values percent-encoded, as OpenTelemetry's environment variables have it.
pub fn pairs(text: &str) -> Result<Vec<(String, String)>, CollectorError> {
    let mut found = Vec::new();
    for pair in text.split(',').map(str::trim).filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').ok_or(CollectorError::Pairs)?;
        let (name, value) = (name.trim(), value.trim());
        if name.is_empty() {
            return Err(CollectorError::Pairs);
        }
        found.push((name.to_owned(), decoded(value).ok_or(CollectorError::Pairs)?));
    }
    Ok(found)
}

fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            bytes.push((digit()? << 4 | digit()?) as u8);
        } else {
            bytes.push(byte);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read() {
        let check = |collector: Result<Collector, CollectorError>, authority: &str, path: &str| {
            let collector = collector.unwrap();
            assert_eq!((collector.authority.as_str(), collector.path.as_str()), (authority, path));
        };
        check(Collector::at("http://localhost:4318"), "localhost:4318", "/v1/traces");
        check(Collector::at("http://[::1]:4318/"), "[::1]:4318", "/v1/traces");
        check(Collector::at("http://collector/otlp/"), "collector:80", "/otlp/v1/traces");
        check(Collector::exactly("http://localhost:4318/x?y=1"), "localhost:4318", "/x?y=1");
        for wrong in ["", "localhost:4318", "ftp://x", "http://", "http://user:word@host", "http://a b"] {
            assert!(matches!(Collector::at(wrong), Err(CollectorError::Address(_))), "{wrong}");
        }
        assert!(matches!(Collector::at("https://x"), Err(CollectorError::Encrypted(_))));
    }

    #[test]
    fn headers_are_read_and_hidden() {
        let collector = Collector::at("http://x").unwrap();
        let collector = collector.with_headers(" authorization=Bearer%20abc , x-a=1=2,").unwrap();
        assert_eq!(collector.headers["authorization"], "Bearer abc");
        assert_eq!(collector.headers["x-a"], "1=2");
        assert!(!format!("{collector:?}").contains("abc"));
        for wrong in ["a", "=b", "a=%zz", "a b=c", "a=%0a"] {
            assert!(Collector::at("http://x").unwrap().with_headers(wrong).is_err(), "{wrong}");
        }
    }
}
