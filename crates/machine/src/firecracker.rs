//! The Firecracker engine: small machines on hardware virtualization.
//!
//! Firecracker saves devices; memory is taken from the process by the pages it changed, as with QEMU: a restored machine maps its
//! memory file privately. It opens files by name, so the jail has them under the same names for every machine, and a snapshot fits
//! any of them. What it makes itself (sockets, saved devices) lies in a small directory in memory of its own.

mod api;
pub(crate) mod counters;
mod link;
mod log;
mod machine;
mod on_demand;
mod rates;
mod release;
mod room;
mod tap;
mod version;
mod vm;

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use domain::{EngineFingerprint, MachineShape};

use crate::cgroup::{self, Cgroups};
use crate::engine::{
    AttachError, BootPlan, DriveMode, Engine, MemoryOrigin, Place, Prepared, RestorePlan, StartError,
    VOLUMES_MAX, Vm, VmRecord, VolumeDrive,
};
use crate::huge_pages::{self, HugePages, Promises};
use crate::jail::{Bind, BindMode, DeviceNode, Jail, JailRoot, Room, RootContent, RootError};
use crate::output::Output;
use crate::process::VmProcess;
use crate::rates::Rates;
use crate::waiting::Waiting;

pub use link::PORT as LINK_PORT;
pub use machine::{Remembered, remembered};
use rates::RatedDevices;
pub use release::{RELEASES, Release};
pub use tap::hand_over as hand_over_tap;
pub use version::{
    VERSION_INSTALLED, VERSION_MIN, VERSION_NEWEST_TESTED, Version, VersionError, usable_version,
};
use vm::FirecrackerVm;

/// What it opens by name.
const DEVICE_NODES: [DeviceNode; 2] =
    [DeviceNode { name: "kvm", number: (10, 232) }, DeviceNode { name: "net/tun", number: (10, 200) }];

/// What a Firecracker takes besides its guest's memory, at most; the directory it writes is part of that.
const OVERHEAD_BYTES: u64 = 128 << 20;

/// What the engine needs to know about its host.
#[derive(Debug, Clone)]
pub struct FirecrackerConfig {
    /// `firecracker`.
    pub program: PathBuf,
    /// The host CPU, as far as a guest can notice it.
    pub host_cpu: String,
    /// Frequency of the host's time-stamp counter.
    pub tsc_khz: u64,
    /// Directory for the roots of jails; on a file system that allows executing programs.
    pub jail_roots: PathBuf,
    /// Where machine processes are held to their share, if they are.
    pub cgroups: Option<Cgroups>,
    /// How fast machines may use their devices.
    pub rates: Rates,
    /// In which pages machines have their memory.
    pub huge_pages: HugePages,
}

/// Why the engine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The program could not be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is not a release that can be used.
    #[error("the Firecracker found cannot be used")]
    Version(#[from] VersionError),
    /// Memory in huge pages has to come on demand, and cannot.
    #[error(
        "machines with huge pages get their memory on demand, and this host's kernel has no /dev/userfaultfd for that"
    )]
    HugePages,
    /// The jail's root could not be made.
    #[error("could not make the root of the jail")]
    Root(#[from] RootError),
}

/// The engine.
#[derive(Debug)]
pub struct FirecrackerEngine {
    fingerprint: EngineFingerprint,
    root: JailRoot,
    cgroups: Option<Cgroups>,
    rates: Rates,
    huge_pages: HugePages,
    promises: Promises,
    /// What a machine whose memory comes on demand opens besides; `None` where it could not.
    fault_device: Option<DeviceNode>,
}

impl FirecrackerEngine {
    /// Examines the Firecracker given and makes the root its processes will live in. Blocks while it reads the program once.
    pub fn open(config: FirecrackerConfig) -> Result<Self, OpenError> {
        let version = usable_version(&config.program)?;
        if version > VERSION_NEWEST_TESTED {
            tracing::warn!(
                "Firecracker {version} is newer than {VERSION_NEWEST_TESTED}, the newest that was tested"
            );
        }
        let read = |path: &Path| {
            let path = path.to_owned();
            move |source| OpenError::Read { path, source }
        };
        let digest = crate::digest::of_file(&config.program).map_err(read(&config.program))?;
        let fingerprint = EngineFingerprint {
            engine: "firecracker".to_owned(),
            version: format!("{version} {}", &digest[..16]),
            machine: machine::machine(config.huge_pages),
            cpu: config.host_cpu.clone(),
            tsc_khz: config.tsc_khz,
        };
        fs::create_dir_all(&config.jail_roots).map_err(read(&config.jail_roots))?;
        let root = config.jail_roots.join(format!("firecracker-{}", &digest[..16]));
        let content = RootContent { program: &config.program, data: &[], directories: &[room::NAME, "dev"] };
        let root = JailRoot::ensure(&root, &content)?;
        let fault_device = crate::on_demand::device();
        let FirecrackerConfig { cgroups, rates, huge_pages, .. } = config;
        if huge_pages == HugePages::TwoMib && fault_device.is_none() {
            return Err(OpenError::HugePages);
        }
        let promises = Promises::default();
        Ok(Self { fingerprint, root, cgroups, rates, huge_pages, promises, fault_device })
    }

    /// What a machine of this size takes its huge pages from, if it has any.
    fn huge_pages_of(&self, shape: MachineShape) -> Option<(Promises, MachineShape)> {
        (self.huge_pages == HugePages::TwoMib).then(|| (self.promises.clone(), shape))
    }

    fn spawn(
        &self,
        place: &Place,
        shape: MachineShape,
        files: Files<'_>,
    ) -> Result<(VmProcess, Output), StartError> {
        let host = |action| move |source: io::Error| StartError::Host { action, source };
        files.check(shape)?;
        fs::metadata(&place.directory).map_err(host("open the machine's directory"))?;
        let (output, said) = Output::new().map_err(host("make a pipe for its output"))?;
        let network = files.tap.map(|tap| tap::hand_over(tap, place.uid));
        let network = network.transpose().map_err(host("hand over the tap"))?;
        let mut binds = files.binds;
        binds.push(drive(files.disk, DriveMode::ReadWrite, machine::ROOT)?);
        for (slot, volume) in files.volumes.iter().enumerate() {
            binds.push(drive(&volume.file, volume.mode, machine::volume_drive(slot, volume.mode))?);
        }
        let drives: Vec<&str> =
            [machine::ROOT].into_iter().chain(machine::WRITABLE).chain(machine::READABLE).collect();
        let control = machine::drive_path(room::CONTROL_SOCKET);
        let log = machine::drive_path(room::LOG);
        let counters = machine::drive_path(room::COUNTERS);
        let arguments = [
            "--id",
            &place.name,
            "--api-sock",
            &control,
            "--log-path",
            &log,
            "--level",
            "Warn",
            "--show-level",
            "--metrics-path",
            &counters,
        ];
        let mut devices = DEVICE_NODES.to_vec();
        if files.memory.is_none() {
            devices.push(self.fault_device.ok_or(StartError::NotOnDemand)?);
        }
        let group = cgroup::make(self.cgroups.as_ref(), place, shape, OVERHEAD_BYTES)?;
        let jail = Jail {
            root: &self.root,
            binds,
            uid: place.uid,
            arguments: arguments.map(str::to_owned).to_vec(),
            descriptors: &[],
            output: &said,
            room: Some(Room {
                name: room::NAME,
                bytes_max: room::BYTES_MAX,
                files: &drives,
                pipes: &[room::LOG, room::COUNTERS],
            }),
            devices: &devices,
            network: network.as_ref().map(AsFd::as_fd),
        };
        Ok((VmProcess::start(&jail, group)?, output))
    }
}

/// What a machine's Firecracker is given.
struct Files<'a> {
    binds: Vec<Bind<'a>>,
    /// `None` when it comes on demand.
    memory: Option<&'a File>,
    disk: &'a File,
    volumes: &'a [VolumeDrive],
    tap: Option<OwnedFd>,
}

impl Files<'_> {
    fn rated(&self) -> RatedDevices {
        let volumes = self.volumes.iter().enumerate();
        let volumes = volumes.map(|(slot, volume)| machine::volume_drive(slot, volume.mode));
        let drives = std::iter::once(machine::ROOT).chain(volumes.take(VOLUMES_MAX)).collect();
        RatedDevices { drives, has_network: self.tap.is_some() }
    }

    /// What Firecracker would find out late or not at all.
    fn check(&self, shape: MachineShape) -> Result<(), StartError> {
        if self.volumes.len() > VOLUMES_MAX {
            return Err(StartError::TooManyVolumes { asked: self.volumes.len() });
        }
        let action = "use the memory";
        let refuse = |reason: String| Err(StartError::Host { action, source: io::Error::other(reason) });
        let Some(memory) = self.memory else { return Ok(()) };
        let found = memory.metadata().map_err(|source| StartError::Host { action, source })?.len();
        if found != shape.memory_bytes() {
            return refuse(format!("its file has {found} bytes, not {}", shape.memory_bytes()));
        }
        Ok(())
    }
}

/// A disk by its name. The jail's user opens it anew, and nobody else can reach it, so its mode lets everyone.
fn drive<'a>(file: &'a File, mode: DriveMode, name: &'static str) -> Result<Bind<'a>, StartError> {
    let (allowed, mode) = match mode {
        DriveMode::ReadWrite => (0o666, BindMode::ReadWrite),
        DriveMode::ReadOnly => (0o444, BindMode::ReadOnly),
    };
    let host = |source| StartError::Host { action: "let the machine open its disk", source };
    let current = file.metadata().map_err(host)?.permissions().mode() & 0o777;
    if current & allowed != allowed {
        file.set_permissions(Permissions::from_mode(current | allowed)).map_err(host)?;
    }
    Ok(Bind { file, name, directory: Some(room::NAME), mode })
}

#[async_trait]
impl Engine for FirecrackerEngine {
    fn fingerprint(&self) -> &EngineFingerprint {
        &self.fingerprint
    }

    async fn boot(&self, plan: BootPlan) -> Result<Arc<dyn Vm>, StartError> {
        if self.huge_pages == HugePages::TwoMib {
            huge_pages::check(plan.shape)?;
        }
        let open =
            |path: &Path, action| File::open(path).map_err(|source| StartError::Host { action, source });
        let kernel = open(&plan.kernel, "open the kernel")?;
        let initramfs = open(&plan.initramfs, "open the initramfs")?;
        let requests = machine::requests(plan.shape, &plan.volumes, plan.tap.is_some(), self.huge_pages);
        let bind = |file, name, mode| Bind { file, name, directory: None, mode };
        let binds = vec![
            bind(&plan.memory, "memory", BindMode::ReadWrite),
            bind(&kernel, "kernel", BindMode::ReadOnly),
            bind(&initramfs, "initramfs", BindMode::ReadOnly),
        ];
        let memory = Some(&plan.memory);
        let files = Files { binds, memory, disk: &plan.disk, volumes: &plan.volumes, tap: plan.tap };
        let rated = files.rated();
        let (process, output) = tokio::task::block_in_place(|| self.spawn(&plan.place, plan.shape, files))?;
        let vm = vm::control_new(process, output, None, &plan.place, (self.rates, rated)).await?;
        Ok(Arc::new(vm.with_huge_pages(self.huge_pages_of(plan.shape)).start(&requests).await?))
    }

    async fn prepare(&self, plan: RestorePlan) -> Result<Box<dyn Prepared>, StartError> {
        let use_memory = |source| StartError::Host { action: "use the memory", source };
        let (file, on_demand) = match (plan.memory, self.huge_pages) {
            (MemoryOrigin::File(file), HugePages::Off) => (Some(file), None),
            (memory, _) => (None, Some(memory.on_demand().map_err(use_memory)?)),
        };
        let memory = file.as_ref();
        let bind = |file| Bind { file, name: "memory", directory: None, mode: BindMode::ReadOnly };
        let files = Files {
            binds: memory.map(bind).into_iter().collect(),
            memory,
            disk: &plan.disk,
            volumes: &plan.volumes,
            tap: plan.tap,
        };
        let rated = files.rated();
        let (process, output) = tokio::task::block_in_place(|| self.spawn(&plan.place, plan.shape, files))?;
        let vm = vm::control_new(process, output, on_demand, &plan.place, (self.rates, rated)).await?;
        Ok(Box::new(Waiting::new(vm.with_huge_pages(self.huge_pages_of(plan.shape)))))
    }

    async fn attach(
        &self,
        record: &VmRecord,
        place: &Place,
        memory: Option<MemoryOrigin>,
    ) -> Result<Arc<dyn Vm>, AttachError> {
        Ok(Arc::new(
            FirecrackerVm::attach(record, place, memory, self.rates, (self.huge_pages, &self.promises))
                .await?,
        ))
    }

    fn takes_memory_on_demand(&self) -> bool {
        self.fault_device.is_some()
    }

    fn reclaims_free_pages(&self) -> bool {
        true
    }
}
