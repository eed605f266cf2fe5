//! Bakes a template: boots it once, warms it, and keeps that instant as the snapshot every sandbox is restored from.
//!
//! The key of a bake is the digest of everything that went into it: disk, kernel, initramfs (and with it our own guest program),
//! engine, size and warm-up. When any of them changes the key changes, and the next use bakes anew.

mod boot_files;
mod built;
mod leave;
mod settle;
mod start;
mod variant;
mod warm;

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use domain::{MachineShape, SnapshotId, TemplateName};
use guest_link::GuestPath;
use guest_link::client::{Flush, Link};
use image::template::TemplateSpec;
use image::{Reuse, Step};
use machine::{BootPlan, SaveTarget, Vm};
use sha2::{Digest, Sha256};
use storage::{Durability, clone_file};

use crate::driver::cold::{create_memory, first_link};
use crate::error::NodeError;
use crate::identity::random;
use crate::machine_resources::{MachineResources, open_disk};
use crate::node::Shared;
use crate::save::{self, FirstUse, silence, staged_targets};
use crate::scoped_machine::ScopedMachine;
use crate::snapshots::{self, Pin, SnapshotKind};

pub(crate) use boot_files::{BootFiles, boot_files, look_anew};
pub use built::{BuiltTemplate, ProcessDefaults, ReadyCheck, StartCommand};
pub(crate) use variant::BAKES_AT_ONCE;
pub use variant::{variant_base, variant_name};

/// A guest that booted while the host was very busy may have settled for a poor clock, and every sandbox made from it would tick
/// for ever. Then it is booted again, this often.
const BAKE_ATTEMPTS: usize = 3;
const CLOCK_FILE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
/// Clocks that count ticks.
const POOR_CLOCKS: [&str; 2] = ["jiffies", "refined-jiffies"];

/// How far a template is.
#[derive(Debug, Clone)]
pub struct BakeProgress {
    /// Its name.
    pub template: TemplateName,
    /// What is being done.
    pub stage: BakeStage,
}

/// The steps of making a template.
#[derive(Debug, Clone)]
pub enum BakeStage {
    /// Making the parts it boots from.
    Image(Step),
    /// Its first and only boot.
    Booting,
    /// Running a warm-up command.
    Warming(String),
    /// Saving and summing it.
    Saving,
    /// Done.
    Ready,
}

type Report<'a> = &'a (dyn Fn(BakeProgress) + Send + Sync);

/// What is done with a guest between its boot and its snapshot.
enum Furnishing<'a> {
    /// What a template of the catalogue says.
    Catalogue(&'a TemplateSpec),
    /// What an image says.
    Built(&'a BuiltTemplate),
}

/// The snapshot of a template of the catalogue, built and baked if this is its first use. Concurrent first uses bake once.
pub(crate) async fn ensure(
    shared: &Arc<Shared>,
    spec: &TemplateSpec,
    report: Report<'_>,
) -> Result<Pin, NodeError> {
    let name = TemplateName::parse(&spec.name).map_err(|error| NodeError::Build {
        template: TemplateName::parse("unnamed").unwrap_or_else(|_| unreachable!("a constant name is valid")),
        source: Box::new(error),
    })?;
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| NodeError::Build {
        template: name.clone(),
        source,
    };
    let vcpus = u8::try_from(spec.vcpus).unwrap_or(u8::MAX);
    let shape = MachineShape::new(vcpus, spec.memory_mib).map_err(|error| failed(Box::new(error)))?;
    let turn = shared.bakes.turn(&name);
    let _turn = turn.lock().await;

    let stages = |stage| report(BakeProgress { template: name.clone(), stage });
    let steps = |step: Step| stages(BakeStage::Image(step));
    let files = boot_files(shared, &steps).await?;
    let rootfs = shared
        .images
        .rootfs(&spec.rootfs, Reuse::IfPresent, &steps)
        .await
        .map_err(|error| failed(Box::new(error)))?;
    let key = key(&[
        &files.digest,
        &rootfs.digest.to_string(),
        &shared.engine.fingerprint().kind(),
        &format!("{shape:?} {:?}", spec.warm),
        &leave::key(spec),
    ]);
    let furnishing = Furnishing::Catalogue(spec);
    Bake { shared, name: &name, shape, files: &files, disk: &rootfs.path, furnishing }
        .once(key, &stages)
        .await
}

/// The snapshot of a template that was built elsewhere, baked if this is its first use. Concurrent first uses bake once.
pub(crate) async fn ensure_built(
    shared: &Arc<Shared>,
    template: &BuiltTemplate,
    report: Report<'_>,
) -> Result<Pin, NodeError> {
    let BuiltTemplate { name, disk, digest, shape, defaults, start } = template;
    let turn = shared.bakes.turn(name);
    let _turn = turn.lock().await;
    let stages = |stage| report(BakeProgress { template: name.clone(), stage });
    let files = boot_files(shared, &|step: Step| stages(BakeStage::Image(step))).await?;
    let key = key(&[
        "built",
        &files.digest,
        digest,
        &shared.engine.fingerprint().kind(),
        &format!("{shape:?}"),
        &format!("{defaults:?} {start:?}"),
    ]);
    let furnishing = Furnishing::Built(template);
    Bake { shared, name, shape: *shape, files: &files, disk, furnishing }.once(key, &stages).await
}

/// Forgets a template in all its sizes: its snapshots are gone for callers, and go with their last users.
pub(crate) fn remove(shared: &Shared, name: &TemplateName) -> Result<(), NodeError> {
    let is_of = |other: &TemplateName| other == name || variant::is_variant_of(other, name);
    for (snapshot, _) in shared.snapshots.template_uses(is_of) {
        shared.waiting.unwant(&snapshot);
        shared.snapshots.delete(&snapshot)?;
    }
    shared.bakes.forget(name);
    Ok(())
}

fn key(parts: &[&str]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part.as_bytes());
    }
    hasher.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

struct Bake<'a> {
    shared: &'a Arc<Shared>,
    name: &'a TemplateName,
    shape: MachineShape,
    files: &'a BootFiles,
    disk: &'a Path,
    furnishing: Furnishing<'a>,
}

impl Bake<'_> {
    /// The snapshot of this key; baked if there is none. The caller has the template's turn. Other bakes of the template go.
    async fn once(&self, key: String, stages: &(dyn Fn(BakeStage) + Send + Sync)) -> Result<Pin, NodeError> {
        let (shared, name) = (self.shared, self.name);
        if let Some(pin) = shared.snapshots.template(name, &key, shared.engine.fingerprint()) {
            return Ok(pin);
        }
        let is_variant = variant_base(name).is_some();
        let _turn = match is_variant {
            true => Some(shared.variant_bakes.acquire().await.map_err(|_| NodeError::Closing)?),
            false => None,
        };
        let mut attempt = 1;
        let pin = loop {
            match self.run(key.clone(), stages).await {
                Err(NodeError::PoorClock { .. }) if attempt < BAKE_ATTEMPTS => attempt += 1,
                outcome => break outcome?,
            }
        };
        let outdated = shared.snapshots.template_uses(|other| other == name);
        let outdated: Vec<_> = outdated.into_iter().filter(|(id, _)| id != pin.id()).collect();
        let was_there = !outdated.is_empty();
        for (outdated, _) in outdated {
            tracing::info!(template = %name, snapshot.id = %outdated, "template {name} was baked anew; its old snapshot goes");
            shared.waiting.unwant(&outdated);
            shared.snapshots.delete(&outdated)?;
        }
        match is_variant {
            true => variant::remove_surplus(shared, name, pin.id())?,
            false if was_there => variant::remove_outdated(shared, name)?,
            false => {}
        }
        stages(BakeStage::Ready);
        Ok(pin)
    }

    async fn run(&self, key: String, stages: &(dyn Fn(BakeStage) + Send + Sync)) -> Result<Pin, NodeError> {
        let shared = self.shared;
        let staged = shared.snapshots.stage()?;
        let targets = staged_targets(&staged, FirstUse::Later)?;
        let disk = staged.path(snapshots::DISK)?;
        // Memory and sums, and some room for the guest's own writes while it is warmed.
        shared.pool.require_free(self.shape.memory_bytes() + (64 << 20)).map_err(|error| {
            tracing::warn!(%error, "no room to bake template {}", self.name);
            NodeError::NoSpace { what: "the template" }
        })?;
        clone_file(self.disk, &disk)?;
        let memory = create_memory(&targets.memory, self.shape.memory_bytes())?;
        stages(BakeStage::Booting);
        let machine = self.boot(memory, open_disk(&disk)?).await?;
        let saved = self.warm_and_save(machine.vm(), &targets, stages).await;
        machine.close().await;
        saved?;

        let name = self.name.clone();
        let shape = self.shape;
        tokio::task::block_in_place(|| {
            let memory_sums = save::memory_sums(&targets.memory, None, &machine::Saved::default())?;
            let disk_sums = save::disk_sums(&disk, None)?;
            save::write_sums(&staged, &memory_sums, &disk_sums)?;
            let id = SnapshotId::from_random(random().map_err(NodeError::host("make an id"))?);
            let fingerprint = shared.engine.fingerprint().clone();
            let about = snapshots::about(SnapshotKind::Template { key }, name, fingerprint, shape);
            shared.snapshots.commit(staged, &id, about, Durability::Synced)
        })
    }

    /// Boots the machine. Runs to its end even when the caller goes away, and then the machine ends.
    async fn boot(&self, memory: File, disk: File) -> Result<ScopedMachine, NodeError> {
        let (shared, shape) = (Arc::clone(self.shared), self.shape);
        let (kernel, initramfs) = (self.files.kernel.clone(), self.files.initramfs.clone());
        let booting = self.shared.tasks.spawn(async move {
            let directory = shared.paths.waiting().join(format!("bake-{}", random_name()?));
            let mut resources = MachineResources::take(&shared.network, directory).await?;
            let place = shared.names.place(&resources.directory, resources.slot);
            let tap = resources.tap.take();
            let plan = BootPlan { place, shape, kernel, initramfs, memory, disk, volumes: Vec::new(), tap };
            match shared.engine.boot(plan).await {
                Ok(vm) => Ok(ScopedMachine::new(&shared, vm, resources)),
                Err(error) => {
                    resources.remove(&shared.network).await;
                    Err(error.into())
                }
            }
        });
        booting.await.unwrap_or(Err(NodeError::Closing))
    }

    async fn warm_and_save(
        &self,
        vm: &dyn Vm,
        targets: &save::Targets,
        stages: &(dyn Fn(BakeStage) + Send + Sync),
    ) -> Result<(), NodeError> {
        let link = first_link(vm, self.shared.config.boot_patience, None).await?;
        check_clock(&link).await?;
        match &self.furnishing {
            Furnishing::Catalogue(spec) => {
                for command in &spec.warm {
                    stages(BakeStage::Warming(command.join(" ")));
                    self.warm_up(&link, command).await?;
                }
                self.leave_running(spec, &link, stages).await?;
            }
            Furnishing::Built(template) => self.furnish(template, &link, stages).await?,
        }
        stages(BakeStage::Saving);
        link.sync().await.map_err(NodeError::guest("flush its file systems"))?;
        silence(&link, Flush::FileSystems).await?;
        if self.shared.engine.reclaims_free_pages() {
            settle::give_back(vm).await?;
        }
        settle::settle(vm.record().process.pid).await?;
        vm.pause().await?;
        let devices = save::create_devices(&targets.devices)?;
        vm.save(SaveTarget { memory: None, devices }).await?;
        Ok(())
    }
}

async fn check_clock(link: &Link) -> Result<(), NodeError> {
    let failed = NodeError::guest("tell its clock");
    let path = GuestPath::parse(CLOCK_FILE)
        .map_err(|error| NodeError::host("name a file")(std::io::Error::other(error)))?;
    let reader = link.read_file(path, 0, None).await.map_err(&failed)?;
    let name = reader.read_to_end(256).await.map_err(&failed)?.unwrap_or_default();
    let clock = String::from_utf8_lossy(&name).trim().to_owned();
    if POOR_CLOCKS.contains(&clock.as_str()) { Err(NodeError::PoorClock { clock }) } else { Ok(()) }
}

pub(crate) fn random_name() -> Result<String, NodeError> {
    let bytes: [u8; 8] = random().map_err(NodeError::host("make a name"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
