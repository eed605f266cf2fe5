//! What a template leaves running in its snapshot: kernels for the first contexts of its sandboxes.

use guest_link::client::Link;
use image::template::{TemplateSpec, WarmKernel};
use interpreter::{Kernel, Language, leave_warm};

use super::{Bake, BakeStage};
use crate::error::NodeError;

/// What the snapshot depends on besides the template's own words: the kernels are ours.
pub(super) fn key(spec: &TemplateSpec) -> String {
    let kernels = spec.kernels.iter().filter_map(|kernel| Language::parse(&kernel.language).ok());
    let kernels: Vec<_> = kernels.map(|language| Kernel::of(language).file_name()).collect();
    if kernels.is_empty() {
        return String::new();
    }
    format!("{:?} {kernels:?}", spec.kernels)
}

impl Bake<'_> {
    pub(super) async fn leave_running(
        &self,
        spec: &TemplateSpec,
        link: &Link,
        stages: &(dyn Fn(BakeStage) + Send + Sync),
    ) -> Result<(), NodeError> {
        for kernel in &spec.kernels {
            stages(BakeStage::Warming(format!("a {} context", kernel.language)));
            self.leave_kernel(link, kernel).await?;
        }
        Ok(())
    }

    async fn leave_kernel(&self, link: &Link, kernel: &WarmKernel) -> Result<(), NodeError> {
        let failed = |error: &dyn std::error::Error| {
            let command = [format!("a {} context", kernel.language)];
            let reason = error.source().map(|source| format!(": {source}")).unwrap_or_default();
            self.not_warm(&command, "it could not be left running".to_owned(), format!("{error}{reason}"))
        };
        let language = Language::parse(&kernel.language).map_err(|error| failed(&error))?;
        leave_warm(link, language, &kernel.preload).await.map_err(|error| failed(&error))
    }
}
