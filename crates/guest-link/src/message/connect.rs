//! TCP connections into the guest, for previews. The stream's data is the connection's data, in both directions, half-closes
//! included.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Open a connection from inside the guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectRequest {
    /// Where to; the guest's own loopback (first IPv4, then IPv6) when absent.
    pub address: Option<IpAddr>,
    /// The port.
    pub port: u16,
}
