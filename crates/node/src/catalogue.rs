//! Disks of the templates that come with the program, for builds that start from them.

use domain::TemplateName;
use image::template::TemplateSpec;
use image::{Progress, Reuse, Rootfs};

use crate::error::NodeError;
use crate::node::Node;

impl Node {
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
