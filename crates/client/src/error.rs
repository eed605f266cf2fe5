//! Why a call failed.

use contract::error::{Partial, Progress};

/// What a server answered instead of doing what it was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    /// The status of the answer; 0 for what was said within a stream or over a WebSocket.
    pub status: u16,
    /// A sentence.
    pub message: String,
    /// A stable word, such as `not_found`; empty when the answer has none.
    pub code: String,
    /// What may help.
    pub hint: Option<String>,
    /// Names the request in the server's log.
    pub request_id: Option<String>,
    /// Seconds after which it may be asked again.
    pub retry_after_seconds: Option<f64>,
    /// What a command or code wrote until its time was up.
    pub partial: Option<Partial>,
    /// How far the server is with what the request waits for.
    pub progress: Option<Progress>,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// An address that leads to no server.
    #[error("`{address}` is not the address of a server")]
    Address {
        /// It.
        address: String,
    },
    /// A key that cannot be sent.
    #[error("the API key holds characters that no key has")]
    Key,
    /// The server said no.
    #[error("{}", .0.message)]
    Refused(Box<Refusal>),
    /// There is no connection.
    #[error("could not reach {server}")]
    Unreachable {
        /// Which server.
        server: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Nothing came for too long.
    #[error("{server} has been silent for too long")]
    Silent {
        /// Which server.
        server: String,
    },
    /// An answer that is none.
    #[error("{server} answered with something that is not its API: {reason}")]
    Protocol {
        /// Which server.
        server: String,
        /// What is wrong.
        reason: String,
    },
    /// What is sent could not be read.
    #[error("could not read what was to be sent")]
    Upload(#[source] std::io::Error),
    /// There is no TLS.
    #[error("TLS cannot be set up: {reason}")]
    Tls {
        /// Why.
        reason: String,
    },
}

impl ClientError {
    /// What the server answered, if it did.
    #[must_use]
    pub fn refusal(&self) -> Option<&Refusal> {
        match self {
            Self::Refused(refusal) => Some(refusal),
            _ => None,
        }
    }

    /// Whether the server says that there is no such thing.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.refusal().is_some_and(|refusal| refusal.status == 404)
    }

    /// What was said within a stream.
    pub(crate) fn said(message: &str, hint: Option<&str>) -> Self {
        Self::Refused(Box::new(Refusal::said(message, hint)))
    }

    /// What was said within a stream, with its code.
    pub(crate) fn said_with_code(message: &str, code: &str, hint: Option<&str>) -> Self {
        Self::Refused(Box::new(Refusal { code: code.to_owned(), ..Refusal::said(message, hint) }))
    }
}

impl Refusal {
    /// What was said within a stream.
    pub(crate) fn said(message: &str, hint: Option<&str>) -> Self {
        Self {
            status: 0,
            message: message.to_owned(),
            code: String::new(),
            hint: hint.map(str::to_owned),
            request_id: None,
            retry_after_seconds: None,
            partial: None,
            progress: None,
        }
    }
}
