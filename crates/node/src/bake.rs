//! Bakes a template: boots it once, warms it, and keeps that instant as the snapshot every sandbox is restored from.
//!
//! The key of a bake is the digest of everything that went into it: disk, kernel, initramfs (and with it our own guest program),
//! engine, size and warm-up. When any of them changes the key changes, and the next use bakes anew.

mod leave;
mod settle;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::{MachineShape, SnapshotId, TemplateName};
use guest_link::GuestPath;
use guest_link::client::{ExecLimits, Flush, Link};
use guest_link::message::ProcessSpec;
use image::template::TemplateSpec;
use image::{KernelSource, Progress, Reuse, Step};
use machine::{BootPlan, SaveTarget, Vm};
use sha2::{Digest, Sha256};
use storage::{Durability, clone_file};

use crate::berth::{Berth, open_disk};
use crate::driver::cold::{create_memory, first_link};
use crate::error::NodeError;
use crate::identity::random;
use crate::node::Shared;
use crate::save::{self, silence, staged_targets};
use crate::snapshots::{self, Pin, Purpose};

/// How long one warm-up command may take.
const WARM_PATIENCE: Duration = Duration::from_secs(300);
/// What is kept of a warm-up command's words for an error.
const WARM_OUTPUT_BYTES: usize = 4096;

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

/// The kernel and initramfs that every machine boots from.
#[derive(Debug, Clone)]
pub(crate) struct BootFiles {
    pub(crate) kernel: PathBuf,
    pub(crate) initramfs: PathBuf,
    digest: String,
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
    let source = KernelSource::default();
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

type Report<'a> = &'a (dyn Fn(BakeProgress) + Send + Sync);

/// The snapshot of a template, baked if this is its first use. Concurrent first uses bake once.
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
        &format!("{:?}", shared.engine.fingerprint()),
        &format!("{shape:?} {:?}", spec.warm),
        &leave::key(spec),
    ]);
    if let Some(pin) = shared.snapshots.template(&name, &key) {
        return Ok(pin);
    }
    let bake = Bake { shared, name: &name, shape, files: &files, rootfs: rootfs.path, spec };
    let mut attempt = 1;
    let pin = loop {
        match bake.run(key.clone(), &stages).await {
            Err(NodeError::PoorClock { .. }) if attempt < BAKE_ATTEMPTS => attempt += 1,
            outcome => break outcome?,
        }
    };
    for outdated in shared.snapshots.outdated_templates(&name, &key) {
        tracing::info!(template = %name, snapshot.id = %outdated, "template {name} was baked anew; its old snapshot goes");
        shared.waiting.unwant(&outdated);
        shared.snapshots.delete(&outdated)?;
    }
    stages(BakeStage::Ready);
    Ok(pin)
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
    rootfs: PathBuf,
    spec: &'a TemplateSpec,
}

impl Bake<'_> {
    async fn run(&self, key: String, stages: &(dyn Fn(BakeStage) + Send + Sync)) -> Result<Pin, NodeError> {
        let shared = self.shared;
        let staged = shared.snapshots.stage()?;
        let targets = staged_targets(&staged)?;
        let disk = staged.path(snapshots::DISK)?;
        // Memory and sums, and some room for the guest's own writes while it is warmed.
        shared.pool.require_free(self.shape.memory_bytes() + (64 << 20)).map_err(|error| {
            tracing::warn!(%error, "no room to bake template {}", self.name);
            NodeError::NoSpace { what: "the template" }
        })?;
        clone_file(&self.rootfs, &disk)?;
        let memory = create_memory(&targets.memory, self.shape.memory_bytes())?;
        let directory = shared.paths.waiting().join(format!("bake-{}", random_name()?));
        let mut berth = Berth::take(&shared.network, directory).await?;
        let baked = async {
            stages(BakeStage::Booting);
            let plan = BootPlan {
                place: shared.names.place(&berth.directory, berth.slot),
                shape: self.shape,
                kernel: self.files.kernel.clone(),
                initramfs: self.files.initramfs.clone(),
                memory,
                disk: open_disk(&disk)?,
                volumes: Vec::new(),
                tap: berth.tap.take(),
            };
            let vm = shared.engine.boot(plan).await?;
            let saved = self.warm_and_save(&*vm, &targets, stages).await;
            vm.kill().await;
            saved
        }
        .await;
        berth.remove(&shared.network).await;
        baked?;

        let name = self.name.clone();
        let shape = self.shape;
        tokio::task::block_in_place(|| {
            let memory_sums = save::memory_sums(&targets.memory, None, &machine::Saved::default())?;
            let disk_sums = save::disk_sums(&disk, None)?;
            save::write_sums(&staged, &memory_sums, &disk_sums)?;
            let id = SnapshotId::from_random(random().map_err(NodeError::host("make an id"))?);
            let fingerprint = shared.engine.fingerprint().clone();
            let about = snapshots::about(Purpose::Template { key }, name, fingerprint, shape);
            shared.snapshots.commit(staged, &id, about, Durability::Synced)
        })
    }

    async fn warm_and_save(
        &self,
        vm: &dyn Vm,
        targets: &save::Targets,
        stages: &(dyn Fn(BakeStage) + Send + Sync),
    ) -> Result<(), NodeError> {
        let link = first_link(vm, self.shared.config.boot_patience, None).await?;
        check_clock(&link).await?;
        for command in &self.spec.warm {
            stages(BakeStage::Warming(command.join(" ")));
            self.warm_up(&link, command).await?;
        }
        self.leave_running(&link, stages).await?;
        stages(BakeStage::Saving);
        link.sync().await.map_err(NodeError::guest("flush its file systems"))?;
        silence(&link, Flush::FileSystems).await?;
        settle::settle(vm.record().process.pid).await?;
        vm.pause().await?;
        let devices = save::create_devices(&targets.devices)?;
        vm.save(SaveTarget { memory: None, devices }).await?;
        Ok(())
    }

    async fn warm_up(&self, link: &Link, command: &[String]) -> Result<(), NodeError> {
        match self.run_to_its_end(link, command).await? {
            (0, _) => Ok(()),
            (code, output) => Err(self.not_warm(command, format!("exit code {code}"), output)),
        }
    }

    fn not_warm(&self, command: &[String], status: String, output: String) -> NodeError {
        NodeError::Warm { template: self.name.clone(), command: command.join(" "), status, output }
    }

    /// A command's exit code and what it said about its errors.
    async fn run_to_its_end(&self, link: &Link, command: &[String]) -> Result<(i32, String), NodeError> {
        let limits = ExecLimits { stdout_bytes_max: WARM_OUTPUT_BYTES, stderr_bytes_max: WARM_OUTPUT_BYTES };
        let running = link.exec(ProcessSpec::argv(command.to_vec()), b"", limits);
        let silent =
            NodeError::GuestSilent { what: "finish a warm-up command", seconds: WARM_PATIENCE.as_secs() };
        let output = tokio::time::timeout(WARM_PATIENCE, running)
            .await
            .map_err(|_| silent)?
            .map_err(NodeError::guest("run a warm-up command"))?;
        Ok((output.exit.status.shell_code(), String::from_utf8_lossy(&output.stderr).into_owned()))
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

/// One turn per template, so that concurrent first uses wait for one bake.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    turns: std::sync::Mutex<std::collections::HashMap<TemplateName, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    fn turn(&self, name: &TemplateName) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        Arc::clone(turns.entry(name.clone()).or_default())
    }
}
