//! Interfaces: make a veth pair, change, remove and list.

use std::os::fd::{AsRawFd, BorrowedFd};

use super::{
    Netlink, NetlinkError,
    message::{Message, attributes, read_i32, read_u32, text},
};
use crate::address::MacAddress;

/// Bytes of `struct ifinfomsg`.
const HEADER_BYTES: usize = 16;
/// `VETH_INFO_PEER`: the other end of a pair that is being made.
const VETH_INFO_PEER: u16 = 1;

/// Group of a wire's interfaces in its namespace, by which they are removed in one step. Loopback is in group 0.
const WIRE_GROUP: u32 = 1;

/// An interface as the kernel describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) is_up: bool,
    /// Both ends are up and the kernel has begun to send.
    pub(crate) is_running: bool,
}

/// A veth pair to be made: one end here, its peer in another namespace. Both ends begin down.
#[derive(Debug)]
pub(crate) struct VethPair<'a> {
    pub(crate) name: &'a str,
    pub(crate) mac: MacAddress,
    pub(crate) peer_name: &'a str,
    pub(crate) peer_mac: MacAddress,
    pub(crate) peer_namespace: BorrowedFd<'a>,
}

/// What to change about an interface.
#[derive(Debug)]
pub(crate) enum LinkChange {
    Up,
    /// Up with this hardware address, as part of the wire that `remove_wire` removes.
    JoinWire(MacAddress),
    Down,
}

fn header(flags: u32, change: u32) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes[12..16].copy_from_slice(&change.to_ne_bytes());
    bytes
}

impl Netlink {
    /// Makes a veth pair.
    pub(crate) fn add_veth(&mut self, pair: &VethPair<'_>) -> Result<(), NetlinkError> {
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_EXCL;
        let request = Message::new(libc::RTM_NEWLINK, flags, &header(0, 0))
            .text(libc::IFLA_IFNAME, pair.name)
            .attribute(libc::IFLA_ADDRESS, &pair.mac.0)
            .nest(libc::IFLA_LINKINFO, &[], |info| {
                info.text(libc::IFLA_INFO_KIND, "veth").nest(libc::IFLA_INFO_DATA, &[], |data| {
                    data.nest(VETH_INFO_PEER, &header(0, 0), |peer| {
                        peer.text(libc::IFLA_IFNAME, pair.peer_name)
                            .attribute(libc::IFLA_ADDRESS, &pair.peer_mac.0)
                            .attribute(libc::IFLA_GROUP, &WIRE_GROUP.to_ne_bytes())
                            .attribute(libc::IFLA_NET_NS_FD, &pair.peer_namespace.as_raw_fd().to_ne_bytes())
                    })
                })
            });
        self.execute(request)
    }

    /// Changes the interface called `name`.
    pub(crate) fn change_link(&mut self, name: &str, change: LinkChange) -> Result<(), NetlinkError> {
        let up = libc::IFF_UP as u32;
        let flags = libc::NLM_F_REQUEST | libc::NLM_F_ACK;
        let begin =
            |state| Message::new(libc::RTM_SETLINK, flags, &header(state, up)).text(libc::IFLA_IFNAME, name);
        self.execute(match change {
            LinkChange::Up => begin(up),
            LinkChange::JoinWire(mac) => begin(up)
                .attribute(libc::IFLA_ADDRESS, &mac.0)
                .attribute(libc::IFLA_GROUP, &WIRE_GROUP.to_ne_bytes()),
            LinkChange::Down => begin(0),
        })
    }

    /// Removes the interface called `name`, and with it the other end of a pair. Absent is fine.
    pub(crate) fn remove_link(&mut self, name: &str) -> Result<(), NetlinkError> {
        self.remove(|request| request.text(libc::IFLA_IFNAME, name))
    }

    /// Removes all interfaces of the wire in this namespace, and the host's end of its veth pair. None is fine.
    pub(crate) fn remove_wire(&mut self) -> Result<(), NetlinkError> {
        self.remove(|request| request.attribute(libc::IFLA_GROUP, &WIRE_GROUP.to_ne_bytes()))
    }

    fn remove(&mut self, which: impl FnOnce(Message) -> Message) -> Result<(), NetlinkError> {
        let request = Message::new(libc::RTM_DELLINK, libc::NLM_F_REQUEST | libc::NLM_F_ACK, &header(0, 0));
        match self.execute(which(request)) {
            Err(error) if error.is_absent() => Ok(()),
            other => other,
        }
    }

    /// The interface called `name`, if there is one.
    pub(crate) fn link(&mut self, name: &str) -> Result<Option<Link>, NetlinkError> {
        let request = Message::new(libc::RTM_GETLINK, libc::NLM_F_REQUEST | libc::NLM_F_ACK, &header(0, 0))
            .text(libc::IFLA_IFNAME, name);
        let mut found = None;
        match self.exchange(request, |reply| found = found.take().or_else(|| read(reply.payload))) {
            Ok(()) => Ok(found),
            Err(error) if error.is_absent() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Index of the interface called `name`, which must exist.
    pub(crate) fn link_index(&mut self, name: &str) -> Result<u32, NetlinkError> {
        self.link(name)?.map(|link| link.index).ok_or_else(|| NetlinkError::Refused {
            reason: format!("there is no interface `{name}`"),
            errno: std::io::Error::from_raw_os_error(libc::ENODEV),
        })
    }

    /// Every interface.
    pub(crate) fn links(&mut self) -> Result<Vec<Link>, NetlinkError> {
        let request =
            || Message::new(libc::RTM_GETLINK, libc::NLM_F_REQUEST | libc::NLM_F_DUMP, &header(0, 0));
        self.dump(request, read)
    }
}

fn read(payload: &[u8]) -> Option<Link> {
    let index = u32::try_from(read_i32(payload, 4)?).ok()?;
    let flags = read_u32(payload, 8)?;
    let (_, name) = attributes(payload.get(HEADER_BYTES..)?).find(|(kind, _)| *kind == libc::IFLA_IFNAME)?;
    Some(Link {
        index,
        name: text(name),
        is_up: flags & libc::IFF_UP as u32 != 0,
        is_running: flags & libc::IFF_RUNNING as u32 != 0,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn loopback_is_found_and_listed() {
        let mut netlink = Netlink::open().unwrap();
        let loopback = netlink.link("lo").unwrap().unwrap();
        assert_eq!(loopback.index, 1);
        assert!(netlink.links().unwrap().contains(&loopback));
        assert_eq!(netlink.link("no-such-link").unwrap(), None);
        assert!(netlink.link_index("no-such-link").unwrap_err().is_absent());
        netlink.remove_link("no-such-link").unwrap();
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&bytes);
        }
    }
}
