//! The QEMU engine: hardware virtualization through KVM where it works, software emulation everywhere else.
//!
//! Snapshots are made without QEMU's own migration of memory: devices are saved by QEMU, memory is taken from the process by
//! the pages it changed. A snapshot belongs to the exact QEMU that made it.

mod command;
mod counters;
mod postcopy;
pub(crate) mod qmp;
mod rates;
mod vm;

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use async_trait::async_trait;
use domain::EngineFingerprint;

use crate::cgroup::{self, Cgroups, Group};
use crate::engine::{
    AttachError, BootPlan, Engine, MemoryOrigin, Place, Prepared, RestorePlan, StartError, VOLUMES_MAX, Vm,
    VmRecord, VolumeDrive,
};
use crate::jail::{Bind, BindMode, DeviceNode, Jail, JailRoot, RootContent, RootError};
use crate::output::Output;
use crate::process::VmProcess;
use crate::rates::Rates;
use crate::waiting::Waiting;

use command::{Descriptors, Origin};
pub use command::{LINK_PORT_NAME, NETWORK_CARD};
use vm::{CONTROL_SOCKET, LINK_SOCKET, QemuVm};

/// The first version that maps memory privately from a file it cannot write.
pub const VERSION_MIN: (u32, u32) = (8, 2);

/// What a QEMU takes besides its guest's memory, at most.
const KVM_OVERHEAD_BYTES: u64 = 256 << 20;
/// The same for one that emulates: translated code alone takes up to 1 GiB.
const TCG_OVERHEAD_BYTES: u64 = 1280 << 20;

/// What runs the guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accelerator {
    /// Hardware virtualization.
    Kvm,
    /// Software emulation; not a security boundary.
    Tcg,
}

/// What the engine needs to know about its host.
#[derive(Debug, Clone)]
pub struct QemuConfig {
    /// `qemu-system-x86_64`.
    pub program: PathBuf,
    /// `qboot.rom`: firmware that starts a kernel at once and puts its tables where no initramfs overwrites them.
    pub firmware: PathBuf,
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
    /// The host CPU, as far as a guest can notice it.
    pub host_cpu: String,
    /// Frequency of the host's time-stamp counter.
    pub tsc_khz: u64,
    /// Directory for the roots of jails; on a file system that allows executing programs.
    pub jail_roots: PathBuf,
    /// Where machine processes are held to their share, if they are.
    pub cgroups: Option<Cgroups>,
    /// How fast machines may use their disks. Of the network QEMU has nothing to say.
    pub rates: Rates,
}

/// Why the engine cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The program or its firmware could not be read.
    #[error("could not read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It did not tell its version.
    #[error("{} did not tell its version: {said}", program.display())]
    Version {
        /// The program.
        program: PathBuf,
        /// What it said.
        said: String,
    },
    /// Too old.
    #[error("QEMU {found} is too old: {}.{} or newer is needed to share memory safely", VERSION_MIN.0, VERSION_MIN.1)]
    TooOld {
        /// Its version.
        found: String,
    },
    /// The jail's root could not be made.
    #[error("could not make the root of the jail")]
    Root(#[from] RootError),
}

/// The engine.
#[derive(Debug)]
pub struct QemuEngine {
    config: QemuConfig,
    fingerprint: EngineFingerprint,
    root: JailRoot,
    /// What a machine whose memory comes on demand opens besides; `None` where it could not.
    fault_device: Option<DeviceNode>,
}

impl QemuEngine {
    /// Examines the QEMU given and makes the root its processes will live in. Blocks while it reads the program once.
    pub fn open(config: QemuConfig) -> Result<Self, OpenError> {
        let version = version(&config.program)?;
        let program_digest = digest(&config.program)?;
        let firmware_digest = digest(&config.firmware)?;
        let (engine, cpu) = match config.accelerator {
            Accelerator::Kvm => ("qemu-kvm", config.host_cpu.clone()),
            Accelerator::Tcg => ("qemu-tcg", "max".to_owned()),
        };
        let fingerprint = EngineFingerprint {
            engine: engine.to_owned(),
            version: format!("{version} {}", &program_digest[..16]),
            machine: format!("{} {}", command::MACHINE, &firmware_digest[..16]),
            cpu,
            tsc_khz: config.tsc_khz,
        };
        // Roots without the 2 have no place for devices.
        let root_name = format!("qemu2-{}-{}", &program_digest[..16], &firmware_digest[..16]);
        let mut data = vec![config.firmware.clone()];
        // Option ROMs that QEMU adds to a machine that boots a kernel.
        if let Some(directory) = config.firmware.parent() {
            data.extend(
                ["pvh.bin", "linuxboot_dma.bin"]
                    .map(|name| directory.join(name))
                    .into_iter()
                    .filter(|rom| rom.exists()),
            );
        }
        fs::create_dir_all(&config.jail_roots)
            .map_err(|source| OpenError::Read { path: config.jail_roots.clone(), source })?;
        let content = RootContent { program: &config.program, data: &data, directories: &["dev"] };
        let root = JailRoot::ensure(&config.jail_roots.join(root_name), &content)?;
        Ok(Self { config, fingerprint, root, fault_device: crate::on_demand::device() })
    }

    fn spawn(
        &self,
        place: &Place,
        shape: domain::MachineShape,
        files: Files<'_>,
        origin: &Origin<'_>,
    ) -> Result<(VmProcess, Output), StartError> {
        if files.volumes.len() > VOLUMES_MAX {
            return Err(StartError::TooManyVolumes { asked: files.volumes.len() });
        }
        let host = |action| move |source: io::Error| StartError::Host { action, source };
        let directory = File::open(&place.directory).map_err(host("open the machine's directory"))?;
        let control = qmp::listen_unix(&directory, CONTROL_SOCKET).map_err(host("listen for control"))?;
        let link = qmp::listen_unix(&directory, LINK_SOCKET).map_err(host("listen for the guest link"))?;
        let kvm = match self.config.accelerator {
            Accelerator::Kvm => {
                Some(File::options().read(true).write(true).open("/dev/kvm").map_err(host("open /dev/kvm"))?)
            }
            Accelerator::Tcg => None,
        };
        let (output, said) = Output::new().map_err(host("make a pipe for its output"))?;
        let descriptors = Descriptors {
            control: control.as_raw_fd(),
            link: link.as_raw_fd(),
            disk: files.disk.as_raw_fd(),
            volumes: files.volumes.iter().map(|volume| (volume.file.as_raw_fd(), volume.mode)).collect(),
            tap: files.tap.map(AsRawFd::as_raw_fd),
            kvm: kvm.as_ref().map(AsRawFd::as_raw_fd),
        };
        let group = self.group(place, shape)?;
        let devices = match origin {
            Origin::LazyMemory => vec![self.fault_device.ok_or(StartError::NotOnDemand)?],
            Origin::Boot { .. } | Origin::Restore => Vec::new(),
        };
        let jail = Jail {
            root: &self.root,
            binds: files.binds,
            uid: place.uid,
            arguments: command::arguments(&place.name, shape, self.config.accelerator, &descriptors, origin),
            descriptors: &descriptors.all(),
            output: &said,
            room: None,
            devices: &devices,
            network: None,
        };
        Ok((VmProcess::start(&jail, group)?, output))
    }

    /// The group that a machine's process begins in.
    fn group(&self, place: &Place, shape: domain::MachineShape) -> Result<Option<Group>, StartError> {
        let own = match self.config.accelerator {
            Accelerator::Kvm => KVM_OVERHEAD_BYTES,
            Accelerator::Tcg => TCG_OVERHEAD_BYTES,
        };
        cgroup::make(self.config.cgroups.as_ref(), place, shape, own)
    }
}

/// What a machine's QEMU is given.
struct Files<'a> {
    binds: Vec<Bind<'a>>,
    disk: &'a File,
    volumes: &'a [VolumeDrive],
    tap: Option<&'a std::os::fd::OwnedFd>,
}

#[async_trait]
impl Engine for QemuEngine {
    fn fingerprint(&self) -> &EngineFingerprint {
        &self.fingerprint
    }

    async fn boot(&self, plan: BootPlan) -> Result<Arc<dyn Vm>, StartError> {
        let arguments = command::kernel_arguments(self.config.accelerator, self.config.tsc_khz);
        let open =
            |path: &Path, action| File::open(path).map_err(|source| StartError::Host { action, source });
        let kernel = open(&plan.kernel, "open the kernel")?;
        let initramfs = open(&plan.initramfs, "open the initramfs")?;
        let binds = vec![
            Bind { file: &plan.memory, name: "memory", directory: None, mode: BindMode::ReadWrite },
            Bind { file: &kernel, name: "kernel", directory: None, mode: BindMode::ReadOnly },
            Bind { file: &initramfs, name: "initramfs", directory: None, mode: BindMode::ReadOnly },
        ];
        let files = Files { binds, disk: &plan.disk, volumes: &plan.volumes, tap: plan.tap.as_ref() };
        let origin = Origin::Boot { kernel_arguments: &arguments };
        let (process, output) =
            tokio::task::block_in_place(|| self.spawn(&plan.place, plan.shape, files, &origin))?;
        let vm = vm::control_new(process, output, plan.place, self.config.rates, None).await?;
        Ok(Arc::new(vm))
    }

    async fn prepare(&self, plan: RestorePlan) -> Result<Box<dyn Prepared>, StartError> {
        let (memory, on_demand, origin) = match &plan.memory {
            MemoryOrigin::File(file) => (Some(file), None, Origin::Restore),
            MemoryOrigin::LazyMemory(on_demand) => (None, Some(on_demand.clone()), Origin::LazyMemory),
        };
        let bind = |file| Bind { file, name: "memory", directory: None, mode: BindMode::ReadOnly };
        let binds = memory.map(bind).into_iter().collect();
        let files = Files { binds, disk: &plan.disk, volumes: &plan.volumes, tap: plan.tap.as_ref() };
        let (process, output) =
            tokio::task::block_in_place(|| self.spawn(&plan.place, plan.shape, files, &origin))?;
        let vm = vm::control_new(process, output, plan.place, self.config.rates, on_demand).await?;
        Ok(Box::new(Waiting::new(vm)))
    }

    async fn attach(
        &self,
        record: &VmRecord,
        place: &Place,
        memory: Option<MemoryOrigin>,
    ) -> Result<Arc<dyn Vm>, AttachError> {
        Ok(Arc::new(QemuVm::attach(record, place, self.config.rates, memory).await?))
    }

    fn takes_memory_on_demand(&self) -> bool {
        self.fault_device.is_some()
    }
}

fn version(program: &Path) -> Result<String, OpenError> {
    let output = Command::new(program)
        .arg("--version")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|source| OpenError::Read { path: program.to_owned(), source })?;
    let said = String::from_utf8_lossy(&output.stdout);
    let first = said.lines().next().unwrap_or_default();
    let version = first.strip_prefix("QEMU emulator version ");
    let Some(version) = version else {
        return Err(OpenError::Version { program: program.to_owned(), said: first.to_owned() });
    };
    let mut numbers =
        version.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    if found < VERSION_MIN {
        return Err(OpenError::TooOld { found: version.to_owned() });
    }
    Ok(version.to_owned())
}

fn digest(path: &Path) -> Result<String, OpenError> {
    crate::digest::of_file(path).map_err(|source| OpenError::Read { path: path.to_owned(), source })
}
