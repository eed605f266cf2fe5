//! Templates: which there are, which are ready, and preparing those that are not, once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::template::Template;
use domain::SnapshotId;
use image::template::{TemplateSpec, catalogue};
use node::{BakeProgress, BakeStage, Purpose};
use tokio::sync::watch;

use crate::control::Control;
use crate::error::{ControlError, Kind};
use crate::names;

/// When a caller should ask again for a template that is being prepared.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How far a template is.
#[derive(Debug, Clone)]
enum Readiness {
    Preparing(String),
    Ready(SnapshotId),
    Failed(Arc<ControlError>),
}

/// The templates of this server.
pub(crate) struct Templates {
    specs: Vec<TemplateSpec>,
    known: Mutex<HashMap<String, watch::Receiver<Readiness>>>,
}

/// A template that sandboxes can be made from.
pub(crate) struct ReadyTemplate {
    pub(crate) name: String,
    pub(crate) snapshot: SnapshotId,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u32,
}

impl Templates {
    pub(crate) fn new() -> Self {
        Self { specs: catalogue(), known: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Readiness>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spec(&self, name: &str) -> Result<&TemplateSpec, ControlError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        if name.is_empty() || name.len() > 128 || !name.bytes().all(allowed) {
            let message =
                format!("bad template name {}: letters, digits, `-`, `_` and `.` only", names::shown(name));
            return Err(ControlError::invalid(message));
        }
        let is_meant =
            |spec: &&TemplateSpec| spec.name == name || spec.aliases.iter().any(|alias| alias == name);
        self.specs.iter().find(is_meant).ok_or_else(|| {
            let there: Vec<_> = self.specs.iter().map(|spec| spec.name.as_str()).collect();
            ControlError::invalid(format!(
                "unknown template {}: there are {}",
                names::shown(name),
                there.join(", ")
            ))
        })
    }

    fn view(&self, spec: &TemplateSpec) -> Template {
        let (status, progress) = match self.lock().get(&spec.name).map(|known| known.borrow().clone()) {
            Some(Readiness::Ready(_)) => ("ready", None),
            Some(Readiness::Preparing(what)) => ("preparing", Some(what)),
            Some(Readiness::Failed(error)) => ("not_prepared", Some(error.message.clone())),
            None => ("not_prepared", None),
        };
        Template {
            name: spec.name.clone(),
            rootfs_path: String::new(),
            size_bytes: spec.rootfs.size.bytes(),
            cpu: spec.vcpus,
            memory_mb: spec.memory_mib,
            is_global: true,
            workspace: None,
            aliases: spec.aliases.clone(),
            tools: spec.rootfs.installs(),
            status: status.to_owned(),
            progress,
            digest: None,
            size_on_disk: None,
            meta: None,
        }
    }
}

fn describe(stage: &BakeStage) -> String {
    match stage {
        BakeStage::Image(step) => format!("{}: {}", step.stage.name(), step.message),
        BakeStage::Booting => "booting it for the first time".to_owned(),
        BakeStage::Warming(command) => format!("warming it up: {command}"),
        BakeStage::Saving => "saving it".to_owned(),
        BakeStage::Ready => "ready".to_owned(),
    }
}

impl Control {
    /// All templates.
    pub fn list_templates(&self) -> Vec<Template> {
        let templates = self.templates();
        templates.specs.iter().map(|spec| templates.view(spec)).collect()
    }

    /// One template.
    pub fn template(&self, name: &str) -> Result<Template, ControlError> {
        let templates = self.templates();
        let spec = templates.spec(name);
        spec.map(|spec| templates.view(spec))
            .map_err(|_| ControlError::not_found(format!("there is no template {}", names::shown(name))))
    }

    /// Starts preparing a template, unless that is under way or done.
    pub fn prepare_template(&self, name: &str) -> Result<(), ControlError> {
        let spec = self.templates().spec(name)?.clone();
        self.watch_template(&spec);
        Ok(())
    }

    /// Templates that were prepared by an earlier process are looked at ahead of the first request.
    pub(crate) fn adopt_prepared_templates(&self) {
        let prepared = self.node().snapshots().into_iter();
        let prepared: Vec<_> = prepared
            .filter(|info| matches!(info.about.purpose, Purpose::Template { .. }))
            .map(|info| info.about.template.to_string())
            .collect();
        for spec in self.templates().specs.clone() {
            if prepared.contains(&spec.name) {
                self.watch_template(&spec);
            }
        }
    }

    /// How far a template is; a failure is forgotten, so that asking again tries again.
    fn watch_template(&self, spec: &TemplateSpec) -> watch::Receiver<Readiness> {
        let mut known = self.templates().lock();
        if let Some(receiver) = known.get(&spec.name)
            && !matches!(&*receiver.borrow(), Readiness::Failed(_))
        {
            return receiver.clone();
        }
        let (sender, receiver) = watch::channel(Readiness::Preparing("waiting to begin".to_owned()));
        known.insert(spec.name.clone(), receiver.clone());
        let (control, spec) = (self.clone(), spec.clone());
        self.tasks().spawn(async move {
            let report = |progress: BakeProgress| {
                sender.send_replace(Readiness::Preparing(describe(&progress.stage)));
            };
            // A bake cut short by the end of the server leaves nothing and is begun again by the next one.
            let outcome = tokio::select! {
                outcome = control.node().template(&spec, &report) => outcome.map_err(ControlError::from),
                () = control.closing().cancelled() => {
                    Err(ControlError::new(Kind::Unavailable, "the server is shutting down"))
                }
            };
            match outcome {
                Ok(snapshot) => sender.send_replace(Readiness::Ready(snapshot)),
                Err(error) => {
                    if !control.closing().is_cancelled() {
                        tracing::error!(template = spec.name, ?error, "a template could not be prepared");
                    }
                    sender.send_replace(Readiness::Failed(Arc::new(error)))
                }
            };
        });
        receiver
    }

    /// A template to make sandboxes from. Waits a while for one that is being prepared; then the caller is told how far it is.
    pub(crate) async fn ready_template(&self, name: &str) -> Result<ReadyTemplate, ControlError> {
        let spec = self.templates().spec(name)?.clone();
        let mut receiver = self.watch_template(&spec);
        let decided = async {
            match receiver.wait_for(|readiness| !matches!(readiness, Readiness::Preparing(_))).await {
                Ok(readiness) => Some(readiness.clone()),
                Err(_) => None,
            }
        };
        let readiness = tokio::time::timeout(self.config().template_patience, decided).await.ok().flatten();
        match readiness {
            Some(Readiness::Ready(snapshot)) => Ok(ReadyTemplate {
                name: name.to_owned(),
                snapshot,
                vcpus: spec.vcpus,
                memory_mib: spec.memory_mib,
            }),
            Some(Readiness::Failed(error)) => {
                let message = format!("template {} could not be prepared: {}", spec.name, error.message);
                let again = ControlError::new(Kind::Unavailable, message);
                Err(again.hint("the server's log tells why; asking again tries again"))
            }
            Some(Readiness::Preparing(_)) | None => {
                let how_far = match &*receiver.borrow() {
                    Readiness::Preparing(what) => what.clone(),
                    _ => "almost done".to_owned(),
                };
                let message = format!(
                    "template {} is being prepared for its first use: {how_far}; try again",
                    spec.name
                );
                let again = ControlError::new(Kind::Unavailable, message).retry_after(RETRY_AFTER);
                Err(again
                    .hint(format!("prepare templates ahead with `pandastack template bake {}`", spec.name)))
            }
        }
    }
}
