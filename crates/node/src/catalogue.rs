//! Disks of the templates that come with the program, for builds that start from them, and what all disks have in common.

use domain::TemplateName;
use image::template::TemplateSpec;
use image::{Authorities, Progress, Reuse, Rootfs};

use crate::error::NodeError;
use crate::node::Node;

impl Node {
    /// Certificate authorities that guests trust besides the public ones, as they are now.
    pub async fn authorities(&self) -> Result<Authorities, NodeError> {
        let read = self.shared().images.authorities().await;
        read.map_err(|error| NodeError::host("read the host's certificates")(std::io::Error::other(error)))
    }

    /// The root file system of a template of the catalogue; made if this is its first use.
    pub async fn catalogue_disk(
        &self,
        spec: &TemplateSpec,
        progress: &dyn Progress,
    ) -> Result<Rootfs, NodeError> {
        let failed = |source: Box<dyn std::error::Error + Send + Sync>| NodeError::Build {
            template: TemplateName::parse(&spec.name).unwrap_or_else(|_| {
                TemplateName::parse("unnamed").unwrap_or_else(|_| unreachable!("a constant name is valid"))
            }),
            source,
        };
        let rootfs = self.shared().images.rootfs(&spec.rootfs, Reuse::IfPresent, progress).await;
        rootfs.map_err(|error| failed(Box::new(error)))
    }
}
