//! Why an image could not be made. Whatever the reason, nothing half made is left in the store.

use std::io;

use crate::bzimage::KernelFileError;
use crate::cpio::CpioError;
use crate::modules::ModuleError;
use crate::rootfs::SpecError;
use crate::tool::ToolError;

/// Why an image could not be made, found or verified.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// The disk that holds the images is full. Free some space and try again.
    #[error("no space left on the disk while {doing}")]
    DiskFull {
        /// What was being done.
        doing: String,
    },
    /// The system refused a file operation.
    #[error("cannot go on {doing}")]
    Io {
        /// What was being done.
        doing: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A program that builds need is missing or failed.
    #[error(transparent)]
    Tool(ToolError),
    /// The description of the root file system cannot be followed.
    #[error("the root file system is not described correctly")]
    Spec(#[from] SpecError),
    /// No package source of this host has the kernel.
    #[error("package `{package}` is in none of this host's package sources")]
    KernelPackageUnknown {
        /// The package asked for.
        package: String,
    },
    /// The package holds no kernel.
    #[error("package `{package}` holds no {missing}")]
    KernelPackageIncomplete {
        /// The package that was unpacked.
        package: String,
        /// What was expected in it.
        missing: &'static str,
    },
    /// The kernel file is not one.
    #[error("the kernel cannot be used")]
    KernelFile(#[from] KernelFileError),
    /// The kernel's modules do not serve a guest.
    #[error("the kernel's modules cannot be used")]
    Modules(#[from] ModuleError),
    /// The initramfs could not be put together.
    #[error("the initramfs cannot be written")]
    Archive(#[from] CpioError),
    /// The host has no package source for the suite and none was configured.
    #[error("this host has no package source for `{suite}`; configure a mirror")]
    NoPackageSource {
        /// The suite asked for.
        suite: String,
    },
    /// The build was cut off because the process is ending.
    #[error("interrupted while {doing}")]
    Interrupted {
        /// What was being done.
        doing: String,
    },
}

impl ImageError {
    /// An error of the system, told apart from a full disk.
    pub(crate) fn io(doing: impl Into<String>, source: io::Error) -> Self {
        let doing = doing.into();
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { doing },
            _ => Self::Io { doing, source },
        }
    }
}

impl From<ToolError> for ImageError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::DiskFull { tool } => Self::DiskFull { doing: format!("running {tool}") },
            other => Self::Tool(other),
        }
    }
}

/// Runs blocking work on the thread pool made for it.
pub(crate) async fn blocking<T: Send + 'static>(
    doing: &'static str,
    work: impl FnOnce() -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(result) => result,
        Err(join) if join.is_panic() => std::panic::resume_unwind(join.into_panic()),
        Err(_) => Err(ImageError::Interrupted { doing: doing.to_owned() }),
    }
}
