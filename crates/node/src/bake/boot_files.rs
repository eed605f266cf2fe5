//! The kernel and initramfs that every machine boots from.

use std::path::PathBuf;

use domain::TemplateName;
use image::{KernelSource, Progress};

use crate::error::NodeError;
use crate::node::Shared;

/// The kernel and initramfs that every machine boots from.
#[derive(Debug, Clone)]
pub(crate) struct BootFiles {
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    pub(super) digest: String,
}

fn no_kernel(source: image::ImageError) -> NodeError {
    NodeError::Build {
        template: TemplateName::parse("kernel").unwrap_or_else(|_| unreachable!("a constant name is valid")),
        source: Box::new(source),
    }
}

/// Makes the next use look for the newest kernel.
pub(crate) async fn look_anew(shared: &Shared) -> Result<(), NodeError> {
    let mut known = shared.boot_files.lock().await;
    shared.images.look_anew().await.map_err(no_kernel)?;
    *known = None;
    Ok(())
}

/// Makes or finds the kernel and the initramfs.
pub(crate) async fn boot_files(shared: &Shared, progress: &dyn Progress) -> Result<BootFiles, NodeError> {
    let mut known = shared.boot_files.lock().await;
    if let Some(files) = &*known {
        return Ok(files.clone());
    }
    let source = shared.config.kernel.clone();
    let kernel = shared.images.kernel(&source, progress).await.map_err(no_kernel)?;
    if shared.images.is_kernel_old(&source) {
        renew_kernel(shared, source);
    }
    let initramfs = shared.images.initramfs(&kernel, progress).await.map_err(no_kernel)?;
    let files = BootFiles {
        kernel: kernel.path.clone(),
        initramfs: initramfs.path.clone(),
        digest: format!("{} {}", kernel.digest, initramfs.digest),
    };
    *known = Some(files.clone());
    Ok(files)
}

/// Looks for a newer kernel while the one of the last time serves. Templates are baked with it after the next start of the
/// node: those that exist go on being used until then.
fn renew_kernel(shared: &Shared, source: KernelSource) {
    let (images, closing) = (shared.images.clone(), shared.closing.clone());
    shared.tasks.spawn(async move {
        let renewed = tokio::select! {
            renewed = images.renew_kernel(&source, &image::Silent) => renewed,
            () = closing.cancelled() => return,
        };
        if let Err(error) = renewed {
            tracing::warn!(%error, "could not look for a newer kernel; the one of the last time serves");
        }
    });
}
