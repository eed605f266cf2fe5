//! Why a template could not be built.

use dockerfile::{DockerfileError, IgnoreError};
use image::ImageError;
use node::NodeError;
use oci::{ImportError, PullError, ReferenceError, UnpackError};

/// Why a build failed. Nothing is left at its destination. The text is for whoever asked for the build and names no path of the host;
/// causes are for the log.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The Dockerfile cannot be built.
    #[error("{}", with_hint(.0))]
    Dockerfile(#[from] DockerfileError),
    /// The `.dockerignore` file.
    #[error(".dockerignore cannot be used: {0}")]
    Ignore(#[from] IgnoreError),
    /// An instruction could not be followed.
    #[error("line {line}: {problem}")]
    Step {
        /// Its line in the Dockerfile.
        line: usize,
        /// What went wrong, with the last output of a command.
        problem: String,
    },
    /// The context cannot be used.
    #[error("the context cannot be used: {problem}")]
    Context {
        /// What is wrong with it.
        problem: String,
    },
    /// A name of an image.
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    /// An image could not be pulled.
    #[error("image `{reference}` could not be pulled: {}", chain(.source))]
    Pull {
        /// As it was written.
        reference: String,
        /// Why.
        #[source]
        source: PullError,
    },
    /// A file holds no image that can be used.
    #[error("{}", chain(.0))]
    Import(#[source] ImportError),
    /// Layers of an image or a tarball cannot be unpacked.
    #[error("{}", chain(.0))]
    Unpack(#[source] UnpackError),
    /// What was unpacked cannot become a disk.
    #[error("{problem}")]
    Tree {
        /// What is wrong with it.
        problem: String,
    },
    /// The content is larger than the disk.
    #[error("what is built does not fit a disk of {mib} MiB; ask for a larger one")]
    DiskTooSmall {
        /// The size asked for.
        mib: u64,
    },
    /// The host's disk is full.
    #[error("the host has no space left for this build")]
    NoSpace,
    /// The build was cancelled.
    #[error("the build was cancelled")]
    Cancelled,
    /// A machine of the build, or what it boots from.
    #[error("the machine of the build failed")]
    Node(#[source] NodeError),
    /// A disk could not be made.
    #[error("the disk could not be made")]
    Image(#[source] ImageError),
    /// A file operation on the host.
    #[error("could not {doing}")]
    Host {
        /// What was tried.
        doing: &'static str,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

fn with_hint(error: &DockerfileError) -> String {
    match &error.hint {
        Some(hint) => format!("{error}; {hint}"),
        None => error.to_string(),
    }
}

/// An error and its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let said = inner.to_string();
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = inner.source();
    }
    text
}

impl BuildError {
    /// Whether whoever asked can do something about it, rather than whoever runs the host.
    pub fn is_users_fault(&self) -> bool {
        !matches!(self, Self::NoSpace | Self::Node(_) | Self::Image(_) | Self::Host { .. })
    }

    /// For `map_err`: a file operation, a full disk told apart.
    pub(crate) fn host(doing: &'static str) -> impl Fn(std::io::Error) -> Self + Copy {
        move |source| match storage::is_no_space(&source) {
            true => Self::NoSpace,
            false => Self::Host { doing, source },
        }
    }
}
