//! A small synchronous rtnetlink client: one request, one answer.
//!
//! A socket speaks to the network namespace its thread was in when it was opened, wherever it is used later.

mod address;
mod link;
mod message;
mod route;

use std::{io, os::fd::OwnedFd, time::Duration};

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink::SocketAddrNetlink, recv, sendto,
    socket_with, sockopt,
};

pub(crate) use address::InterfaceAddress;
pub(crate) use link::{LinkChange, VethPair};
pub(crate) use route::{Refusal, Route};

use message::{Message, Reply, attributes, read_i32, read_u32, replies, text};

/// The kernel answers within the call that asks; longer than this means it never will.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);
/// Larger than any datagram the kernel builds for a dump (32 KiB).
const REPLY_BYTES_MAX: usize = 64 * 1024;
/// How often a dump is started over because the kernel's tables changed under it.
const DUMP_ATTEMPTS_MAX: u32 = 20;
/// `NLMSGERR_ATTR_MSG`: the kernel's own words about an error.
const ERROR_ATTRIBUTE_TEXT: u16 = 1;

/// Why a request to the kernel failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket failed.
    #[error("the netlink socket failed")]
    Socket(#[source] io::Error),
    /// The kernel said no.
    #[error("the kernel refused{}", if .reason.is_empty() { String::new() } else { format!(" ({reason})") })]
    Refused {
        /// The kernel's own words, often empty.
        reason: String,
        /// The error number.
        #[source]
        errno: io::Error,
    },
    /// The answer could not be read.
    #[error("the kernel's answer was cut short or malformed")]
    Malformed,
    /// The tables changed faster than they could be listed.
    #[error("a consistent list could not be read in {DUMP_ATTEMPTS_MAX} attempts")]
    Unsettled,
}

impl NetlinkError {
    fn errno(&self) -> Option<i32> {
        match self {
            Self::Refused { errno, .. } => errno.raw_os_error(),
            _ => None,
        }
    }

    /// The thing named in the request does not exist.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(self.errno(), Some(libc::ENODEV | libc::ENOENT | libc::ESRCH))
    }
}

impl From<rustix::io::Errno> for NetlinkError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::Socket(errno.into())
    }
}

/// A connection to the kernel's network configuration.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
    buffer: Vec<u8>,
}

impl Netlink {
    /// Opens a socket in the network namespace the calling thread is in.
    pub(crate) fn open() -> Result<Self, NetlinkError> {
        // No protocol is protocol 0, which is NETLINK_ROUTE.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(REPLY_TIMEOUT))?;
        for option in [libc::NETLINK_EXT_ACK, libc::NETLINK_GET_STRICT_CHK] {
            switch_on(&socket, option).map_err(NetlinkError::Socket)?;
        }
        Ok(Self { socket, sequence: 0, buffer: vec![0; REPLY_BYTES_MAX] })
    }

    /// Sends a request and waits until the kernel has carried it out.
    fn execute(&mut self, request: Message) -> Result<(), NetlinkError> {
        self.exchange(request, |_| {})
    }

    /// Lists what a dump request asks for; `read` turns each entry into a value or passes over it.
    fn dump<T>(
        &mut self,
        request: impl Fn() -> Message,
        mut read: impl FnMut(&[u8]) -> Option<T>,
    ) -> Result<Vec<T>, NetlinkError> {
        for _ in 0..DUMP_ATTEMPTS_MAX {
            let mut entries = Vec::new();
            let mut interrupted = false;
            self.exchange(request(), |reply| {
                interrupted |= i32::from(reply.flags) & libc::NLM_F_DUMP_INTR != 0;
                entries.extend(read(reply.payload));
            })?;
            if !interrupted {
                return Ok(entries);
            }
        }
        Err(NetlinkError::Unsettled)
    }

    fn exchange(&mut self, request: Message, mut each: impl FnMut(&Reply<'_>)) -> Result<(), NetlinkError> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = request.finish(self.sequence);
        sendto(&self.socket, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
        loop {
            let (length, whole) = recv(&self.socket, &mut self.buffer[..], RecvFlags::TRUNC)?;
            if whole > length {
                return Err(NetlinkError::Malformed);
            }
            for reply in replies(&self.buffer[..length]) {
                if reply.sequence != self.sequence {
                    continue;
                }
                match i32::from(reply.kind) {
                    libc::NLMSG_ERROR | libc::NLMSG_DONE => return outcome(&reply),
                    _ => each(&reply),
                }
            }
        }
    }
}

/// Reads the number, and the words, in the last message of an answer.
fn outcome(reply: &Reply<'_>) -> Result<(), NetlinkError> {
    let errno = read_i32(reply.payload, 0).ok_or(NetlinkError::Malformed)?;
    if errno == 0 {
        return Ok(());
    }
    // After the number comes a copy of the request: only its header when the kernel capped it, else all of it.
    let request_bytes = match i32::from(reply.flags) & libc::NLM_F_CAPPED {
        0 => read_u32(reply.payload, 4).unwrap_or(0) as usize,
        _ => 16,
    };
    let after = reply.payload.get(4 + ((request_bytes + 3) & !3)..).unwrap_or_default();
    let reason = attributes(after)
        .find(|(kind, _)| *kind == ERROR_ATTRIBUTE_TEXT)
        .map(|(_, payload)| text(payload))
        .unwrap_or_default();
    Err(NetlinkError::Refused { reason, errno: io::Error::from_raw_os_error(errno.saturating_neg()) })
}

fn switch_on(socket: &OwnedFd, option: libc::c_int) -> io::Result<()> {
    use std::os::fd::AsRawFd;

    let on: libc::c_int = 1;
    // SAFETY: the descriptor is open for the whole call and the value points to one `c_int` of the length given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_NETLINK,
            option,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
