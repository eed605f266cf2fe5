//! The host interface that open sandboxes leave by.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{
    netlink::{Netlink, NetlinkError},
    sysctl::{self, HostChange},
};

const NAME_BYTES_MAX: usize = 15;

/// How open sandboxes reach the world.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Uplink {
    /// Not at all: no address translation, nothing leaves the host.
    #[default]
    None,
    /// By this interface.
    Interface(InterfaceName),
    /// By the interface of the host's default route at the time the network is opened.
    DefaultRoute,
}

/// Name of a network interface that is safe to write into a firewall rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct InterfaceName(String);

/// Why a text is not the name of an interface.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "`{text}` is not the name of an interface: it takes 1 to {NAME_BYTES_MAX} letters, digits or any of . _ - @"
)]
pub struct ParseInterfaceNameError {
    text: String,
}

impl InterfaceName {
    /// Reads a name.
    pub fn parse(text: &str) -> Result<Self, ParseInterfaceNameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
        let fits = (1..=NAME_BYTES_MAX).contains(&text.len()) && text != "." && text != "..";
        if fits && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(ParseInterfaceNameError { text: text.chars().take(32).collect() })
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for InterfaceName {
    type Error = ParseInterfaceNameError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text)
    }
}

impl From<InterfaceName> for String {
    fn from(name: InterfaceName) -> Self {
        name.0
    }
}

/// Why the uplink cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UplinkError {
    /// The named interface does not exist.
    #[error("there is no network interface `{name}`")]
    NoSuchInterface {
        /// The name.
        name: InterfaceName,
    },
    /// The host has no IPv4 default route.
    #[error("the host has no IPv4 default route")]
    NoDefaultRoute,
    /// The interface of the default route has a name we do not write into rules.
    #[error("the interface of the default route cannot be used")]
    UnusableName(#[from] ParseInterfaceNameError),
    /// The kernel's tables could not be read.
    #[error("could not look up the uplink")]
    Lookup(#[from] NetlinkError),
    /// Forwarding could not be switched on.
    #[error("could not switch on forwarding for `{name}`")]
    Forwarding {
        /// The interface.
        name: InterfaceName,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
}

/// Finds the interface. `None` if nothing is to leave the host.
pub(crate) fn resolve(uplink: &Uplink, host: &mut Netlink) -> Result<Option<InterfaceName>, UplinkError> {
    match uplink {
        Uplink::None => Ok(None),
        Uplink::Interface(name) => match host.link(name.as_str())? {
            Some(_) => Ok(Some(name.clone())),
            None => Err(UplinkError::NoSuchInterface { name: name.clone() }),
        },
        Uplink::DefaultRoute => {
            let index = host.default_route_interface()?.ok_or(UplinkError::NoDefaultRoute)?;
            let link = host.links()?.into_iter().find(|link| link.index == index);
            Ok(Some(InterfaceName::parse(&link.ok_or(UplinkError::NoDefaultRoute)?.name)?))
        }
    }
}

/// Lets answers from the uplink through to guests. The general switch and other interfaces are left alone.
///
/// It stays on afterwards: another instance may have come to depend on it.
pub(crate) fn allow_forwarding(name: &InterfaceName) -> Result<Option<HostChange>, UplinkError> {
    let key = format!("ipv4/conf/{name}/forwarding");
    let change = || {
        let before = sysctl::get(&key)?;
        if before == "1" {
            return Ok(None);
        }
        sysctl::set(&key, "1")?;
        Ok(Some(HostChange { setting: format!("net/{key}"), before, after: "1".to_owned() }))
    };
    change().map_err(|source| UplinkError::Forwarding { name: name.clone(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_a_rule() {
        for good in ["eth0", "wlp0s20f3", "br-1.2", "a@b", "x"] {
            assert!(InterfaceName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a b", "a\"b", "eth*", "a/b", "a;b", "a\nb", "ä", "sixteen-bytes-xx"] {
            assert!(InterfaceName::parse(bad).is_err(), "{bad}");
        }
    }
}
