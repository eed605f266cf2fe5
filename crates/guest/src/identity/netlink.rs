//! The interface's addresses and route, through rtnetlink.

use std::ffi::CString;
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use guest_link::message::{GATEWAY, Network, NetworkPast};

use crate::kernel::{self, check};

/// What one answer of the kernel may hold. Larger ones are cut by the kernel into several.
const RECEIVE_BYTES: usize = 32 * 1024;

const HEADER_BYTES: usize = 16;

/// `RTNH_F_ONLINK`: the gateway is next to us whatever our own address is.
const ON_LINK: u32 = 4;

/// A socket to the kernel, and messages waiting to be sent on it.
pub(super) struct Netlink {
    socket: OwnedFd,
    messages: Vec<u8>,
    sequence: u32,
}

/// A message from the kernel: its type and what follows its header.
pub(super) struct Reply<'a> {
    pub(super) kind: u16,
    pub(super) body: &'a [u8],
}

impl Netlink {
    pub(super) fn open(protocol: libc::c_int) -> io::Result<Netlink> {
        let socket = kernel::socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
        Ok(Netlink { socket, messages: Vec::new(), sequence: 0 })
    }

    /// Adds a message; `attributes` follow the fixed `body`.
    pub(super) fn push(&mut self, kind: u16, flags: libc::c_int, body: &[u8], attributes: &[(u16, &[u8])]) {
        let start = self.messages.len();
        self.sequence += 1;
        self.messages.extend_from_slice(&[0; 4]);
        self.messages.extend_from_slice(&kind.to_ne_bytes());
        self.messages.extend_from_slice(&((flags | libc::NLM_F_REQUEST) as u16).to_ne_bytes());
        self.messages.extend_from_slice(&self.sequence.to_ne_bytes());
        self.messages.extend_from_slice(&[0; 4]);
        self.messages.extend_from_slice(body);
        self.align();
        for (name, value) in attributes {
            self.messages.extend_from_slice(&(value.len() as u16 + 4).to_ne_bytes());
            self.messages.extend_from_slice(&name.to_ne_bytes());
            self.messages.extend_from_slice(value);
            self.align();
        }
        let length = (self.messages.len() - start) as u32;
        self.messages[start..start + 4].copy_from_slice(&length.to_ne_bytes());
    }

    fn align(&mut self) {
        self.messages.resize(self.messages.len().next_multiple_of(4), 0);
    }

    fn send(&mut self) -> io::Result<()> {
        // SAFETY: the kernel reads `messages.len()` bytes; without an address they go to the kernel itself.
        let sent = unsafe {
            libc::send(self.socket.as_raw_fd(), self.messages.as_ptr().cast(), self.messages.len(), 0)
        };
        self.messages.clear();
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the kernel writes at most `buffer.len()` bytes.
        let count =
            unsafe { libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
        if count < 0 { Err(io::Error::last_os_error()) } else { Ok(count as usize) }
    }

    /// Sends one dump request and hands every answer to `each`.
    pub(super) fn dump(&mut self, mut each: impl FnMut(Reply<'_>)) -> io::Result<()> {
        self.send()?;
        let mut buffer = vec![0; RECEIVE_BYTES];
        loop {
            let count = self.receive(&mut buffer)?;
            for reply in replies(&buffer[..count]) {
                match i32::from(reply.kind) {
                    libc::NLMSG_DONE => return Ok(()),
                    libc::NLMSG_ERROR => return acknowledged(&reply),
                    _ => each(reply),
                }
            }
        }
    }

    /// Sends all messages, each of which asked for an acknowledgement, and gives the kernel's verdicts in order.
    pub(super) fn transact(&mut self, count: usize) -> io::Result<Vec<io::Result<()>>> {
        self.send()?;
        let mut verdicts = Vec::with_capacity(count);
        let mut buffer = vec![0; RECEIVE_BYTES];
        while verdicts.len() < count {
            let length = self.receive(&mut buffer)?;
            let acknowledgements =
                replies(&buffer[..length]).filter(|reply| i32::from(reply.kind) == libc::NLMSG_ERROR);
            verdicts.extend(acknowledgements.map(|reply| acknowledged(&reply)));
        }
        Ok(verdicts)
    }

    /// What the kernel had against messages that asked for no acknowledgement. It says so before `send` returns.
    fn refusal(&self) -> io::Result<()> {
        let mut buffer = [0_u8; 512];
        // SAFETY: the kernel writes at most `buffer.len()` bytes.
        let count = unsafe {
            libc::recv(
                self.socket.as_raw_fd(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
            )
        };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::WouldBlock { Ok(()) } else { Err(error) };
        }
        let refusal = replies(&buffer[..buffer.len().min(count as usize)]).next();
        refusal.map_or(Err(io::Error::from_raw_os_error(libc::EIO)), |reply| acknowledged(&reply))
    }
}

fn replies(mut bytes: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    std::iter::from_fn(move || {
        let length = u32::from_ne_bytes(bytes.get(..4)?.try_into().ok()?) as usize;
        let kind = u16::from_ne_bytes(bytes.get(4..6)?.try_into().ok()?);
        let body = bytes.get(HEADER_BYTES..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(Reply { kind, body })
    })
}

fn acknowledged(reply: &Reply<'_>) -> io::Result<()> {
    let code =
        reply.body.get(..4).and_then(|code| code.try_into().ok()).map_or(-libc::EIO, i32::from_ne_bytes);
    if code == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-code)) }
}

/// A route that every guest has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum To {
    /// The default route.
    Everybody,
    /// The same for one address, [`NEIGHBOUR`].
    Neighbour,
}

/// Where the kernel keeps routes it has, beside that to everybody, a place that is still empty for the addresses of guests. Without this an
/// address that is added makes it move that route to a larger node and, once all have seen it, free the smaller one: 500 of the
/// 6,800 blocks of code that a guest runs before it is idle again.
const NEIGHBOUR: Ipv4Addr = Ipv4Addr::new(12, 0, 0, 0);

/// The guest's one interface.
pub(super) struct Interface {
    netlink: Mutex<Netlink>,
    /// For what is asked without netlink.
    socket: OwnedFd,
    name: &'static str,
    index: u32,
    /// Whether it ever had an address. From then on its routes are its users'.
    is_known: AtomicBool,
    /// Whether the route to everybody was there when it was last looked for.
    has_route: AtomicBool,
}

impl Interface {
    pub(super) fn find(name: &'static str, netlink: Netlink) -> io::Result<Interface> {
        let c_name = CString::new(name).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // SAFETY: `c_name` is a C string that outlives the call.
        let index = unsafe { libc::if_nametoindex(c_name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let socket = kernel::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        let (is_known, has_route) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Interface { netlink: Mutex::new(netlink), socket, name, index, is_known, has_route })
    }

    /// Removes every IPv4 address. With the last one the kernel drops all routes and neighbours of the interface.
    pub(super) fn remove_addresses(&self) -> io::Result<()> {
        let mut netlink = self.lock();
        let mut old: Vec<Vec<u8>> = Vec::new();
        let index = self.index;
        let mut body = [0; 8];
        body[0] = libc::AF_INET as u8;
        netlink.push(libc::RTM_GETADDR, libc::NLM_F_DUMP, &body, &[]);
        netlink.dump(|reply| {
            let on = reply.body.get(4..8).and_then(|on| on.try_into().ok()).map(u32::from_ne_bytes);
            if reply.kind == libc::RTM_NEWADDR && on == Some(index) {
                old.push(reply.body.to_vec());
            }
        })?;
        for address in &old {
            // The message that announced it, attributes and all, names it for removal.
            netlink.push(libc::RTM_DELADDR, libc::NLM_F_ACK, address, &[]);
        }
        if old.is_empty() {
            return Ok(());
        }
        for verdict in netlink.transact(old.len())? {
            match verdict {
                // A secondary address goes with its primary one.
                Err(error) if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) => {}
                other => other?,
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Netlink> {
        self.netlink.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings it up.
    pub(super) fn raise(&mut self) -> io::Result<()> {
        let mut netlink = self.lock();
        let up = (libc::IFF_UP as u32).to_ne_bytes();
        let mut link = [0; 16];
        link[4..8].copy_from_slice(&self.index.to_ne_bytes());
        link[8..12].copy_from_slice(&up);
        link[12..16].copy_from_slice(&up);
        netlink.push(libc::RTM_NEWLINK, libc::NLM_F_ACK, &link, &[]);
        netlink.transact(1)?.into_iter().collect()
    }

    /// Makes the route ahead of the address, which is possible because the gateway is always the same. Where it cannot be made now it is
    /// with the address.
    pub(super) fn make_route(&self) {
        if self.is_known.load(Ordering::Relaxed) {
            return;
        }
        let mut netlink = self.lock();
        self.push_route(&mut netlink, To::Everybody, libc::NLM_F_ACK);
        self.push_route(&mut netlink, To::Neighbour, libc::NLM_F_ACK);
        let verdicts = netlink.transact(2);
        // It works without the second.
        let is_made = verdicts.is_ok_and(|verdicts| verdicts.first().is_some_and(Result::is_ok));
        self.has_route.store(is_made, Ordering::Relaxed);
    }

    fn push_route(&self, netlink: &mut Netlink, to: To, flags: libc::c_int) {
        let (gateway, index) = (GATEWAY.octets(), self.index.to_ne_bytes());
        let neighbour = NEIGHBOUR.octets();
        let mut attributes: Vec<(u16, &[u8])> = vec![(libc::RTA_GATEWAY, &gateway), (libc::RTA_OIF, &index)];
        let mut route = [0; 12];
        route[0] = libc::AF_INET as u8;
        route[4] = libc::RT_TABLE_MAIN;
        if to == To::Neighbour {
            route[1] = 32;
            route[4] = libc::RT_TABLE_LOCAL;
            attributes.push((libc::RTA_DST, &neighbour));
        }
        route[5] = libc::RTPROT_BOOT;
        route[6] = libc::RT_SCOPE_UNIVERSE;
        route[7] = libc::RTN_UNICAST;
        route[8..12].copy_from_slice(&ON_LINK.to_ne_bytes());
        netlink.push(
            libc::RTM_NEWROUTE,
            libc::NLM_F_CREATE | libc::NLM_F_REPLACE | flags,
            &route,
            &attributes,
        );
    }

    /// Hardware address, address and, unless it is there already, the route. The change of the hardware address makes the kernel
    /// forget its neighbours.
    pub(super) fn configure(&self, network: &Network) -> io::Result<()> {
        self.set_hardware_address(network.mac)?;
        self.is_known.store(true, Ordering::Relaxed);
        let mut netlink = self.lock();
        let mut address = [0; 8];
        address[0] = libc::AF_INET as u8;
        // It is alone in its network: any other length would only make the kernel keep routes to nobody.
        address[1] = 32;
        address[4..8].copy_from_slice(&self.index.to_ne_bytes());
        let own = network.address.octets();
        netlink.push(
            libc::RTM_NEWADDR,
            libc::NLM_F_CREATE | libc::NLM_F_REPLACE,
            &address,
            &[(libc::IFA_LOCAL, &own)],
        );
        // Old addresses took it along.
        let has_route = self.has_route.swap(false, Ordering::Relaxed) && network.past == NetworkPast::None;
        if has_route {
            netlink.send()?;
            // Looking at what came of it is half the work of asking for the kernel's answer.
            if self.address().is_ok_and(|address| address == network.address) {
                return Ok(());
            }
            return netlink.refusal();
        }
        self.push_route(&mut netlink, To::Everybody, 0);
        netlink.send()?;
        netlink.refusal()
    }

    /// Its address.
    fn address(&self) -> io::Result<Ipv4Addr> {
        let mut request = request(self.name);
        // SAFETY: `SIOCGIFADDR` reads and writes one `ifreq`.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFADDR, &raw mut request) })?;
        // SAFETY: the call succeeded, so the kernel has put an address there. An IPv4 socket has those of IPv4: two bytes of port
        // come before the four of the address.
        let [_, _, a, b, c, d, ..] = unsafe { request.ifr_ifru.ifru_addr }.sa_data;
        Ok(Ipv4Addr::from([a, b, c, d].map(|byte| byte as u8)))
    }

    /// By the old way, which takes a third of the kernel's code that a message takes.
    fn set_hardware_address(&self, mac: [u8; 6]) -> io::Result<()> {
        let mut request = request(self.name);
        let mut address = libc::sockaddr { sa_family: libc::ARPHRD_ETHER, sa_data: [0; 14] };
        for (target, byte) in address.sa_data.iter_mut().zip(mac) {
            *target = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_hwaddr = address;
        // SAFETY: `SIOCSIFHWADDR` reads one `ifreq`.
        check(unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::SIOCSIFHWADDR, &raw const request) })?;
        Ok(())
    }
}

/// A request about an interface; one whose name does not fit finds none.
fn request(name: &str) -> libc::ifreq {
    // SAFETY: all zeroes is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (target, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *target = byte as libc::c_char;
    }
    request
}

/// Brings the loopback interface up.
pub(crate) fn raise_loopback() -> io::Result<()> {
    let socket = kernel::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = request("lo");
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: `SIOCSIFFLAGS` reads one `ifreq`.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })?;
    Ok(())
}
