//! The short name of one instance, and the host names made from it. Pure.
//!
//! Two instances on one host never collide, because their tags differ and `v` and `-` are not hexadecimal digits:
//! no name of one tag is the beginning of a name of another.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::address::Slot;

const TAG_CHARS_MIN: usize = 4;
const TAG_CHARS_MAX: usize = 6;

/// Four to six lowercase hexadecimal digits that mark everything one instance makes on its host.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InstanceTag(String);

/// Why a text is not an instance tag.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{text}` is not an instance tag: it takes {TAG_CHARS_MIN} to {TAG_CHARS_MAX} of the characters 0-9 and a-f"
)]
pub struct ParseTagError {
    text: String,
}

impl InstanceTag {
    /// Reads a tag.
    pub fn parse(text: &str) -> Result<Self, ParseTagError> {
        let fits = (TAG_CHARS_MIN..=TAG_CHARS_MAX).contains(&text.len());
        if fits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseTagError { text: text.chars().take(32).collect() })
        }
    }

    /// The tag as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Name of the namespace that belongs to `slot`, as `ip netns` shows it.
    pub fn namespace(&self, slot: Slot) -> String {
        format!("ps-{}-{slot}", self.0)
    }

    /// Name of the host's end of the veth pair that belongs to `slot`.
    pub fn veth(&self, slot: Slot) -> String {
        // Six characters of tag and seven digits of slot make 15, the longest name an interface may have.
        format!("p{}v{slot}", self.0)
    }

    /// Pattern that matches every host veth of this instance and no other interface.
    pub(crate) fn veth_pattern(&self) -> String {
        format!("p{}v*", self.0)
    }

    /// Name of the firewall table.
    pub(crate) fn table(&self) -> String {
        format!("pandastack_{}", self.0)
    }

    /// The instance whose firewall table has this name.
    pub(crate) fn of_table(name: &str) -> Option<Self> {
        Self::parse(name.trim().strip_prefix("pandastack_")?).ok()
    }

    /// The instance whose namespace has this name.
    pub(crate) fn of_namespace(name: &str) -> Option<Self> {
        let tag = Self::parse(name.strip_prefix("ps-")?.rsplit_once('-')?.0).ok()?;
        tag.slot_of_namespace(name).map(|_| tag)
    }

    /// The instance whose host veth has this name.
    pub(crate) fn of_veth(name: &str) -> Option<Self> {
        let tag = Self::parse(name.strip_prefix('p')?.split_once('v')?.0).ok()?;
        tag.slot_of_veth(name).map(|_| tag)
    }

    /// Metric of the route that refuses the pool's unused addresses. It says whose the route is: above it are five, the
    /// number of digits and the digits.
    pub(crate) fn metric(&self) -> u32 {
        let number = u32::from_str_radix(&self.0, 16).expect("a tag is hexadecimal");
        0x5000_0000 | (self.0.len() as u32) << 24 | number
    }

    /// The instance whose route has this metric.
    pub(crate) fn of_metric(metric: u32) -> Option<Self> {
        let digits = (metric >> 24 & 0xf) as usize;
        let text = format!("{:0digits$x}", metric & 0xff_ffff);
        let tag = Self::parse(&text).ok()?;
        (metric >> 28 == 5 && tag.metric() == metric).then_some(tag)
    }

    /// The slot a namespace belongs to, if it is one of ours.
    pub(crate) fn slot_of_namespace(&self, name: &str) -> Option<Slot> {
        slot(name.strip_prefix("ps-")?.strip_prefix(&self.0)?.strip_prefix('-')?)
    }

    /// The slot a host veth belongs to, if it is one of ours.
    pub(crate) fn slot_of_veth(&self, name: &str) -> Option<Slot> {
        slot(name.strip_prefix('p')?.strip_prefix(&self.0)?.strip_prefix('v')?)
    }
}

/// Reads a slot exactly as we write it: digits only, no leading zero.
fn slot(digits: &str) -> Option<Slot> {
    let number: u32 = digits.parse().ok()?;
    (number.to_string() == digits).then_some(Slot::new(number))
}

impl fmt::Display for InstanceTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for InstanceTag {
    type Error = ParseTagError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<InstanceTag> for String {
    fn from(tag: InstanceTag) -> Self {
        tag.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn accepts_short_hex_only() {
        for good in ["0123", "abcde", "00ff99"] {
            assert_eq!(InstanceTag::parse(good).map(|tag| tag.to_string()), Ok(good.to_owned()));
        }
        for bad in ["", "abc", "abcdef0", "ABCD", "12g4", "12 4", "ab\"d", "äbcd"] {
            assert!(InstanceTag::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn longest_name_fits_an_interface() {
        let tag = InstanceTag::parse("abcdef").unwrap();
        assert!(tag.veth(Slot::new((1 << 22) - 1)).len() <= 15);
    }

    proptest! {
        #[test]
        fn names_lead_back_to_their_slot(tag in "[0-9a-f]{4,6}", other in "[0-9a-f]{4,6}", number: u32) {
            let (mine, theirs) = (InstanceTag::parse(&tag).unwrap(), InstanceTag::parse(&other).unwrap());
            let slot = Slot::new(number);
            prop_assert_eq!(mine.slot_of_namespace(&mine.namespace(slot)), Some(slot));
            prop_assert_eq!(mine.slot_of_veth(&mine.veth(slot)), Some(slot));
            prop_assert_eq!(InstanceTag::of_namespace(&mine.namespace(slot)), Some(mine.clone()));
            prop_assert_eq!(InstanceTag::of_veth(&mine.veth(slot)), Some(mine.clone()));
            prop_assert_eq!(InstanceTag::of_table(&mine.table()), Some(mine.clone()));
            prop_assert_eq!(InstanceTag::of_metric(mine.metric()), Some(mine.clone()));
            if mine != theirs {
                prop_assert_eq!(theirs.slot_of_namespace(&mine.namespace(slot)), None);
                prop_assert_eq!(theirs.slot_of_veth(&mine.veth(slot)), None);
            }
        }

        #[test]
        fn any_metric_is_read_without_panic(metric: u32) {
            if let Some(tag) = InstanceTag::of_metric(metric) {
                prop_assert_eq!(tag.metric(), metric);
            }
        }

        #[test]
        fn foreign_names_are_never_ours(name in "\\PC{0,20}") {
            let tag = InstanceTag::parse("abcd").unwrap();
            if let Some(slot) = tag.slot_of_namespace(&name) {
                prop_assert_eq!(tag.namespace(slot), name.clone());
            }
            if let Some(slot) = tag.slot_of_veth(&name) {
                prop_assert_eq!(tag.veth(slot), name);
            }
        }
    }
}
