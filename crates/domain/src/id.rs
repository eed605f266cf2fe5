//! Names of things. An id is a DNS label without `-`, so it can stand in `{port}-{id}.{host}`.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Longest id: 128 random bits in base 32.
pub(crate) const ID_LENGTH_MAX: usize = 26;
/// Longest template name. Names come from users; this keeps paths and labels short.
pub(crate) const TEMPLATE_NAME_LENGTH_MAX: usize = 63;

const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Why a text is not an id or a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidId {
    /// Nothing was given.
    #[error("it is empty")]
    Empty,
    /// Longer than the bound.
    #[error("it is longer than {max} characters")]
    TooLong {
        /// The bound.
        max: usize,
    },
    /// A character outside the allowed set.
    #[error("it may hold only {allowed}")]
    Character {
        /// The allowed set, in words.
        allowed: &'static str,
    },
}

fn encode(random: [u8; 16]) -> String {
    let mut bits = u128::from_be_bytes(random);
    let mut text = [0u8; ID_LENGTH_MAX];
    for slot in text.iter_mut().rev() {
        *slot = ALPHABET[(bits & 31) as usize];
        bits >>= 5;
    }
    text.iter().map(|&byte| char::from(byte)).collect()
}

fn parse_id(text: &str) -> Result<String, InvalidId> {
    if text.is_empty() {
        return Err(InvalidId::Empty);
    }
    if text.len() > ID_LENGTH_MAX {
        return Err(InvalidId::TooLong { max: ID_LENGTH_MAX });
    }
    if !text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()) {
        return Err(InvalidId::Character { allowed: "lowercase letters and digits" });
    }
    Ok(text.to_owned())
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// An id made of 128 random bits.
            pub fn from_random(random: [u8; 16]) -> Self {
                Self(encode(random))
            }

            /// Checks a text that should be an id.
            pub fn parse(text: &str) -> Result<Self, InvalidId> {
                parse_id(text).map(Self)
            }

            /// Whether it is as long as those made of random bits, and not the beginning of one.
            pub fn is_whole(&self) -> bool {
                self.0.len() == ID_LENGTH_MAX
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        text_conversions!($name);
    };
}

macro_rules! text_conversions {
    ($name:ident) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::parse(text)
            }
        }

        impl TryFrom<String> for $name {
            type Error = InvalidId;
            fn try_from(text: String) -> Result<Self, InvalidId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }
    };
}

id! {
    /// One sandbox: a machine as its user knows it, through sleep and wake.
    SandboxId
}
id! {
    /// One saved instant of a machine.
    SnapshotId
}
id! {
    /// Whoever owns things. Opaque: never a name that somebody chose.
    TenantId
}
id! {
    /// A disk that outlives sandboxes.
    VolumeId
}
id! {
    /// One build of a template, and the disk that came of it.
    BuildId
}

/// The name of a template: lowercase letters, digits and inner hyphens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TemplateName(String);

impl TemplateName {
    /// Checks a text that should be a template's name.
    pub fn parse(text: &str) -> Result<Self, InvalidId> {
        let allowed = "lowercase letters, digits and inner hyphens";
        if text.is_empty() {
            return Err(InvalidId::Empty);
        }
        if text.len() > TEMPLATE_NAME_LENGTH_MAX {
            return Err(InvalidId::TooLong { max: TEMPLATE_NAME_LENGTH_MAX });
        }
        let inside = text.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'));
        if !inside || text.starts_with('-') || text.ends_with('-') {
            return Err(InvalidId::Character { allowed });
        }
        Ok(Self(text.to_owned()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

text_conversions!(TemplateName);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hostile_ids_are_refused() {
        for text in ["", "a-b", "../db", "A", "é", "a b", "a\0", "abcdefghijklmnopqrstuvwxyza"] {
            assert!(SandboxId::parse(text).is_err(), "{text:?}");
        }
        for text in ["", "-a", "a-", "A", "a/b", "..", "a_b"] {
            assert!(TemplateName::parse(text).is_err(), "{text:?}");
        }
        assert!(TemplateName::parse("postgres-16").is_ok());
    }

    proptest! {
        #[test]
        fn random_ids_are_valid_and_distinct(a: [u8; 16], b: [u8; 16]) {
            let (first, second) = (SandboxId::from_random(a), SandboxId::from_random(b));
            prop_assert_eq!(SandboxId::parse(first.as_str()), Ok(first.clone()));
            prop_assert_eq!(a == b, first == second);
        }
    }
}
