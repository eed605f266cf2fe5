//! Where a server is, and how paths and queries are written.

use std::fmt;

use hyper::Uri;

use crate::error::ClientError;

/// Where a server is: scheme, host, port and perhaps a path before `/v1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerAddress {
    /// Without a slash at its end, and without `/v1`.
    base: String,
}

impl ServerAddress {
    /// Reads an address such as `https://sandboxes.example.org`, with or without `/v1` at its end.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Self, ClientError> {
        let wrong = || ClientError::Address { address: text.to_owned() };
        let base = text.trim().trim_end_matches('/');
        let base = base.strip_suffix("/v1").unwrap_or(base).trim_end_matches('/');
        let uri: Uri = base.parse().map_err(|_| wrong())?;
        let host = uri.host().unwrap_or_default();
        let schemed = matches!(uri.scheme_str(), Some("http" | "https"));
        let user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
        if !schemed || host.is_empty() || user || uri.query().is_some() || base.contains('#') {
            return Err(wrong());
        }
        Ok(Self { base: base.to_owned() })
    }

    /// The address as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.base
    }

    /// The host alone, for error texts.
    pub(crate) fn host(&self) -> &str {
        self.base.split("://").nth(1).unwrap_or(&self.base)
    }

    /// The address of a path that begins with `/`.
    pub(crate) fn at(&self, path: &str) -> Result<Uri, ClientError> {
        let address = format!("{}{path}", self.base);
        address.parse().map_err(|_| ClientError::Address { address })
    }
}

impl fmt::Display for ServerAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.base)
    }
}

/// Text as one segment of a path, or one value of a query: whatever is in it, it stays one.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'~' => encoded.push(byte as char),
            // Otherwise a name of dots would be taken for a direction.
            b'.' if !text.bytes().all(|byte| byte == b'.') => encoded.push('.'),
            _ => {
                const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
                encoded.push('%');
                encoded.push(DIGITS[usize::from(byte >> 4)] as char);
                encoded.push(DIGITS[usize::from(byte & 15)] as char);
            }
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        for (text, base) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
            ("https://api.example.org/v1/", "https://api.example.org"),
            ("https://example.org/pandas/", "https://example.org/pandas"),
        ] {
            assert_eq!(ServerAddress::parse(text).unwrap().as_str(), base);
        }
        for text in [
            "",
            "example.org",
            "ftp://example.org",
            "http://",
            "http://a b",
            "http://me@host",
            "http://a?b=c",
        ] {
            assert!(ServerAddress::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_segment_stays_one() {
        assert_eq!(encoded("a/b?c#d%41 é"), "a%2Fb%3Fc%23d%2541%20%C3%A9");
        assert_eq!(encoded(".."), "%2E%2E");
        assert_eq!(encoded("v1.2"), "v1.2");
    }
}
