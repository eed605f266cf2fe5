//! Why a request was not done, for the caller and, apart from that, for the operator.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use contract::error::{Partial, Progress};
use domain::ErrorChain;
use guest_link::client::{CallError, LinkError};
use guest_link::message::{Failure, FileFailure, ProcessFailure};
use node::NodeError;
use store::StoreError;

/// How a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The request is malformed.
    Invalid,
    /// No key, or one that does not work.
    Unauthorized,
    /// The key does not allow it.
    Forbidden,
    /// It is not there, or it is somebody else's.
    NotFound,
    /// It conflicts with the current state.
    Conflict,
    /// Larger than allowed.
    TooLarge,
    /// The route does not take this method.
    Method,
    /// The caller has as much as it may have.
    Quota,
    /// The caller asks too often.
    Rate,
    /// Our own fault.
    Internal,
    /// The guest's fault.
    Upstream,
    /// Nothing listens on the port that was asked for.
    NotListening,
    /// Not now.
    Unavailable,
    /// Not before a template is prepared.
    Preparing,
    /// It took too long.
    Timeout,
    /// The host has no room.
    NoSpace,
}

impl Kind {
    /// A stable word for programs.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid",
            Kind::Unauthorized => "unauthorized",
            Kind::Forbidden => "forbidden",
            Kind::NotFound => "not_found",
            Kind::Conflict => "conflict",
            Kind::TooLarge => "too_large",
            Kind::Method => "method_not_allowed",
            Kind::Quota => "quota",
            Kind::Rate => "rate_limited",
            Kind::Internal => "internal",
            Kind::Upstream | Kind::NotListening => "upstream",
            Kind::Unavailable => "unavailable",
            Kind::Preparing => "template_preparing",
            Kind::Timeout => "timeout",
            Kind::NoSpace => "no_space",
        }
    }
}

/// A request that was not done. `message` and `hint` are for the caller and name nothing of the host; the cause is for the log.
pub struct ControlError {
    /// How it failed.
    pub kind: Kind,
    /// A sentence the caller can act on.
    pub message: String,
    /// What may help.
    pub hint: Option<String>,
    /// When to try again.
    pub retry_after: Option<Duration>,
    /// What was written until the time was up.
    pub partial: Option<Box<Partial>>,
    /// How far the work is that the request waits for.
    pub progress: Option<Box<Progress>>,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl ControlError {
    /// An error of a kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            hint: None,
            retry_after: None,
            partial: None,
            progress: None,
            cause: None,
        }
    }

    /// The request is malformed.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Kind::Invalid, message)
    }

    /// It is not there.
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(Kind::NotFound, message)
    }

    /// It conflicts with the current state.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Kind::Conflict, message)
    }

    /// The key does not allow it.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(Kind::Forbidden, message)
    }

    /// Our own fault; the cause goes to the log only.
    pub fn internal(cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(
            Kind::Internal,
            "something went wrong on the server; it is in its log under this request id",
        )
        .because(cause)
    }

    /// With what may help.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// With when to try again.
    #[must_use]
    pub fn retry_after(mut self, after: Duration) -> Self {
        self.retry_after = Some(after);
        self
    }

    /// With what was written until the time was up.
    #[must_use]
    pub fn partial(mut self, partial: Partial) -> Self {
        self.partial = Some(Box::new(partial));
        self
    }

    /// With how far the work is that the request waits for.
    #[must_use]
    pub fn progress(mut self, progress: Progress) -> Self {
        self.progress = Some(Box::new(progress));
        self
    }

    /// With what the operator should see.
    #[must_use]
    pub fn because(mut self, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// What the operator should see: the cause and what lies behind it.
    pub fn cause(&self) -> Option<String> {
        let cause: &(dyn Error + 'static) = self.cause.as_deref()?;
        Some(ErrorChain(cause).to_string())
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl fmt::Debug for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.message)?;
        if let Some(cause) = self.cause() {
            write!(f, " ({cause})")?;
        }
        Ok(())
    }
}

impl Error for ControlError {}

impl From<StoreError> for ControlError {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Quota { what, limit } => {
                ControlError::new(Kind::Quota, format!("your limit of {limit} {what} is reached"))
                    .hint("delete what you no longer need, or ask the operator for more")
            }
            StoreError::Exists { what } => ControlError::conflict(format!("{what} exists already")),
            StoreError::Closed => shutting_down(),
            _ => ControlError::internal(error),
        }
    }
}

fn shutting_down() -> ControlError {
    ControlError::new(Kind::Unavailable, "the server is shutting down; try again in a moment")
        .retry_after(Duration::from_secs(2))
}

impl From<NodeError> for ControlError {
    fn from(error: NodeError) -> Self {
        let capacity = Duration::from_secs(5);
        if let Some(told) = crate::volumes::volume_error(&error) {
            return told.because(error);
        }
        match &error {
            NodeError::NoSandbox(id) => ControlError::not_found(format!("there is no sandbox {id}")),
            NodeError::NoSnapshot(id) => ControlError::not_found(format!("there is no snapshot {id}")),
            NodeError::NoArchive(_) => ControlError::new(
                Kind::Unavailable,
                "the snapshot is kept in an archive, and this server has none",
            )
            .hint("the operator starts the server with the archive")
            .because(error),
            NodeError::Archive(_) | NodeError::Fetch(_) => {
                ControlError::new(Kind::Unavailable, "the snapshot could not be brought from the archive")
                    .retry_after(capacity)
                    .because(error)
            }
            NodeError::Refused { phase, request, .. } => ControlError::conflict(format!(
                "the sandbox is {} and cannot {}",
                format!("{phase:?}").to_lowercase(),
                format!("{request:?}").to_lowercase()
            )),
            NodeError::Died { reason, .. } => died(reason),
            NodeError::Unfit(_) => {
                ControlError::conflict("its saved memory does not fit this host any more; its files are kept")
                    .hint("start it cold, from its disk")
                    .because(error)
            }
            NodeError::Damaged { .. } => {
                ControlError::new(Kind::Conflict, "what was saved of it is damaged and is not used")
                    .hint("start it cold, from its disk")
                    .because(error)
            }
            NodeError::DiskTooSmall { there, .. } => ControlError::invalid(format!(
                "disk_gb is less than the {} GiB of what it starts from: a disk can only grow",
                there.div_ceil(1 << 30)
            )),
            NodeError::Shape(_) => ControlError::invalid(error.to_string()),
            NodeError::NoSpace { .. } => ControlError::new(Kind::NoSpace, "the host's disk is full")
                .hint("delete snapshots, volumes or sandboxes, or add disk space")
                .because(error),
            NodeError::Network(_) | NodeError::GuestSilent { .. } | NodeError::Start(_) => {
                ControlError::new(Kind::Unavailable, "no compute capacity available")
                    .retry_after(capacity)
                    .because(error)
            }
            NodeError::Guest { source, .. } => {
                let message = format!("the guest could not do it: {source}");
                ControlError::new(Kind::Upstream, message).because(error)
            }
            NodeError::Build { template, .. } | NodeError::Warm { template, .. } => {
                let message =
                    format!("template {template} could not be prepared; the server's log tells why");
                ControlError::new(Kind::Unavailable, message).because(error)
            }
            NodeError::Closing => shutting_down(),
            NodeError::ForkCount { max, .. } => {
                ControlError::invalid(format!("count must be between 1 and {max}"))
            }
            _ => ControlError::internal(error),
        }
    }
}

pub(crate) fn died(reason: &str) -> ControlError {
    ControlError::conflict(format!("the sandbox's machine ended by itself: {reason}"))
        .hint("its files are kept; start it cold, from its disk")
}

impl From<CallError> for ControlError {
    fn from(error: CallError) -> Self {
        match &error {
            CallError::Guest(Failure::File(file)) => file_error(*file),
            CallError::Guest(Failure::Process(process)) => process_error(process),
            CallError::Guest(Failure::ConnectionRefused) => {
                ControlError::new(Kind::NotListening, "upstream: nothing listens on that port")
            }
            CallError::Guest(Failure::Limit { what }) => {
                ControlError::new(Kind::Unavailable, format!("there are too many {what} in the sandbox"))
            }
            CallError::Guest(failure) => ControlError::new(Kind::Upstream, format!("upstream: {failure}")),
            CallError::Link(LinkError::TooManyStreams | LinkError::Congested) => {
                ControlError::new(Kind::Unavailable, "too many requests to this sandbox at once; try again")
                    .retry_after(Duration::from_secs(1))
                    .because(error)
            }
            CallError::Link(LinkError::RequestTooLong { .. }) => {
                ControlError::new(Kind::TooLarge, "the request is larger than a sandbox takes")
            }
            CallError::Link(_) => ControlError::new(
                Kind::Unavailable,
                "the sandbox stopped answering; it slept, was deleted or its machine ended",
            )
            .because(error),
        }
    }
}

fn file_error(failure: FileFailure) -> ControlError {
    let kind = match failure {
        FileFailure::NotFound | FileFailure::WatchGone => Kind::NotFound,
        FileFailure::Permission => Kind::Forbidden,
        FileFailure::Exists | FileFailure::NotEmpty => Kind::Conflict,
        FileFailure::NoSpace => Kind::NoSpace,
        _ => Kind::Invalid,
    };
    ControlError::new(kind, failure.to_string())
}

fn process_error(failure: &ProcessFailure) -> ControlError {
    let kind = match failure {
        ProcessFailure::NotFound => Kind::NotFound,
        ProcessFailure::NotRunning | ProcessFailure::StdinClosed | ProcessFailure::NoTerminal => {
            Kind::Conflict
        }
        ProcessFailure::Spawn { .. } => Kind::Upstream,
        _ => Kind::Invalid,
    };
    ControlError::new(kind, failure.to_string())
}
