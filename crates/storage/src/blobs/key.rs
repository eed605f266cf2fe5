//! Names of blobs.

use std::fmt;

/// Longest name. With a prefix in front of it, it is still within what stores accept.
const KEY_BYTES_MAX: usize = 512;

/// The name of a blob, or of everything below a prefix: parts of letters, digits, `.`, `_` and `-`, separated by `/`. The same name is the
/// same blob in every store, and none leads out of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlobKey(String);

/// Why a text is no name of a blob.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no name of a blob: letters, digits, `.`, `_`, `-`, in parts separated by `/`")]
pub struct KeyError {
    text: String,
}

impl BlobKey {
    /// Takes a name as it is written.
    pub fn parse(text: &str) -> Result<BlobKey, KeyError> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        let good = |part: &str| !matches!(part, "" | "." | "..") && part.bytes().all(plain);
        if text.len() <= KEY_BYTES_MAX && text.split('/').all(good) {
            Ok(BlobKey(text.to_owned()))
        } else {
            Err(KeyError { text: text.chars().take(KEY_BYTES_MAX).collect() })
        }
    }

    /// A name below this one.
    pub fn join(&self, part: &str) -> Result<BlobKey, KeyError> {
        BlobKey::parse(&format!("{}/{part}", self.0))
    }

    /// The name as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain() {
        for good in ["a", "snapshots/0192/memory.blob", "A-b_c.d/e", "..a"] {
            assert_eq!(BlobKey::parse(good).map(|key| key.to_string()).as_deref(), Ok(good));
        }
        let long = "a".repeat(KEY_BYTES_MAX + 1);
        for bad in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "a b", "a#1", "ä", "a%2Fb", "a\0", &long]
        {
            assert!(BlobKey::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_is_joined_to_another() {
        let key = BlobKey::parse("snapshots/1").unwrap();
        assert_eq!(key.join("disk").unwrap().as_str(), "snapshots/1/disk");
        assert!(key.join("../2").is_err());
    }
}
