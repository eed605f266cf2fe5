//! IPv4 routes through an unnumbered veth, routes that refuse a range, and the list of all.

use std::net::Ipv4Addr;

use super::{
    Netlink, NetlinkError,
    message::{Message, attributes, read_u32},
};

/// Bytes of `struct rtmsg`.
const HEADER_BYTES: usize = 12;
/// `RTNH_F_ONLINK`: the way is on this link, whatever the addresses say.
const NEXT_HOP_ON_LINK: u32 = 4;

/// A route by way of `via`, which is reached on the interface whatever its addresses are.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) destination: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) via: Ipv4Addr,
    pub(crate) index: u32,
}

/// A route of the main table as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct KnownRoute {
    pub(crate) destination: Ipv4Addr,
    pub(crate) prefix: u8,
    pub(crate) metric: u32,
    /// The interface it leaves by; none for one that refuses.
    pub(crate) index: Option<u32>,
}

/// What is done with a route that refuses a range.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Refusal {
    Add,
    Remove,
}

impl Netlink {
    /// Adds or removes a route that refuses what no longer prefix takes. There already, or absent, is fine.
    pub(crate) fn refuse(
        &mut self,
        what: Refusal,
        (base, prefix): (Ipv4Addr, u8),
        metric: u32,
    ) -> Result<(), NetlinkError> {
        let mut header = [0; HEADER_BYTES];
        header[0] = libc::AF_INET as u8;
        header[1] = prefix;
        header[4] = libc::RT_TABLE_MAIN;
        header[5] = libc::RTPROT_STATIC;
        header[6] = libc::RT_SCOPE_UNIVERSE;
        header[7] = libc::RTN_UNREACHABLE;
        let (kind, more) = match what {
            Refusal::Add => (libc::RTM_NEWROUTE, libc::NLM_F_CREATE | libc::NLM_F_REPLACE),
            Refusal::Remove => (libc::RTM_DELROUTE, 0),
        };
        let request = Message::new(kind, libc::NLM_F_REQUEST | libc::NLM_F_ACK | more, &header)
            .attribute(libc::RTA_DST, &base.octets())
            .attribute(libc::RTA_PRIORITY, &metric.to_ne_bytes());
        match (what, self.execute(request)) {
            (Refusal::Remove, Err(error)) if error.is_absent() => Ok(()),
            (_, outcome) => outcome,
        }
    }

    /// Every route of the main table.
    pub(crate) fn routes(&mut self) -> Result<Vec<KnownRoute>, NetlinkError> {
        let mut header = [0; HEADER_BYTES];
        header[0] = libc::AF_INET as u8;
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
        self.dump(|| Message::new(libc::RTM_GETROUTE, flags, &header), read_route)
    }

    /// Adds a route or replaces the one to the same destination.
    pub(crate) fn set_route(&mut self, route: &Route) -> Result<(), NetlinkError> {
        let mut header = [0; HEADER_BYTES];
        header[0] = libc::AF_INET as u8;
        header[1] = route.prefix;
        header[4] = libc::RT_TABLE_MAIN;
        header[5] = libc::RTPROT_STATIC;
        header[6] = libc::RT_SCOPE_UNIVERSE;
        header[7] = libc::RTN_UNICAST;
        header[8..12].copy_from_slice(&NEXT_HOP_ON_LINK.to_ne_bytes());
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let mut request = Message::new(libc::RTM_NEWROUTE, flags, &header);
        if route.prefix > 0 {
            request = request.attribute(libc::RTA_DST, &route.destination.octets());
        }
        self.execute(
            request
                .attribute(libc::RTA_GATEWAY, &route.via.octets())
                .attribute(libc::RTA_OIF, &route.index.to_ne_bytes()),
        )
    }

    /// Index of the interface the main table's best default route leaves by.
    pub(crate) fn default_route_interface(&mut self) -> Result<Option<u32>, NetlinkError> {
        let mut header = [0; HEADER_BYTES];
        header[0] = libc::AF_INET as u8;
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_DUMP;
        let found = self.dump(|| Message::new(libc::RTM_GETROUTE, flags, &header), read_default)?;
        Ok(found.into_iter().min_by_key(|(metric, _)| *metric).map(|(_, index)| index))
    }
}

fn read_route(payload: &[u8]) -> Option<KnownRoute> {
    let header = payload.first_chunk::<HEADER_BYTES>()?;
    if header[4] != libc::RT_TABLE_MAIN {
        return None;
    }
    let mut route =
        KnownRoute { destination: Ipv4Addr::UNSPECIFIED, prefix: header[1], metric: 0, index: None };
    for (kind, value) in attributes(&payload[HEADER_BYTES..]) {
        match kind {
            libc::RTA_DST => route.destination = <[u8; 4]>::try_from(value).ok()?.into(),
            libc::RTA_PRIORITY => route.metric = read_u32(value, 0)?,
            libc::RTA_OIF => route.index = read_u32(value, 0),
            libc::RTA_MULTIPATH => route.index = read_u32(value, 4),
            _ => {}
        }
    }
    Some(route)
}

/// Metric and interface of a default route in the main table.
fn read_default(payload: &[u8]) -> Option<(u32, u32)> {
    let header = payload.first_chunk::<HEADER_BYTES>()?;
    if header[1] != 0 || header[4] != libc::RT_TABLE_MAIN || header[7] != libc::RTN_UNICAST {
        return None;
    }
    let (mut metric, mut index) = (0, None);
    for (kind, value) in attributes(&payload[HEADER_BYTES..]) {
        match kind {
            libc::RTA_PRIORITY => metric = read_u32(value, 0)?,
            libc::RTA_OIF => index = read_u32(value, 0),
            // The first way of a route with several: a `struct rtnexthop`, whose second word is the interface.
            libc::RTA_MULTIPATH => index = read_u32(value, 4),
            _ => {}
        }
    }
    index.map(|index| (metric, index))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_default(&bytes);
            let _ = read_route(&bytes);
        }
    }
}
