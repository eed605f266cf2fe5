//! The byte stream to the host. For a virtio-serial port the kernel says "hung up" all the time no host is connected, reads give
//! nothing then, and writes would block; all of that is quiet here until something changes.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::time::Duration;

use guest_link::frame::Decoder;

use crate::kernel;

/// What one turn of the event loop reads.
const READ_BYTES_PER_TURN: usize = 256 * 1024;
/// How often, and how long after each other, it is looked whether a host that went has been replaced.
const HOST_LOOKS: u32 = 5;
const HOST_LOOK: Duration = Duration::from_millis(5);

pub(super) struct Port {
    file: File,
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
    pub(super) fn new(link: OwnedFd) -> io::Result<Port> {
        let file = File::from(link);
        kernel::set_nonblocking(&file)?;
        Ok(Port {
            file,
            readable: true,
            writable: true,
            out: Vec::new(),
            written: 0,
            connected: false,
            turn: 0,
        })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
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
    pub(super) fn receive(&mut self, decoder: &mut Decoder) -> Received {
        if !self.readable || self.turn >= READ_BYTES_PER_TURN {
            return Received::Nothing;
        }
        match self.file.read(decoder.space()) {
            Ok(0) => {
                self.readable = false;
                Received::HungUp
            }
            Ok(count) => {
                decoder.commit(count);
                self.turn += count;
                Received::Bytes
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Received::Bytes,
            Err(error) => {
                self.readable = false;
                if error.kind() == io::ErrorKind::WouldBlock {
                    self.connected = true;
                    Received::Nothing
                } else {
                    Received::HungUp
                }
            }
        }
    }

    /// Writes what the host takes; `true` when everything is written.
    pub(super) fn flush(&mut self) -> bool {
        while self.written < self.out.len() {
            if !self.writable {
                return false;
            }
            match self.file.write(&self.out[self.written..]) {
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
            if !kernel::is_hung_up(&self.file) {
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
