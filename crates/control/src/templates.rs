//! Templates: which there are, which are ready, and preparing those that are not, once.
//!
//! Those of the catalogue are everybody's; a tenant's own (`own`) come of builds. Both are prepared in the same way: the first use
//! after an upgrade bakes them anew. A template in another size (`size`) is prepared at its first use like any other, and kept.

mod own;
mod readiness;
mod size;

use std::collections::{HashMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use contract::error::Progress;
use contract::template::{Template, TemplateSize};
use domain::{MachineShape, SnapshotId, TemplateName};
use image::template::{TemplateSpec, catalogue};
use node::{BakeProgress, Node, NodeError, SnapshotInfo, SnapshotKind, variant_base, variant_name};
use store::{Scope, StoreError};
use tokio::sync::watch;

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::{ControlError, Kind};
use crate::names;

pub(crate) use self::own::OwnTemplate;
pub(crate) use self::readiness::describe;
use self::readiness::{Preparing, Readiness};
pub(crate) use self::size::{AskedSize, SizeBounds};

/// When a caller should ask again for a template that is being prepared.
const RETRY_AFTER: Duration = Duration::from_secs(2);
/// Templates and sizes of them whose state is remembered; beyond that those that are not being prepared are looked up again.
const KNOWN_MAX: usize = 1024;

/// The templates of this server.
pub(crate) struct Templates {
    specs: Vec<TemplateSpec>,
    /// By the name that the node knows them by.
    known: Mutex<HashMap<String, watch::Receiver<Readiness>>>,
    /// Those that an earlier process prepared. Whether they still fit is found out when they are used.
    found: Mutex<HashSet<String>>,
}

/// What a template is made from.
#[derive(Clone)]
enum Recipe {
    Catalogue(Box<TemplateSpec>),
    Own(Box<OwnTemplate>),
}

/// A template that somebody may use.
#[derive(Clone)]
struct Wanted {
    /// What its user calls it.
    name: String,
    /// What the node knows it by.
    key: String,
    vcpus: u32,
    memory_mib: u32,
    recipe: Recipe,
}

/// How far a template is, as callers see it.
struct Status {
    word: String,
    progress: Option<String>,
    detail: Option<Progress>,
}

/// A template that sandboxes can be made from.
pub(crate) struct ReadyTemplate {
    pub(crate) name: String,
    /// What the node knows it by.
    pub(crate) key: String,
    pub(crate) snapshot: SnapshotId,
    pub(crate) vcpus: u32,
    pub(crate) memory_mib: u32,
}

impl Wanted {
    fn of(spec: &TemplateSpec) -> Self {
        Self {
            name: spec.name.clone(),
            key: spec.name.clone(),
            vcpus: spec.vcpus,
            memory_mib: spec.memory_mib,
            recipe: Recipe::Catalogue(Box::new(spec.clone())),
        }
    }

    /// The same template in another size: baked and kept beside it.
    fn sized(mut self, shape: MachineShape) -> Result<Self, ControlError> {
        let base = TemplateName::parse(&self.key).map_err(ControlError::internal)?;
        let name = variant_name(&base, shape).map_err(ControlError::internal)?;
        self.key = name.to_string();
        self.vcpus = u32::from(shape.vcpus());
        self.memory_mib = shape.memory_mib();
        match &mut self.recipe {
            Recipe::Catalogue(spec) => {
                spec.name.clone_from(&self.key);
                spec.vcpus = self.vcpus;
                spec.memory_mib = self.memory_mib;
            }
            Recipe::Own(own) => {
                own.built.name = name;
                own.built.shape = shape;
            }
        }
        Ok(self)
    }

    /// What to tell a caller whose template could not be prepared.
    fn not_prepared(&self, error: &ControlError) -> ControlError {
        let of = match TemplateName::parse(&self.key) {
            Ok(key) if variant_base(&key).is_some() => {
                format!("{} with cpu {} and memory_mb {}", self.name, self.vcpus, self.memory_mib)
            }
            _ => self.name.clone(),
        };
        let message = format!("template {of} could not be prepared: {}", error.message);
        let again = ControlError::new(Kind::Unavailable, message);
        again.hint("the server's log tells why; asking again tries again")
    }

    async fn bake(
        &self,
        control: &Control,
        report: &(dyn Fn(BakeProgress) + Send + Sync),
    ) -> Result<SnapshotId, NodeError> {
        match &self.recipe {
            Recipe::Catalogue(spec) => control.node().template(spec, report).await,
            Recipe::Own(own) => control.node().built_template(&own.built, report).await,
        }
    }
}

/// Names of the templates that every server has, and their aliases.
pub fn catalogue_names() -> Vec<String> {
    catalogue().into_iter().flat_map(|spec| std::iter::once(spec.name).chain(spec.aliases)).collect()
}

impl Templates {
    pub(crate) fn new() -> Self {
        Self { specs: catalogue(), known: Mutex::default(), found: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, watch::Receiver<Readiness>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found(&self) -> MutexGuard<'_, HashSet<String>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a template is looked up again at its next use.
    pub(crate) fn forget(&self, key: &str) {
        self.lock().remove(key);
        self.found().remove(key);
    }

    /// Forgets a template in all its sizes.
    fn forget_with_variants(&self, key: &str) {
        let is_of = |known: &str| {
            known == key || TemplateName::parse(known).is_ok_and(|name| variant_base(&name) == Some(key))
        };
        self.lock().retain(|known, _| !is_of(known));
        self.found().remove(key);
    }

    fn spec(&self, name: &str) -> Option<&TemplateSpec> {
        let is_meant =
            |spec: &&TemplateSpec| spec.name == name || spec.aliases.iter().any(|alias| alias == name);
        self.specs.iter().find(is_meant)
    }

    /// How far a template is, and what is being done about it.
    fn status(&self, key: &str) -> Status {
        let known = self.lock().get(key).map(|known| known.borrow().clone());
        let of = |word: &str| Status { word: word.to_owned(), progress: None, detail: None };
        match known {
            Some(Readiness::Ready(_)) => of("ready"),
            Some(Readiness::Preparing(preparing)) => {
                Status { detail: Some(preparing.view()), progress: Some(preparing.step), ..of("preparing") }
            }
            Some(Readiness::Failed(error)) => {
                Status { progress: Some(error.message.clone()), ..of("not_prepared") }
            }
            None if self.found().contains(key) => of("ready"),
            None => of("not_prepared"),
        }
    }

    fn view(&self, spec: &TemplateSpec) -> Template {
        let Status { word: status, progress, detail: progress_detail } = self.status(&spec.name);
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
            status,
            progress,
            progress_detail,
            digest: None,
            size_on_disk: None,
            meta: None,
        }
    }
}

impl Control {
    /// All templates: everybody's, and the caller's own, newest first.
    pub async fn list_templates(&self, caller: &Caller) -> Result<Vec<Template>, ControlError> {
        let templates = self.templates();
        let mut list: Vec<_> = templates.specs.iter().map(|spec| templates.view(spec)).collect();
        let own = self.store().templates(&caller.tenant).await?;
        list.extend(own.iter().map(|row| self.own_view(row)));
        Ok(list)
    }

    /// One template, with what it takes on the host.
    pub async fn template(&self, caller: &Caller, name: &str) -> Result<Template, ControlError> {
        let (mut template, key, disk) = match self.store().template(&caller.tenant, name).await? {
            Some(row) => {
                let disk = self.own_template(&row)?.built.disk;
                (self.own_view(&row), own::key(&row.build), Some(disk))
            }
            None => {
                let spec = self.templates().spec(name).ok_or_else(|| no_template(name))?;
                (self.templates().view(spec), spec.name.clone(), None)
            }
        };
        let node = self.node().clone();
        let measured = tokio::task::spawn_blocking(move || size_on_disk(&node, &key, disk.as_deref())).await;
        template.size_on_disk = measured.map_err(ControlError::internal)?;
        Ok(template)
    }

    /// Whether a name is that of a template which everybody has.
    pub(crate) fn is_in_catalogue(&self, name: &str) -> bool {
        self.templates().spec(name).is_some()
    }

    /// Deletes a template of the caller's own. Sandboxes made from it are not touched.
    pub async fn delete_template(&self, caller: &Caller, name: &str) -> Result<(), ControlError> {
        caller.require(Scope::Write)?;
        let (control, tenant, name) = (self.clone(), caller.tenant.clone(), name.to_owned());
        self.finish(async move {
            match control.store().remove_template(&tenant, &name).await? {
                Some(row) => {
                    control.forget_template(row).await;
                    Ok(())
                }
                None if control.is_in_catalogue(&name) => {
                    Err(ControlError::forbidden(format!("template {name} is everybody's and stays")))
                }
                None => Err(no_template(&name)),
            }
        })
        .await
    }

    /// Starts preparing a template of the catalogue, unless that is under way or done.
    pub fn prepare_from_catalogue(&self, name: &str) -> Result<(), ControlError> {
        let spec = self.templates().spec(name).ok_or_else(|| self.unknown_template(name))?;
        self.watch_template(&Wanted::of(spec));
        Ok(())
    }

    /// Starts preparing a template, unless that is under way or done.
    pub async fn prepare_template(&self, caller: &Caller, name: &str) -> Result<Template, ControlError> {
        caller.require(Scope::Write)?;
        let wanted = self.wanted(caller, name).await?.ok_or_else(|| no_template(name))?;
        self.watch_template(&wanted);
        self.template(caller, name).await
    }

    /// What a caller means by a name: a template of its own, or one that everybody has. Whatever others have is not there.
    async fn wanted(&self, caller: &Caller, name: &str) -> Result<Option<Wanted>, ControlError> {
        if let Some(row) = self.store().template(&caller.tenant, name).await? {
            return self.own_template(&row).map(|own| Some(own.wanted(&row)));
        }
        Ok(self.templates().spec(name).map(|spec| Wanted { name: name.to_owned(), ..Wanted::of(spec) }))
    }

    fn unknown_template(&self, name: &str) -> ControlError {
        let there: Vec<_> = self.templates().specs.iter().map(|spec| spec.name.as_str()).collect();
        let message =
            format!("unknown template {}: there are {}, and your own", names::shown(name), there.join(", "));
        ControlError::invalid(message)
    }

    /// Templates that were prepared by an earlier process: those of the catalogue are looked at ahead of the first request, and what
    /// belongs to no template any more goes.
    pub(crate) async fn adopt_prepared_templates(&self) -> Result<(), StoreError> {
        let rows = self.store().all_templates().await?;
        let own: HashSet<_> = rows.iter().map(|row| own::key(&row.build)).collect();
        let prepared: HashSet<_> = self
            .node()
            .snapshots()
            .into_iter()
            .filter(|info| matches!(info.about.purpose, SnapshotKind::Template { .. }))
            .map(|info| info.about.template.to_string())
            .collect();
        for spec in self.templates().specs.clone() {
            if prepared.contains(&spec.name) {
                self.watch_template(&Wanted::of(&spec));
            }
        }
        for key in prepared {
            let base = TemplateName::parse(&key).ok().and_then(|name| variant_base(&name).map(str::to_owned));
            match (own.contains(&key), base) {
                (true, _) => drop(self.templates().found().insert(key)),
                // A size of a template: it stays as long as that does.
                (false, Some(base)) if own.contains(&base) || self.is_in_catalogue(&base) => {}
                (false, Some(_)) => self.forget_machine_template_named(&key),
                (false, None) if own::is_key(&key) => self.forget_machine_template_named(&key),
                (false, None) => {}
            }
        }
        self.recover_builds(&rows).await
    }

    /// How far a template is; a failure is forgotten, so that asking again tries again.
    fn watch_template(&self, wanted: &Wanted) -> watch::Receiver<Readiness> {
        let mut known = self.templates().lock();
        if let Some(receiver) = known.get(&wanted.key)
            && !matches!(&*receiver.borrow(), Readiness::Failed(_))
        {
            return receiver.clone();
        }
        if known.len() >= KNOWN_MAX {
            known.retain(|_, receiver| matches!(&*receiver.borrow(), Readiness::Preparing(_)));
        }
        let (sender, receiver) = watch::channel(Readiness::Preparing(Preparing::begin()));
        known.insert(wanted.key.clone(), receiver.clone());
        let (control, wanted) = (self.clone(), wanted.clone());
        self.tasks().spawn(async move {
            let report = |progress: BakeProgress| {
                sender.send_if_modified(|readiness| match readiness {
                    Readiness::Preparing(preparing) => preparing.note(describe(&progress.stage), now_ms()),
                    _ => false,
                });
            };
            // A bake cut short by the end of the server leaves nothing and is begun again by the next one.
            let outcome = tokio::select! {
                outcome = wanted.bake(&control, &report) => outcome.map_err(ControlError::from),
                () = control.closing().cancelled() => {
                    Err(ControlError::new(Kind::Unavailable, "the server is shutting down"))
                }
            };
            match outcome {
                Ok(snapshot) => sender.send_replace(Readiness::Ready(snapshot)),
                Err(error) => {
                    if !control.closing().is_cancelled() {
                        tracing::error!(template = wanted.key, ?error, "a template could not be prepared");
                    }
                    sender.send_replace(Readiness::Failed(Arc::new(error)))
                }
            };
        });
        receiver
    }

    /// A template to make sandboxes from. Waits a while for one that is being prepared; then the caller is told how far it is.
    pub(crate) async fn ready_template(
        &self,
        caller: &Caller,
        name: &str,
        size: AskedSize,
        wait: Duration,
    ) -> Result<ReadyTemplate, ControlError> {
        check_name(name)?;
        let mut wanted = self.wanted(caller, name).await?.ok_or_else(|| self.unknown_template(name))?;
        if let Some(shape) = size.of_template(wanted.vcpus, wanted.memory_mib, self.config().size_bounds())? {
            self.check_size_quota(caller, shape).await?;
            wanted = wanted.sized(shape)?;
        }
        let mut receiver = self.watch_template(&wanted);
        let decided = async {
            match receiver.wait_for(|readiness| !matches!(readiness, Readiness::Preparing(_))).await {
                Ok(readiness) => Some(readiness.clone()),
                Err(_) => None,
            }
        };
        let readiness = tokio::time::timeout(wait, decided).await.ok().flatten();
        match readiness {
            Some(Readiness::Ready(snapshot)) => Ok(ReadyTemplate {
                name: wanted.name,
                key: wanted.key,
                snapshot,
                vcpus: wanted.vcpus,
                memory_mib: wanted.memory_mib,
            }),
            Some(Readiness::Failed(error)) => Err(wanted.not_prepared(&error)),
            Some(Readiness::Preparing(_)) | None => {
                let progress = match &*receiver.borrow() {
                    Readiness::Preparing(preparing) => preparing.view(),
                    // It was done this moment.
                    _ => Preparing::begin().view(),
                };
                let message = format!(
                    "template {} is being prepared for its first use: {}",
                    wanted.name, progress.step
                );
                let hint =
                    format!("prepare templates ahead with 'pandastack template prepare {}'", wanted.name);
                let again = ControlError::new(Kind::Preparing, message).retry_after(RETRY_AFTER);
                Err(again.progress(progress).hint(hint))
            }
        }
    }
}

impl Control {
    /// A size that alone is more than a tenant may have is refused before anything is prepared for it.
    async fn check_size_quota(&self, caller: &Caller, shape: MachineShape) -> Result<(), ControlError> {
        let quota = self.quota(&caller.tenant).await?;
        for (what, wanted, limit) in [
            ("CPUs", u64::from(shape.vcpus()), quota.cpus),
            ("MiB of memory", u64::from(shape.memory_mib()), quota.memory_mib),
        ] {
            if wanted > limit {
                return Err(StoreError::Quota { what, limit }.into());
            }
        }
        Ok(())
    }
}

/// What the snapshots of a template, in all its sizes, and the disk it was built on take. Blocks.
fn size_on_disk(node: &Node, key: &str, disk: Option<&Path>) -> Option<TemplateSize> {
    let of_template = |info: &SnapshotInfo| {
        let name = &info.about.template;
        matches!(info.about.purpose, SnapshotKind::Template { .. })
            && (name.as_str() == key || variant_base(name) == Some(key))
    };
    let snapshots = node.snapshots().into_iter().filter(of_template);
    let unique = snapshots.map(|info| info.unique_bytes).reduce(u64::saturating_add);
    // What the two share is counted once: the disk of the snapshot is a clone of this one.
    let disk = disk.and_then(|path| path.metadata().ok()).map(|about| about.blocks() * 512);
    let bytes = [unique, disk].into_iter().flatten().reduce(u64::saturating_add)?;
    Some(TemplateSize { bytes, unique_bytes: unique.unwrap_or_default() })
}

fn no_template(name: &str) -> ControlError {
    ControlError::not_found(format!("there is no template {}", names::shown(name)))
}

/// What cannot be a name is refused as such.
fn check_name(name: &str) -> Result<(), ControlError> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if name.is_empty() || name.len() > 128 || !name.bytes().all(allowed) {
        let message =
            format!("bad template name {}: letters, digits, `-`, `_` and `.` only", names::shown(name));
        return Err(ControlError::invalid(message));
    }
    Ok(())
}
