//! Templates of a tenant's own: what their rows say becomes what the node bakes.
//!
//! The node knows a template by the build it came of, so that one which takes the place of another is baked beside it.

use builder::{BuiltDisk, ImageConfig};
use contract::template::{Template, TemplateMeta};
use contract::time::rfc3339;
use domain::{BuildId, MachineShape, SnapshotId, TemplateName};
use node::BuiltTemplate;
use serde::{Deserialize, Serialize};
use store::TemplateRow;
use tokio::sync::watch;

use super::{Readiness, Recipe, Status, Wanted};
use crate::control::Control;
use crate::error::ControlError;

/// Names that the node knows such templates by begin with this. No template of the catalogue does.
const PREFIX: &str = "own-";

/// The name that the node knows the template of a build by.
pub(super) fn key(build: &BuildId) -> String {
    format!("{PREFIX}{build}")
}

pub(super) fn is_key(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// What a row keeps of a disk besides what has columns of its own.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// The disk's name in the template's directory.
    disk: String,
    config: ImageConfig,
    starts: bool,
}

/// A template of a tenant's own, ready to be baked.
#[derive(Debug, Clone)]
pub(crate) struct OwnTemplate {
    key: String,
    pub(crate) built: BuiltTemplate,
}

impl OwnTemplate {
    /// What is kept of a disk that was built, as text.
    pub(crate) fn recipe(built: &BuiltDisk) -> Result<String, ControlError> {
        let disk = built.disk.file_name().and_then(|name| name.to_str());
        let disk = disk.ok_or_else(|| ControlError::internal("a disk without a name"))?.to_owned();
        let kept = Kept { disk, config: built.config.clone(), starts: built.starts };
        serde_json::to_string(&kept).map_err(ControlError::internal)
    }

    /// What the node knows it by.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    pub(super) fn wanted(self, row: &TemplateRow) -> Wanted {
        Wanted {
            name: row.name.clone(),
            key: self.key.clone(),
            vcpus: row.cpus,
            memory_mib: row.memory_mib,
            recipe: Recipe::Own(Box::new(self)),
        }
    }
}

impl Control {
    /// What a row says, for the node.
    pub(crate) fn own_template(&self, row: &TemplateRow) -> Result<OwnTemplate, ControlError> {
        let kept: Kept = serde_json::from_str(&row.config).map_err(ControlError::internal)?;
        let key = key(&row.build);
        let name = TemplateName::parse(&key).map_err(ControlError::internal)?;
        let vcpus = u8::try_from(row.cpus).unwrap_or(u8::MAX);
        let shape = MachineShape::new(vcpus, row.memory_mib).map_err(ControlError::internal)?;
        let disk = BuiltDisk {
            disk: self.builds().template_directory(&row.build).join(kept.disk),
            digest: row.digest.clone(),
            bytes: row.bytes,
            config: kept.config,
            starts: kept.starts,
        };
        Ok(OwnTemplate { key, built: disk.template(name, shape) })
    }

    pub(super) fn own_view(&self, row: &TemplateRow) -> Template {
        let Status { word: status, progress, detail: progress_detail } =
            self.templates().status(&key(&row.build));
        Template {
            name: row.name.clone(),
            rootfs_path: String::new(),
            size_bytes: u64::from(row.disk_mib) << 20,
            cpu: row.cpus,
            memory_mb: row.memory_mib,
            is_global: false,
            workspace: Some(row.tenant.to_string()),
            aliases: Vec::new(),
            tools: Vec::new(),
            status,
            progress,
            progress_detail,
            digest: Some(row.digest.clone()),
            size_on_disk: None,
            meta: Some(TemplateMeta {
                built_at: rfc3339(row.created_ms),
                build_id: row.build.to_string(),
                image_ref: row.image_ref.clone(),
            }),
        }
    }

    /// A template was baked right after it was built.
    pub(crate) fn own_template_ready(&self, own: &OwnTemplate, snapshot: SnapshotId) {
        let (_, receiver) = watch::channel(Readiness::Ready(snapshot));
        self.templates().lock().insert(own.key.clone(), receiver);
    }

    /// A template that no row names any more: its snapshot goes with its last user, its disk at once.
    pub(crate) async fn forget_template(&self, row: TemplateRow) {
        self.forget_machine_template(&row.build);
        let control = self.clone();
        let removed =
            tokio::task::spawn_blocking(move || control.builds().remove_template_directory(&row.build)).await;
        if let Err(error) = removed {
            tracing::warn!(%error, "the disk of a template that is gone was not removed");
        }
    }

    /// The node forgets the template of a build, if it knows it.
    pub(crate) fn forget_machine_template(&self, build: &BuildId) {
        self.forget_machine_template_named(&key(build));
    }

    pub(super) fn forget_machine_template_named(&self, key: &str) {
        self.templates().forget_with_variants(key);
        let Ok(name) = TemplateName::parse(key) else { return };
        if let Err(error) = self.node().remove_template(&name) {
            tracing::warn!(%error, template = key, "a template that is gone was not forgotten");
        }
    }
}
