//! The byte stream to the host. For a virtio-serial port the kernel says "hung up" all the time no host is connected, reads give
//! nothing then, and writes would block; all of that is quiet here until something changes. On a virtio socket every host has a
//! connection of its own; they are served one after the other.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::time::Duration;

use guest_link::frame::Decoder;

use super::LinkEnd;
use crate::kernel;
use crate::poll::{Poll, Source};

/// What one turn of the event loop reads.
const READ_BYTES_PER_TURN: usize = 256 * 1024;
/// How often, and how long after each other, it is looked whether a host that went has been replaced.
const HOST_LOOKS: u32 = 5;
const HOST_LOOK: Duration = Duration::from_millis(5);

pub(super) struct Port {
    /// `None` while a listener waits for a host.
    file: Option<File>,
    listener: Option<OwnedFd>,
    readable: bool,
    writable: bool,
    /// Bytes on their way to the host, whole frames except for what is already written.
    pub(super) out: Vec<u8>,
    written: usize,
    /// Whether the host was seen to be there since the session began.
    pub(super) connected: bool,
    turn: usize,
}

/// What a read came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Received {
    Bytes,
    Nothing,
    /// No host is connected.
    HungUp,
}

impl Port {
    pub(super) fn new(link: LinkEnd, poll: &Poll) -> io::Result<Port> {
        let (file, listener) = match link {
            LinkEnd::Stream(stream) => {
                kernel::set_nonblocking(&stream)?;
                poll.add(&stream, Source::Port)?;
                (Some(File::from(stream)), None)
            }
            LinkEnd::Listener(listener) => {
                kernel::set_nonblocking(&listener)?;
                poll.add(&listener, Source::Port)?;
                (None, Some(listener))
            }
        };
        Ok(Port {
            file,
            listener,
            readable: true,
            writable: true,
            out: Vec::new(),
            written: 0,
            connected: false,
            turn: 0,
        })
    }

    /// Whether every host has a connection of its own.
    pub(super) fn is_of_connections(&self) -> bool {
        self.listener.is_some()
    }

    /// The kernel says that something changed.
    pub(super) fn wake(&mut self, readable: bool, writable: bool) {
        self.readable |= readable;
        self.writable |= writable;
    }

    /// Whether reading was cut short by the end of a turn.
    pub(super) fn has_work(&self) -> bool {
        self.readable
    }

    /// Whether bytes can be written now.
    pub(super) fn takes(&self) -> bool {
        self.writable
    }

    pub(super) fn begin_turn(&mut self) {
        self.turn = 0;
    }

    /// Reads once into the decoder.
    pub(super) fn receive(&mut self, decoder: &mut Decoder, poll: &Poll) -> Received {
        if !self.readable || self.turn >= READ_BYTES_PER_TURN {
            return Received::Nothing;
        }
        let Some(file) = &mut self.file else {
            self.readable = self.accept(poll);
            self.writable = self.readable;
            return Received::Nothing;
        };
        match file.read(decoder.space()) {
            Ok(0) => self.hung_up(),
            Ok(count) => {
                decoder.commit(count);
                self.turn += count;
                Received::Bytes
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Received::Bytes,
            Err(error) => {
                if error.kind() == io::ErrorKind::WouldBlock {
                    self.readable = false;
                    self.connected = true;
                    Received::Nothing
                } else {
                    self.hung_up()
                }
            }
        }
    }

    /// A connection that ended makes room for the next, which may be waiting already.
    fn hung_up(&mut self) -> Received {
        self.readable = self.is_of_connections();
        if self.is_of_connections() {
            self.file = None;
        }
        Received::HungUp
    }

    /// Takes the next connection, if one waits.
    fn accept(&mut self, poll: &Poll) -> bool {
        let Some(listener) = &self.listener else { return false };
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: the address of who connects is not asked for; the result is checked before it is owned.
        let accepted =
            unsafe { libc::accept4(listener.as_raw_fd(), ptr::null_mut(), ptr::null_mut(), flags) };
        let Ok(descriptor) = kernel::check(accepted) else { return false };
        // SAFETY: a fresh descriptor that nobody else owns.
        let connection = unsafe { OwnedFd::from_raw_fd(descriptor) };
        if poll.add(&connection, Source::Port).is_err() {
            return false;
        }
        self.file = Some(File::from(connection));
        true
    }

    /// Writes what the host takes; `true` when everything is written.
    pub(super) fn flush(&mut self) -> bool {
        while self.written < self.out.len() {
            if !self.writable {
                return false;
            }
            let Some(file) = &mut self.file else {
                self.writable = false;
                return false;
            };
            match file.write(&self.out[self.written..]) {
                // A port whose host is gone may take nothing without an error.
                Ok(0) => self.writable = false,
                Ok(count) => {
                    self.connected = true;
                    self.written += count;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => self.writable = false,
            }
        }
        self.out.clear();
        self.written = 0;
        true
    }

    /// Whether the host that went was replaced by another at once: the kernel hears of both in one breath, but this program runs
    /// before all others and may look in between.
    pub(super) fn has_a_new_host(&mut self) -> bool {
        for _ in 0..HOST_LOOKS {
            std::thread::sleep(HOST_LOOK);
            if self.file.as_ref().is_some_and(|file| !kernel::is_hung_up(file)) {
                self.readable = true;
                return true;
            }
        }
        false
    }

    /// Forgets what was not written: nobody waits for it.
    pub(super) fn discard(&mut self) {
        self.out.clear();
        self.written = 0;
    }
}
