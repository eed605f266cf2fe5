//! Why a template could not be built.

use std::error::Error;

use dockerfile::{DockerfileError, IgnoreError};
use image::{ImageError, PrepareError, SpecError};
use node::NodeError;
use oci::{ImportError, LayoutError, PullError, ReferenceError, StreamLimit, UnpackCause, UnpackError};
use storage::CloneError;

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
    #[error("{}{}", .0, reference_hint(.0).map(|hint| format!("; {hint}")).unwrap_or_default())]
    Reference(#[from] ReferenceError),
    /// An image could not be pulled.
    #[error("image `{reference}` could not be pulled: {}", chain(&**source))]
    Pull {
        /// As it was written.
        reference: String,
        /// Why.
        #[source]
        source: Box<PullError>,
    },
    /// A file holds no image that can be used.
    #[error("the image cannot be used: {}", chain(&**.0))]
    Import(#[source] Box<ImportError>),
    /// Layers of an image or a tarball cannot be unpacked.
    #[error("{}", chain(&**.0))]
    Unpack(#[source] Box<UnpackError>),
    /// What was unpacked cannot become a guest's disk.
    #[error("{}: {}", .0, .0.source)]
    Tree(#[source] PrepareError),
    /// The source is not there, or not what it should be.
    #[error("{problem}")]
    Source {
        /// What is wrong with it.
        problem: String,
    },
    /// A disk that cannot be.
    #[error(transparent)]
    Size(SpecError),
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
    Node(#[source] Box<NodeError>),
    /// A disk could not be made.
    #[error("the disk could not be made")]
    Image(#[source] Box<ImageError>),
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

/// An error and its causes in one line, without paths of the host.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = said(error);
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = said(inner);
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    text
}

fn said(error: &(dyn Error + 'static)) -> String {
    match error.downcast_ref::<LayoutError>() {
        Some(LayoutError::Host { doing, .. }) => format!("the host could not {doing} a file of it"),
        Some(LayoutError::NotALayout { .. }) => "it is not an image layout of version 1.0.0".to_owned(),
        Some(LayoutError::Index { .. }) => "its index cannot be read".to_owned(),
        Some(LayoutError::InUse { .. }) => "old content is being removed just now".to_owned(),
        _ => error.to_string(),
    }
}

/// Whether the cause of an error is a full disk of the host.
fn is_no_space(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        let full = inner.downcast_ref::<std::io::Error>().is_some_and(storage::is_no_space)
            || matches!(inner.downcast_ref::<ImageError>(), Some(ImageError::DiskFull { .. }))
            || matches!(inner.downcast_ref::<NodeError>(), Some(NodeError::NoSpace { .. }));
        if full {
            return true;
        }
        cause = inner.source();
    }
    false
}

/// What mends a name of an image that this server does not take.
#[must_use]
pub fn reference_hint(error: &ReferenceError) -> Option<String> {
    match error {
        ReferenceError::NoRegistry { .. } => Some(
            "the operator says which registry such names mean: `pandastack serve --registry docker.io --registry-default docker.io`"
                .to_owned(),
        ),
        ReferenceError::NotAllowed { registry } => {
            Some(format!("the operator allows a registry with `pandastack serve --registry {}`", registry.as_str()))
        }
        ReferenceError::Malformed { .. } => None,
    }
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

    pub(crate) fn pull(reference: &str, source: PullError) -> Self {
        match is_no_space(&source) {
            true => Self::NoSpace,
            false => Self::Pull { reference: reference.to_owned(), source: Box::new(source) },
        }
    }

    pub(crate) fn import(source: ImportError) -> Self {
        if is_no_space(&source) { Self::NoSpace } else { Self::Import(Box::new(source)) }
    }

    pub(crate) fn clone(source: CloneError) -> Self {
        match source {
            CloneError::NoSpace => Self::NoSpace,
            other => Self::host("clone a disk")(std::io::Error::other(other)),
        }
    }

    pub(crate) fn node(source: NodeError) -> Self {
        if is_no_space(&source) { Self::NoSpace } else { Self::Node(Box::new(source)) }
    }

    /// What went wrong with the instruction on a line.
    pub(crate) fn step(line: usize, problem: impl Into<String>) -> Self {
        Self::Step { line, problem: problem.into() }
    }

    pub(crate) fn image(source: ImageError) -> Self {
        match source {
            ImageError::Spec(SpecError::DiskTooSmall { mib }) => Self::DiskTooSmall { mib },
            other if is_no_space(&other) => Self::NoSpace,
            other => Self::Image(Box::new(other)),
        }
    }

    pub(crate) fn tree(source: PrepareError) -> Self {
        if is_no_space(&source) { Self::NoSpace } else { Self::Tree(source) }
    }

    /// What stopped unpacking onto a disk of `mib`.
    pub(crate) fn unpack(source: UnpackError, mib: u64) -> Self {
        match &source.cause {
            UnpackCause::Limit { what, .. } if what.contains("bytes") => Self::DiskTooSmall { mib },
            UnpackCause::Stream(StreamLimit::Bytes(_)) => Self::DiskTooSmall { mib },
            _ if is_no_space(&source) => Self::NoSpace,
            _ => Self::Unpack(Box::new(source)),
        }
    }
}
