//! Digests: the names of content. Only SHA-256, which every registry uses; anything else is refused rather than half understood.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const ALGORITHM: &str = "sha256:";

/// The SHA-256 of some content, written `sha256:<64 lower-case hexadecimal digits>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; 32]);

/// A text that is no digest this crate can check.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a digest of the form sha256:<64 lower-case hexadecimal digits>")]
pub struct DigestError {
    /// The first part of what was given.
    pub text: String,
}

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Reads `sha256:…`.
    ///
    /// # Errors
    /// When the text is anything else, other algorithms and upper-case digits included.
    pub fn parse(text: &str) -> Result<Self, DigestError> {
        let refused = || DigestError { text: text.chars().take(100).collect() };
        let hex = text.strip_prefix(ALGORITHM).ok_or_else(refused)?.as_bytes();
        let mut bytes = [0; 32];
        if hex.len() != 2 * bytes.len() {
            return Err(refused());
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let high = digit(pair[0]).ok_or_else(refused)?;
            let low = digit(pair[1]).ok_or_else(refused)?;
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }

    /// The 64 hexadecimal digits: the name of a blob's file.
    pub fn hex(&self) -> String {
        let mut text = String::with_capacity(64);
        for byte in self.0 {
            for half in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(half), 16).expect("four bits are a hexadecimal digit"));
            }
        }
        text
    }
}

fn digit(character: u8) -> Option<u8> {
    match character {
        b'0'..=b'9' => Some(character - b'0'),
        b'a'..=b'f' => Some(character - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{ALGORITHM}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        Self::parse(text)
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

/// Takes a digest piece by piece, and counts.
#[derive(Clone, Default)]
pub(crate) struct Digester {
    hasher: Sha256,
    bytes: u64,
}

impl Digester {
    pub(crate) fn update(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn finish(&self) -> Digest {
        Digest(self.hasher.clone().finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip_and_others_are_refused() {
        let empty = Digest::of(b"");
        assert_eq!(empty.hex(), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        assert_eq!(Digest::parse(&empty.to_string()), Ok(empty));
        for text in
            ["", "sha256:", "sha512:00", &empty.hex(), &empty.to_string().to_uppercase(), "sha256:ab/../cd"]
        {
            assert!(Digest::parse(text).is_err(), "{text}");
        }
        assert!(Digest::parse(&format!("{empty}0")).is_err());
    }
}
