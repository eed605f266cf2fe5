//! What a machine calls itself: a DNS label.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::id::InvalidId;

/// Longest label of DNS; the kernel takes one more.
const LENGTH_MAX: usize = 63;

/// A host name: lowercase letters, digits and `-`, beginning and ending with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostName(String);

impl HostName {
    /// Checks a name.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        if text.is_empty() {
            return Err(InvalidId::Empty);
        }
        if text.len() > LENGTH_MAX {
            return Err(InvalidId::TooLong { max: LENGTH_MAX });
        }
        let inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if !text.bytes().all(inside) || text.starts_with('-') || text.ends_with('-') {
            return Err(InvalidId::Character { allowed: "lowercase letters, digits and, between them, `-`" });
        }
        Ok(Self(text.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for HostName {
    type Error = InvalidId;

    fn try_from(text: String) -> Result<Self, InvalidId> {
        Self::parse(&text)
    }
}

impl From<HostName> for String {
    fn from(name: HostName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_dns_are_host_names() {
        for good in ["a", "web-1", "0", &"a".repeat(63)] {
            assert!(HostName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a b", "a\n", "é", &"a".repeat(64)] {
            assert!(HostName::parse(bad).is_err(), "{bad:?}");
        }
    }
}
