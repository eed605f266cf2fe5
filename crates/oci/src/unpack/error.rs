//! Why a layer could not be unpacked, and at which entry.

use rustix::io::Errno;

use crate::digest::Digest;
use crate::stream::{StreamLimit, limit_in};
use crate::tar::TarError;

/// A layer that could not be unpacked.
#[derive(Debug, thiserror::Error)]
#[error("could not unpack {layer}{}", shown(.entry))]
pub struct UnpackError {
    /// Which layer, as the caller calls it.
    pub layer: String,
    /// The entry it was about, escaped for people.
    pub entry: Option<String>,
    /// Why.
    #[source]
    pub cause: UnpackCause,
}

fn shown(entry: &Option<String>) -> String {
    entry.as_ref().map(|entry| format!(", entry `{entry}`")).unwrap_or_default()
}

impl UnpackError {
    pub(super) fn of(layer: &str, cause: UnpackCause) -> Self {
        Self { layer: layer.to_owned(), entry: None, cause }
    }
}

/// What stopped unpacking.
#[derive(Debug, thiserror::Error)]
pub enum UnpackCause {
    /// The archive is damaged or cannot be read.
    #[error(transparent)]
    Archive(TarError),
    /// The archive is larger than allowed, or grows suspiciously.
    #[error(transparent)]
    Stream(StreamLimit),
    /// More of something than allowed.
    #[error("more {what} than the limit of {max}")]
    Limit {
        /// Of what.
        what: &'static str,
        /// The limit.
        max: u64,
    },
    /// A name that leads, or wants to lead, out of the tree; or is none.
    #[error("its name is refused: {reason}")]
    Name {
        /// Why.
        reason: &'static str,
    },
    /// A device or a pipe.
    #[error("devices and named pipes are refused")]
    SpecialFile,
    /// A part of its name is there and no directory.
    #[error("`{part}` in its name is not a directory")]
    NotADirectory {
        /// The part.
        part: String,
    },
    /// Links that lead to links without end.
    #[error("its name leads through too many links")]
    TooManyLinks,
    /// A hard link to something that is not there, or that cannot have a second name.
    #[error("it is a hard link to `{target}`, which {reason}")]
    HardLink {
        /// To what.
        target: String,
        /// What is wrong with that.
        reason: &'static str,
    },
    /// Another layer than the configuration says.
    #[error("it is not the layer it should be: {found} instead of {expected}")]
    WrongDiffId {
        /// What the configuration says.
        expected: Digest,
        /// What it is.
        found: Digest,
    },
    /// The host refused something: no space, no permission, a file system that lacks something.
    #[error("could not {doing}")]
    Host {
        /// What.
        doing: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

impl UnpackCause {
    /// For `map_err`: the host refused to do something.
    pub(super) fn host(doing: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| Self::Host { doing, source: errno.into() }
    }

    pub(super) fn name(reason: &'static str) -> Self {
        Self::Name { reason }
    }
}

impl From<TarError> for UnpackCause {
    fn from(error: TarError) -> Self {
        match &error {
            TarError::Read(source) => limit_in(source).map_or_else(|| Self::Archive(error), Self::Stream),
            _ => Self::Archive(error),
        }
    }
}
