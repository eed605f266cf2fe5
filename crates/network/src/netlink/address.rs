//! Addresses on interfaces, and permanent neighbours.

use std::net::Ipv4Addr;

use super::{
    Netlink, NetlinkError,
    message::{Message, attributes, read_u32},
};
use crate::address::MacAddress;

/// Bytes of `struct ifaddrmsg`.
const HEADER_BYTES: usize = 8;
/// `NDA_DST` and `NDA_LLADDR` of neighbour messages.
const NEIGHBOUR_ADDRESS: u16 = 1;
const NEIGHBOUR_MAC: u16 = 2;
/// `NUD_PERMANENT`: an entry that is never asked for and never forgotten while the link is up.
const NEIGHBOUR_PERMANENT: u16 = 0x80;

/// An IPv4 address of an interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InterfaceAddress {
    pub(crate) index: u32,
    pub(crate) ip: Ipv4Addr,
    pub(crate) prefix: u8,
}

impl InterfaceAddress {
    fn header(&self, scope: u8) -> [u8; HEADER_BYTES] {
        let [a, b, c, d] = self.index.to_ne_bytes();
        [libc::AF_INET as u8, self.prefix, 0, scope, a, b, c, d]
    }
}

impl Netlink {
    /// Gives an interface an address; it may already have it.
    pub(crate) fn set_address(&mut self, address: InterfaceAddress) -> Result<(), NetlinkError> {
        let scope = if address.ip.is_link_local() { libc::RT_SCOPE_LINK } else { libc::RT_SCOPE_UNIVERSE };
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = Message::new(libc::RTM_NEWADDR, flags, &address.header(scope))
            .attribute(libc::IFA_LOCAL, &address.ip.octets())
            .attribute(libc::IFA_ADDRESS, &address.ip.octets());
        self.execute(request)
    }

    /// Every IPv4 address of every interface.
    pub(crate) fn addresses(&mut self) -> Result<Vec<InterfaceAddress>, NetlinkError> {
        let all = InterfaceAddress { index: 0, ip: Ipv4Addr::UNSPECIFIED, prefix: 0 };
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
        self.dump(|| Message::new(libc::RTM_GETADDR, flags, &all.header(0)), read)
    }

    /// Fixes the hardware address behind `ip` on an interface.
    pub(crate) fn set_neighbour(
        &mut self,
        index: u32,
        ip: Ipv4Addr,
        mac: MacAddress,
    ) -> Result<(), NetlinkError> {
        let mut header = [0; 12];
        header[0] = libc::AF_INET as u8;
        header[4..8].copy_from_slice(&index.to_ne_bytes());
        header[8..10].copy_from_slice(&NEIGHBOUR_PERMANENT.to_ne_bytes());
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = Message::new(libc::RTM_NEWNEIGH, flags, &header)
            .attribute(NEIGHBOUR_ADDRESS, &ip.octets())
            .attribute(NEIGHBOUR_MAC, &mac.0);
        self.execute(request)
    }
}

fn read(payload: &[u8]) -> Option<InterfaceAddress> {
    let prefix = *payload.get(1)?;
    let index = read_u32(payload, 4)?;
    let (_, ip) = attributes(payload.get(HEADER_BYTES..)?).find(|(kind, _)| *kind == libc::IFA_LOCAL)?;
    let octets: [u8; 4] = ip.try_into().ok()?;
    Some(InterfaceAddress { index, ip: octets.into(), prefix })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
