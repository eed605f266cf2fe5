//! A path inside a guest: bytes, because file names are bytes. Never a path on the host.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest path the kernel takes, without its terminating NUL.
pub const PATH_BYTES_MAX: usize = 4095;

/// How the name of a file begins that the guest writes aside for the host, beside the file whose place it takes. Two numbers follow.
pub const WRITTEN_ASIDE: &str = ".upload-";

/// Why bytes are not a usable guest path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParsePathError {
    /// Relative paths have no meaning on the link.
    #[error("path is not absolute")]
    NotAbsolute,
    /// A NUL byte would end the path early.
    #[error("path contains a NUL byte")]
    Nul,
    /// The kernel would refuse it.
    #[error("path is longer than {PATH_BYTES_MAX} bytes")]
    TooLong,
}

/// An absolute path in a guest, free of NUL bytes and at most [`PATH_BYTES_MAX`] long.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub struct GuestPath(Vec<u8>);

impl GuestPath {
    /// Checks `bytes` and makes them a path.
    pub fn parse(bytes: impl Into<Vec<u8>>) -> Result<GuestPath, ParsePathError> {
        let bytes = bytes.into();
        if bytes.first() != Some(&b'/') {
            return Err(ParsePathError::NotAbsolute);
        }
        if bytes.len() > PATH_BYTES_MAX {
            return Err(ParsePathError::TooLong);
        }
        if bytes.contains(&0) {
            return Err(ParsePathError::Nul);
        }
        Ok(GuestPath(bytes))
    }

    /// The path as the guest's kernel sees it.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The path as text, with U+FFFD for what is not UTF-8. For people, not for calling back.
    #[must_use]
    pub fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl TryFrom<Vec<u8>> for GuestPath {
    type Error = ParsePathError;

    fn try_from(bytes: Vec<u8>) -> Result<Self, Self::Error> {
        GuestPath::parse(bytes)
    }
}

impl TryFrom<&str> for GuestPath {
    type Error = ParsePathError;

    fn try_from(text: &str) -> Result<Self, Self::Error> {
        GuestPath::parse(text)
    }
}

impl From<GuestPath> for Vec<u8> {
    fn from(path: GuestPath) -> Self {
        path.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Result<(), ParsePathError>) {
        assert_eq!(GuestPath::parse(bytes).map(|_| ()), expected);
    }

    #[test]
    fn parses_only_what_the_kernel_takes() {
        check(b"/", Ok(()));
        check(b"/a b/\xff\n", Ok(()));
        check(b"", Err(ParsePathError::NotAbsolute));
        check(b"etc", Err(ParsePathError::NotAbsolute));
        check(b"/a\0b", Err(ParsePathError::Nul));
        check(&[b'/'; PATH_BYTES_MAX], Ok(()));
        check(&[b'/'; PATH_BYTES_MAX + 1], Err(ParsePathError::TooLong));
    }
}
