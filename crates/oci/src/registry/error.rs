//! Why an image could not be pulled.

use crate::digest::Digest;
use crate::image::ImageError;
use crate::layout::LayoutError;
use crate::manifest::ManifestError;

/// What was larger than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PullLimit {
    /// The image as a whole.
    #[error("the image has {bytes} bytes, {max} is the limit")]
    Image {
        /// Its size.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// A manifest, a configuration or a token.
    #[error("{what} is longer than {max} bytes")]
    Small {
        /// Which.
        what: &'static str,
        /// The limit.
        max: u64,
    },
}

/// Why an image could not be pulled. Texts name hosts but no addresses, which may hold secrets.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// No connection, or one that broke.
    #[error("`{host}` cannot be reached")]
    Unreachable {
        /// Which host.
        host: String,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A server that takes too long.
    #[error("`{host}` takes too long")]
    Slow {
        /// Which host.
        host: String,
    },
    /// The pull as a whole took too long.
    #[error("the pull was not done in time")]
    TimedOut,
    /// No such image.
    #[error("there is no image `{reference}`, or it may not be seen")]
    NotFound {
        /// Which.
        reference: String,
    },
    /// The registry wants other credentials, or any.
    #[error("`{host}` refuses access{}", said(.message))]
    Denied {
        /// Which host.
        host: String,
        /// What it says.
        message: String,
    },
    /// Another answer than expected.
    #[error("`{host}` answers {status}{}", said(.message))]
    Status {
        /// Which host.
        host: String,
        /// The status.
        status: u16,
        /// What it says.
        message: String,
    },
    /// A malformed answer.
    #[error("`{host}` does not follow the protocol: {reason}")]
    Protocol {
        /// Which host.
        host: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// An address that must not be asked.
    #[error("`{host}` sends to `{target}`, which is refused: {reason}")]
    Redirect {
        /// Who sends.
        host: String,
        /// Where to.
        target: String,
        /// Why not.
        reason: &'static str,
    },
    /// A blob that ends too early.
    #[error("{digest} is cut off")]
    Cut {
        /// Which.
        digest: Digest,
    },
    /// Something that is not what it should be.
    #[error("the registry sent something else than {digest}")]
    Different {
        /// What it should be.
        digest: Digest,
    },
    /// Larger than allowed.
    #[error(transparent)]
    Limit(#[from] PullLimit),
    /// The manifest or index.
    #[error("`{reference}` cannot be used")]
    Manifest {
        /// Which.
        reference: String,
        /// Why.
        #[source]
        source: ManifestError,
    },
    /// The image as a whole.
    #[error("the image cannot be used")]
    Image(#[from] ImageError),
    /// It cannot be kept.
    #[error("the image cannot be kept")]
    Layout(#[from] LayoutError),
}

fn said(message: &str) -> String {
    if message.is_empty() { String::new() } else { format!(": {message}") }
}

impl PullError {
    /// Whether the same request may succeed later.
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Slow { .. } | Self::Cut { .. } => true,
            Self::Status { status, .. } => matches!(status, 408 | 429 | 500..=599),
            _ => false,
        }
    }
}
