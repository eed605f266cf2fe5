//! A guest without a machine: it writes Ethernet frames to its tap and reads what comes back.

use std::{
    fs::File,
    io::{self, Read, Write},
    net::Ipv4Addr,
    os::fd::OwnedFd,
    time::Instant,
};

use network::{GATEWAY, GuestAddresses};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::host::TIMEOUT;

/// Bytes of the virtio header before each frame.
const VNET_HEADER: usize = 10;
const ETHERNET: usize = 14;
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// One end of a cable, played by the test.
pub(crate) struct Guest {
    tap: File,
    pub(crate) addresses: GuestAddresses,
}

impl Guest {
    pub(crate) fn new(tap: OwnedFd, addresses: GuestAddresses) -> Self {
        rustix::io::ioctl_fionbio(&tap, true).unwrap();
        Self { tap: tap.into(), addresses }
    }

    fn send_frame(&self, kind: u16, body: &[u8]) {
        let mut frame = vec![0; VNET_HEADER];
        frame.extend(self.addresses.gateway_mac.0);
        frame.extend(self.addresses.mac.0);
        frame.extend(kind.to_be_bytes());
        frame.extend(body);
        (&self.tap).write_all(&frame).unwrap();
    }

    fn send_ip(&self, protocol: u8, from: Ipv4Addr, to: Ipv4Addr, body: &[u8]) {
        let length = u16::try_from(20 + body.len()).unwrap();
        let mut header = vec![0x45, 0];
        header.extend(length.to_be_bytes());
        header.extend([0, 0, 0, 0, 64, protocol, 0, 0]);
        header.extend(from.octets());
        header.extend(to.octets());
        let sum = checksum(&header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header.extend(body);
        self.send_frame(0x0800, &header);
    }

    /// Sends a datagram under the guest's own address.
    pub(crate) fn send_udp(&self, to: Ipv4Addr, port: u16, payload: &[u8]) {
        self.send_udp_as(self.addresses.ip, to, port, payload);
    }

    /// Sends a datagram under any address.
    pub(crate) fn send_udp_as(&self, from: Ipv4Addr, to: Ipv4Addr, port: u16, payload: &[u8]) {
        let mut body = Vec::new();
        body.extend(40_000u16.to_be_bytes());
        body.extend(port.to_be_bytes());
        body.extend(u16::try_from(8 + payload.len()).unwrap().to_be_bytes());
        // Zero is "no checksum".
        body.extend([0, 0]);
        body.extend(payload);
        self.send_ip(UDP, from, to, &body);
    }

    /// Sends an echo request.
    pub(crate) fn send_ping(&self, to: Ipv4Addr) {
        let mut body = vec![8, 0, 0, 0, 0x12, 0x34, 0, 1];
        let sum = checksum(&body);
        body[2..4].copy_from_slice(&sum.to_be_bytes());
        self.send_ip(ICMP, self.addresses.ip, to, &body);
    }

    /// Asks who has the gateway address and returns every frame that came before the answer.
    ///
    /// Frames are worked off in order, so what was sent before has had its effect by then.
    pub(crate) fn settle(&self) -> Vec<Vec<u8>> {
        let mut body = vec![0, 1, 8, 0, 6, 4, 0, 1];
        body.extend(self.addresses.mac.0);
        body.extend(self.addresses.ip.octets());
        body.extend([0; 6]);
        body.extend(GATEWAY.octets());
        self.send_frame(0x0806, &body);
        self.read_until("an answer from the gateway", |frame| {
            frame[12..14] == [8, 6] && frame[20..22] == [0, 2]
        })
    }

    /// Waits for an answer to a ping of `from`.
    pub(crate) fn expect_pong(&self, from: Ipv4Addr) {
        self.read_until("a pong", |frame| is_pong(frame, from));
    }

    /// Waits for a datagram with this payload.
    pub(crate) fn expect_udp(&self, payload: &[u8]) {
        self.read_until("a datagram", |frame| udp_payload(frame) == Some(payload));
    }

    /// Every frame that waits to be read.
    pub(crate) fn pending(&self) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| self.read()).collect()
    }

    fn read(&self) -> Option<Vec<u8>> {
        let mut buffer = vec![0; 4096];
        match (&self.tap).read(&mut buffer) {
            Ok(length) => Some(buffer[VNET_HEADER..length].to_vec()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            Err(error) => panic!("{error}"),
        }
    }

    fn read_until(&self, what: &str, wanted: impl Fn(&[u8]) -> bool) -> Vec<Vec<u8>> {
        let start = Instant::now();
        let mut before = Vec::new();
        loop {
            let left = TIMEOUT.saturating_sub(start.elapsed());
            assert!(!left.is_zero(), "{what} did not come");
            let Some(frame) = self.read() else {
                let mut fds = [PollFd::new(&self.tap, PollFlags::IN)];
                poll(&mut fds, Some(&Timespec::try_from(left).unwrap())).unwrap();
                continue;
            };
            if wanted(&frame) {
                return before;
            }
            before.push(frame);
        }
    }
}

/// Whether a frame is an echo reply from an address.
pub(crate) fn is_pong(frame: &[u8], from: Ipv4Addr) -> bool {
    frame[12..14] == [8, 0] && frame[23] == ICMP && frame[26..30] == from.octets() && frame[34] == 0
}

/// What a UDP frame carries.
pub(crate) fn udp_payload(frame: &[u8]) -> Option<&[u8]> {
    let is_udp = frame.len() >= ETHERNET + 28 && frame[12..14] == [8, 0] && frame[23] == UDP;
    is_udp.then(|| {
        let length = usize::from(u16::from_be_bytes([frame[38], frame[39]]));
        &frame[ETHERNET + 28..ETHERNET + 20 + length]
    })
}

fn checksum(bytes: &[u8]) -> u16 {
    let mut sum: u32 = bytes.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}
