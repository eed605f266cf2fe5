//! Why talking to a guest failed.

use std::io;
use std::sync::Arc;

use crate::frame::FrameError;
use crate::message::Failure;
use crate::session::PROTOCOL_VERSION;

/// Why the link itself failed. Every stream of a failed link gets the same error.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LinkError {
    /// The socket failed.
    #[error("guest link socket failed")]
    Io(#[source] Arc<io::Error>),
    /// The machine closed its end.
    #[error("guest link was closed by the machine")]
    Closed,
    /// The guest sent bytes that are no frame.
    #[error("guest sent garbage")]
    Frame(#[source] FrameError),
    /// The guest broke a rule of the protocol.
    #[error("guest broke the protocol: {0}")]
    Protocol(&'static str),
    /// The guest's program is older or newer than this one.
    #[error("guest speaks protocol version {guest}, this host {PROTOCOL_VERSION}")]
    Version {
        /// The guest's version.
        guest: u16,
    },
    /// The guest's answer does not fit the request.
    #[error("guest gave an answer of another kind")]
    Unexpected,
    /// Too many requests at once.
    #[error("too many concurrent requests to one guest")]
    TooManyStreams,
    /// The guest does not read and the queue towards it is full.
    #[error("guest does not keep up with requests")]
    Congested,
    /// The request is longer than the protocol allows.
    #[error("request of {bytes} bytes is too long for the guest link")]
    RequestTooLong {
        /// Its length.
        bytes: usize,
    },
    /// The link is being silenced by someone else.
    #[error("guest link is already quiesced")]
    AlreadyQuiesced,
}

impl From<io::Error> for LinkError {
    fn from(error: io::Error) -> Self {
        LinkError::Io(Arc::new(error))
    }
}

/// Why a request to a guest failed.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The link failed.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The guest refused or failed.
    #[error(transparent)]
    Guest(#[from] Failure),
}

impl CallError {
    /// The guest's own reason, when it is one.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        match self {
            CallError::Guest(failure) => Some(failure),
            CallError::Link(_) => None,
        }
    }
}

impl From<CallError> for io::Error {
    fn from(error: CallError) -> Self {
        let kind = match &error {
            CallError::Guest(Failure::ConnectionRefused) => io::ErrorKind::ConnectionRefused,
            CallError::Guest(_) => io::ErrorKind::Other,
            CallError::Link(_) => io::ErrorKind::BrokenPipe,
        };
        io::Error::new(kind, error)
    }
}
