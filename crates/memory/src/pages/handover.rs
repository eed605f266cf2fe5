//! What a machine process sends before its guest runs: the descriptor over which its faults are told, and where its memory is.
//!
//! It arrives as one message on a unix socket. The sender is not trusted: its message has a bound and a deadline, and everything
//! else about it is checked.

use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use tokio::io::Interest;
use tokio::net::UnixStream;

use super::regions::{HUGE_PAGE_BYTES, Regions, RegionsError};
use super::userfault::Userfault;

/// Longest message that is read: a region takes some 120 bytes.
const MESSAGE_BYTES_MAX: usize = 8 << 10;

/// Most descriptors that are taken in one message, to say that there were too many. The kernel closes what does not fit.
const DESCRIPTORS_MAX: usize = 4;

/// How long a connected process has for its message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(10);

/// The faults of one process, taken over but not yet answered.
#[derive(Debug)]
pub struct Handover {
    pub(super) userfault: Userfault,
    pub(super) regions: Regions,
}

/// Why a process could not be taken over. Its guest cannot run.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The socket could not be read.
    #[error("could not read the socket of the machine process")]
    Read(#[source] io::Error),
    /// The process closed its end before the message was complete.
    #[error("the machine process ended its message early")]
    Closed,
    /// The message did not arrive in time.
    #[error("the machine process sent no complete message within {} s", MESSAGE_TIMEOUT.as_secs())]
    Late,
    /// The message is longer than any list of regions.
    #[error("the message of the machine process is longer than {MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// The message came with no descriptor or several.
    #[error("the machine process sent {count} descriptors, not one")]
    Descriptors {
        /// How many came.
        count: usize,
    },
    /// The descriptor is not a userfaultfd.
    #[error("the descriptor of the machine process cannot be used")]
    Descriptor(#[source] io::Error),
    /// The message is not a list of regions.
    #[error("the message of the machine process is not understood")]
    Message(#[source] serde_json::Error),
    /// The regions are not those of the memory.
    #[error("the memory of the machine process is not the one expected")]
    Regions(#[from] RegionsError),
}

impl Handover {
    /// Reads what a process sends after it connected, about a memory of `length` bytes. Nothing is answered until
    /// [`super::PageServer::start`].
    pub async fn receive(stream: &UnixStream, length: u64) -> Result<Handover, HandoverError> {
        let (regions, mut descriptors) = match tokio::time::timeout(MESSAGE_TIMEOUT, message(stream)).await {
            Ok(received) => received?,
            Err(_) => return Err(HandoverError::Late),
        };
        regions.check_length(length)?;
        let count = descriptors.len();
        let descriptor =
            descriptors.pop().filter(|_| count == 1).ok_or(HandoverError::Descriptors { count })?;
        let userfault = Userfault::new(descriptor).map_err(HandoverError::Descriptor)?;
        let peer =
            stream.peer_cred().map_err(HandoverError::Read)?.pid().and_then(|pid| u32::try_from(pid).ok());
        let peer =
            peer.ok_or_else(|| HandoverError::Read(io::Error::other("it says nothing of the process")))?;
        Handover::new(userfault, regions, peer).map_err(HandoverError::Read)
    }

    pub(super) fn new(userfault: Userfault, regions: Regions, pid: u32) -> io::Result<Handover> {
        let userfault = match regions.page_bytes() {
            HUGE_PAGE_BYTES => userfault.with_pages_of(pid)?,
            _ => userfault,
        };
        Ok(Handover { userfault, regions })
    }

    /// Where the memory is. Written down, it is what a later [`Handover::take_over`] needs.
    pub fn regions(&self) -> &Regions {
        &self.regions
    }
}

/// Reads until the list is complete. The process does not close its end, so the list itself says where it ends.
async fn message(stream: &UnixStream) -> Result<(Regions, Vec<OwnedFd>), HandoverError> {
    let mut bytes = Vec::new();
    let mut descriptors = Vec::new();
    loop {
        let read =
            stream.async_io(Interest::READABLE, || receive(stream, &mut bytes, &mut descriptors)).await;
        if read.map_err(HandoverError::Read)? == 0 {
            return Err(HandoverError::Closed);
        }
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(HandoverError::TooLong);
        }
        match serde_json::from_slice(&bytes) {
            Ok(regions) => return Ok((regions, descriptors)),
            Err(error) if error.is_eof() => {}
            Err(error) => return Err(HandoverError::Message(error)),
        }
    }
}

fn receive(stream: &UnixStream, bytes: &mut Vec<u8>, descriptors: &mut Vec<OwnedFd>) -> io::Result<usize> {
    let mut piece = [0; 4096];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::net::recvmsg(stream, &mut [IoSliceMut::new(&mut piece)], &mut ancillary, flags)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(files) = message {
            descriptors.extend(files);
        }
    }
    bytes.extend_from_slice(&piece[..received.bytes]);
    Ok(received.bytes)
}
