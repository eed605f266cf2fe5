//! TCP connections from the host into the guest's own ports.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};

use guest_link::message::{ConnectRequest, Failure};

use crate::kernel::{self, check, errno};
use crate::poll::{Poll, Source};

/// A connection and the data on its way to it.
pub(crate) struct Connection {
    stream: TcpStream,
    state: State,
    /// Tried when the first address refuses.
    alternative: Option<SocketAddr>,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    queue: VecDeque<(Vec<u8>, usize, u32)>,
    /// The host sends no more.
    input_ended: bool,
    /// Our half of the connection is closed.
    shut: bool,
    /// The far end sends no more.
    pub(crate) output_ended: bool,
}

#[derive(PartialEq, Eq)]
enum State {
    Connecting,
    Open,
}

impl Connection {
    /// Begins to connect; the stream is told when it stands.
    pub(crate) fn begin(request: &ConnectRequest, id: u32, poll: &Poll) -> Result<Connection, Failure> {
        let (first, second) = match request.address {
            Some(address) => (address, None),
            None => (IpAddr::V4(Ipv4Addr::LOCALHOST), Some(IpAddr::V6(Ipv6Addr::LOCALHOST))),
        };
        let alternative = second.map(|address| SocketAddr::new(address, request.port));
        let stream =
            start(SocketAddr::new(first, request.port), id, poll).map_err(|error| failure(&error))?;
        Ok(Connection {
            stream,
            state: State::Connecting,
            alternative,
            readable: false,
            writable: false,
            queue: VecDeque::new(),
            input_ended: false,
            shut: false,
            output_ended: false,
        })
    }

    /// Looks whether the connection stands; `true` when it just came to.
    pub(crate) fn advance(&mut self, id: u32, poll: &Poll) -> Result<bool, Failure> {
        if self.state != State::Connecting || !self.writable {
            return Ok(false);
        }
        let error = match self.stream.take_error() {
            Ok(None) => {
                self.state = State::Open;
                return Ok(true);
            }
            Ok(Some(error)) | Err(error) => error,
        };
        match self.alternative.take() {
            Some(address) if error.kind() == io::ErrorKind::ConnectionRefused => {
                (self.readable, self.writable) = (false, false);
                // The refusal of the first address is the better story.
                self.stream = start(address, id, poll).map_err(|_| failure(&error))?;
                Ok(false)
            }
            _ => Err(failure(&error)),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Takes data from the host; its cost comes back from [`Connection::write`].
    pub(crate) fn push(&mut self, data: Vec<u8>, cost: u32) {
        self.queue.push_back((data, 0, cost));
    }

    /// The host sends no more.
    pub(crate) fn end_input(&mut self) {
        self.input_ended = true;
    }

    /// Writes what the far end takes; gives what the host gets back of its window.
    pub(crate) fn write(&mut self) -> Result<u32, Failure> {
        let mut returned = 0;
        if self.state == State::Connecting {
            return Ok(0);
        }
        while let Some((data, written, cost)) = self.queue.front_mut() {
            if *written == data.len() {
                returned += *cost;
                self.queue.pop_front();
                continue;
            }
            if !self.writable {
                return Ok(returned);
            }
            match self.stream.write(&data[*written..]) {
                Ok(count) => *written += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.writable = false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failure(&error)),
            }
        }
        if self.input_ended && !self.shut {
            self.shut = true;
            // It may be gone already, which reading will tell.
            let _ = self.stream.shutdown(Shutdown::Write);
        }
        Ok(returned)
    }

    /// Reads up to `most` bytes into `out`; `None` when there is nothing now. Zero bytes: the far end sends no more.
    pub(crate) fn read(&mut self, most: usize, out: &mut Vec<u8>) -> Result<Option<usize>, Failure> {
        if !self.readable || self.output_ended || self.state == State::Connecting {
            return Ok(None);
        }
        let start = out.len();
        out.resize(start + most, 0);
        let result = loop {
            match self.stream.read(&mut out[start..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        out.truncate(start + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(count) => {
                self.output_ended = count == 0;
                Ok(Some(count))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                Ok(None)
            }
            Err(error) => Err(failure(&error)),
        }
    }

    /// Whether both directions are closed.
    pub(crate) fn is_over(&self) -> bool {
        self.output_ended && self.shut
    }
}

fn failure(error: &io::Error) -> Failure {
    match error.raw_os_error() {
        Some(libc::ECONNREFUSED) => Failure::ConnectionRefused,
        _ => Failure::Connection { errno: errno(error) },
    }
}

fn start(address: SocketAddr, id: u32, poll: &Poll) -> io::Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    let socket = kernel::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0)?;
    poll.add(&socket, Source::Connection(id))?;
    match connect(&socket, &address) {
        Err(error) if error.raw_os_error() != Some(libc::EINPROGRESS) => return Err(error),
        _ => {}
    }
    let stream = TcpStream::from(socket);
    // Previews are conversations: small answers must not wait for more.
    let _ = stream.set_nodelay(true);
    Ok(stream)
}

fn connect(socket: &OwnedFd, address: &SocketAddr) -> io::Result<()> {
    let result = match address {
        SocketAddr::V4(address) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the kernel reads one `sockaddr_in`.
            unsafe {
                libc::connect(
                    socket.as_raw_fd(),
                    (&raw const raw).cast(),
                    size_of_val(&raw) as libc::socklen_t,
                )
            }
        }
        SocketAddr::V6(address) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: the kernel reads one `sockaddr_in6`.
            unsafe {
                libc::connect(
                    socket.as_raw_fd(),
                    (&raw const raw).cast(),
                    size_of_val(&raw) as libc::socklen_t,
                )
            }
        }
    };
    check(result)?;
    Ok(())
}
