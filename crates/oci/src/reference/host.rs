//! Where a registry is: a host and perhaps a port; and patterns over them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longest host name.
const HOST_BYTES_MAX: usize = 253;

/// `host`, `host:port`, `[address]:port`; lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegistryHost(String);

impl RegistryHost {
    /// Reads a host with an optional port; nothing when it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.to_ascii_lowercase();
        let (host, port) = split(&text)?;
        if let Some(port) = port {
            let plain = !port.is_empty() && port.len() <= 5 && port.bytes().all(|byte| byte.is_ascii_digit());
            if !plain || !port.parse::<u16>().is_ok_and(|port| port > 0) {
                return None;
            }
        }
        let valid = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().is_ok(),
            None => is_host_name(host),
        };
        valid.then_some(Self(text))
    }

    /// As it stands in a name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The host without the port.
    pub fn host(&self) -> &str {
        split(&self.0).map_or(self.0.as_str(), |(host, _)| host)
    }

    /// Whether it is this machine, going by its name alone.
    pub fn is_loopback(&self) -> bool {
        is_loopback(self.host())
    }
}

/// Whether a host, as it stands in an address, is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    host == "localhost" || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Whether a host is an address that only means something on or right beside this machine.
pub(crate) fn is_nearby(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let near = |four: Ipv4Addr| four.is_loopback() || four.is_link_local() || four.is_unspecified();
    is_loopback(host)
        || host.ends_with(".localhost")
        || match bare.parse::<IpAddr>() {
            Ok(IpAddr::V4(four)) => near(four),
            Ok(IpAddr::V6(six)) => {
                six.is_unspecified() || six.is_unicast_link_local() || six.to_ipv4_mapped().is_some_and(near)
            }
            Err(_) => false,
        }
}

impl fmt::Display for RegistryHost {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// A registry, or with `*.` before it all hosts below a domain (and not the domain itself). A port must be the same.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegistryPattern {
    below: bool,
    host: RegistryHost,
}

impl RegistryPattern {
    /// Reads a pattern; nothing when it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let (below, host) = match text.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, text),
        };
        Some(Self { below, host: RegistryHost::parse(host)? })
    }

    /// Whether `registry` is meant.
    pub fn matches(&self, registry: &RegistryHost) -> bool {
        if !self.below {
            return self.host == *registry;
        }
        registry
            .as_str()
            .strip_suffix(self.host.as_str())
            .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
    }
}

/// Host and port. Nothing when there is more than one port.
fn split(text: &str) -> Option<(&str, Option<&str>)> {
    let after = text.find(']').map_or(0, |bracket| bracket + 1);
    match text[after..].find(':') {
        None if text[after..].is_empty() || after == 0 => Some((text, None)),
        None => None,
        Some(0) | Some(_) if after > 0 && !text[after..].starts_with(':') => None,
        Some(colon) => Some((&text[..after + colon], Some(&text[after + colon + 1..]))),
    }
}

fn is_host_name(host: &str) -> bool {
    let label = |label: &str| {
        let bytes = label.as_bytes();
        (1..=63).contains(&bytes.len())
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
            && bytes[0] != b'-'
            && bytes[bytes.len() - 1] != b'-'
    };
    !host.is_empty() && host.len() <= HOST_BYTES_MAX && host.split('.').all(label)
}
