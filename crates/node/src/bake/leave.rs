//! What a template leaves running in its snapshot: programs, and kernels for the first contexts of its sandboxes.

use std::time::{Duration, Instant};

use guest_link::client::Link;
use guest_link::message::ProcessSpec;
use image::template::{RunningProgram, TemplateSpec, WarmKernel};
use interpreter::{Kernel, Language, leave_warm};

use super::{Bake, BakeStage, WARM_PATIENCE};
use crate::error::NodeError;

/// Between two tries whether a program is ready. Each of them costs an emulated guest more than this.
const READY_EVERY: Duration = Duration::from_millis(500);

/// What the snapshot depends on besides the template's own words: the kernels are ours.
pub(super) fn key(spec: &TemplateSpec) -> String {
    let kernels = spec.kernels.iter().filter_map(|kernel| Language::parse(&kernel.language).ok());
    let kernels: Vec<_> = kernels.map(|language| Kernel::of(language).file_name()).collect();
    if spec.running.is_empty() && kernels.is_empty() {
        return String::new();
    }
    format!("{:?} {:?} {kernels:?}", spec.running, spec.kernels)
}

impl Bake<'_> {
    pub(super) async fn leave_running(
        &self,
        link: &Link,
        stages: &(dyn Fn(BakeStage) + Send + Sync),
    ) -> Result<(), NodeError> {
        for program in &self.spec.running {
            stages(BakeStage::Warming(program.command.join(" ")));
            self.leave_program(link, program).await?;
        }
        for kernel in &self.spec.kernels {
            stages(BakeStage::Warming(format!("a {} context", kernel.language)));
            self.leave_kernel(link, kernel).await?;
        }
        Ok(())
    }

    async fn leave_program(&self, link: &Link, program: &RunningProgram) -> Result<(), NodeError> {
        let mut spec = ProcessSpec::argv(program.command.clone());
        spec.tag = Some(program.name.clone());
        let started = link
            .start_detached(spec)
            .await
            .map_err(NodeError::guest("start a program that is left running"))?;
        let patient_until = Instant::now() + WARM_PATIENCE;
        loop {
            let (code, output) = self.run_to_its_end(link, &program.ready).await?;
            if code == 0 {
                return Ok(());
            }
            let running = link.process(started.process).await;
            let info = running.map_err(NodeError::guest("tell of a program that is left running"))?;
            if info.exit.is_some() || Instant::now() >= patient_until {
                let status = if info.exit.is_some() { "it ended" } else { "it is not ready" };
                return Err(self.not_warm(&program.command, status.to_owned(), output));
            }
            tokio::time::sleep(READY_EVERY).await;
        }
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
