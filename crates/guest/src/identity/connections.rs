//! Resets TCP connections that the snapshot brought along: their other ends belong to another machine or another time. Programs
//! see `ECONNABORTED` at once instead of waiting for a timeout. Loopback connections live on.
//!
//! Needs the kernel's `inet_diag` and `tcp_diag` with `CONFIG_INET_DIAG_DESTROY`.

use std::io;
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

use super::netlink::Netlink;

/// `TCPDIAG_GETSOCK`: sockets of both families in one walk.
const TCPDIAG_GETSOCK: u16 = 18;
const SOCK_DESTROY: u16 = 21;

/// Everything but `LISTEN`, `CLOSE` and `TIME_WAIT`: those have no other end.
const STATES: u32 = 0xfff & !(1 << 6 | 1 << 7 | 1 << 10);

/// `struct inet_diag_sockid`: ports, addresses, interface, cookie.
const SOCKET_ID_BYTES: usize = 48;

/// Where connections are looked for. Opened at boot: making a socket and closing it takes twice the code of asking it.
pub(super) struct Connections(Mutex<Netlink>);

impl Connections {
    /// Asks once, so that the socket is bound.
    pub(super) fn open() -> io::Result<Connections> {
        let connections = Connections(Mutex::new(Netlink::open(libc::NETLINK_INET_DIAG)?));
        connections.reset_stale()?;
        Ok(connections)
    }

    /// Resets all that are stale; tells how many there were.
    pub(super) fn reset_stale(&self) -> io::Result<u32> {
        reset(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn reset(netlink: &mut Netlink) -> io::Result<u32> {
    // `struct inet_diag_req`: family, lengths, extensions, socket id, states, dbs.
    let mut request = [0; 4 + SOCKET_ID_BYTES + 8];
    request[0] = libc::AF_INET as u8;
    request[52..56].copy_from_slice(&STATES.to_ne_bytes());
    netlink.push(TCPDIAG_GETSOCK, libc::NLM_F_DUMP, &request, &[]);
    let mut stale: Vec<(u8, [u8; SOCKET_ID_BYTES])> = Vec::new();
    netlink.dump(|reply| {
        // `struct inet_diag_msg`: family, state, timer, retransmissions, socket id, ...
        let Some(family) = reply.body.first() else { return };
        let Some(id) = reply.body.get(4..4 + SOCKET_ID_BYTES).and_then(|id| id.try_into().ok()) else {
            return;
        };
        if !is_loopback(*family, id) {
            stale.push((*family, *id));
        }
    })?;
    // In groups, so that the kernel's answers fit its queue.
    for group in stale.chunks(32) {
        for (family, id) in group {
            // `struct inet_diag_req_v2`: family, protocol, extensions, padding, states, socket id.
            let mut request = [0; 8 + SOCKET_ID_BYTES];
            request[0] = *family;
            request[1] = libc::IPPROTO_TCP as u8;
            request[4..8].copy_from_slice(&STATES.to_ne_bytes());
            request[8..].copy_from_slice(id);
            netlink.push(SOCK_DESTROY, libc::NLM_F_ACK, &request, &[]);
        }
        for verdict in netlink.transact(group.len())? {
            match verdict {
                // It ended by itself meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                other => other?,
            }
        }
    }
    Ok(stale.len() as u32)
}

/// Whether the far end is in this guest.
fn is_loopback(family: u8, id: &[u8; SOCKET_ID_BYTES]) -> bool {
    let far = &id[20..36];
    let v4 = |bytes: &[u8]| bytes.try_into().is_ok_and(|bytes: [u8; 4]| Ipv4Addr::from(bytes).is_loopback());
    match i32::from(family) {
        libc::AF_INET => v4(&far[..4]),
        libc::AF_INET6 => {
            let mapped = far[..10] == [0; 10] && far[10..12] == [0xff; 2] && v4(&far[12..]);
            mapped || (far[..15] == [0; 15] && far[15] == 1)
        }
        _ => true,
    }
}
