//! What every engine must do, whatever program is behind it. One function per promise of [`machine::Engine`].
//!
//! Cases know nothing of any engine: they boot, save, restore and kill through the trait and look at the processes from outside.

mod balloon;
mod counters;
mod huge_pages;
mod jail;
mod lifecycle;
mod on_demand;
mod rates;
mod share;
mod trouble;
mod volumes;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use domain::MachineShape;
use guest_link::client::{Flush, Link, Opening};
use image::{ImageStore, KernelSource, Reuse, Silent};
use machine::{
    BootPlan, Engine, MemoryOrigin, MemoryTarget, Place, Prepared, ProcessIdentity, RestorePlan, SaveTarget,
    Saved, Vm, VolumeDrive, WriteOut,
};
use storage::{DataDir, Pool, PoolConfig, PoolSize, clone_file};

pub use balloon::a_balloon_gives_back_what_is_freed;
pub use counters::a_machine_counts_what_its_disks_carry;
pub use huge_pages::a_machine_with_huge_pages_is_saved_and_restored;
pub use jail::{a_machine_process_is_jailed, the_base_memory_cannot_be_written};
pub use lifecycle::{
    a_booted_machine_is_saved_and_restored_many_times, a_guest_boots_and_answers,
    a_large_machine_is_saved_and_restored, a_machine_is_found_again,
    a_restored_machine_is_saved_and_restored, pausing_and_resuming_can_be_repeated,
};
pub use on_demand::{
    a_guest_that_waits_for_memory_is_found_again, memory_on_demand_is_what_was_saved,
    memory_that_does_not_come_ends_a_machine,
};
pub use rates::a_disk_keeps_its_rate;
pub use share::{a_machine_process_is_held_to_its_share, a_machine_process_steps_back};
pub use trouble::{
    a_discarded_machine_leaves_nothing, a_hung_machine_is_told, an_end_is_told, damaged_devices_are_told,
    what_is_not_there_is_told,
};
pub use volumes::{a_booted_machine_has_its_volumes, a_restored_machine_has_its_volumes};

use crate::baked::{Baked, template};
use crate::lab::BUILD_POOL_BYTES;
use crate::{engine, leftovers, wait};

/// User ids for machines of the suite, outside those of nodes.
const FIRST_UID: u32 = 900_000_000;
/// How long a guest may take to boot, emulated, on a busy host.
const BOOT_TIMEOUT: Duration = Duration::from_secs(120);
/// How long a restored guest may take to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// An engine and what machines of the suite are made from.
pub struct Fixture {
    engine: Arc<dyn Engine>,
    /// Names of the suite's processes begin with this.
    prefix: String,
    instance: String,
    directory: PathBuf,
    kernel: PathBuf,
    initramfs: PathBuf,
    rootfs: PathBuf,
    shape: MachineShape,
    next: AtomicU32,
    /// A machine that was booted once, and its saved state; booting is slow.
    booted: tokio::sync::OnceCell<State>,
    /// The same with much in its memory.
    filled: tokio::sync::OnceCell<State>,
    _lock: Arc<DataDir>,
}

/// Saved state of a machine: memory, devices and disk of one instant.
#[derive(Debug, Clone)]
pub struct State {
    memory: PathBuf,
    devices: PathBuf,
    disk: PathBuf,
}

/// A machine of the suite. Its process is killed when it is dropped.
pub struct Machine {
    vm: Arc<dyn Vm>,
    place: Place,
    memory: PathBuf,
    disk: PathBuf,
    _end: EndOnDrop,
}

/// Kills a process when it is dropped.
struct EndOnDrop(ProcessIdentity);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        // One that has ended already is what we want.
        drop(leftovers::os::kill_process(self.0));
    }
}

impl Fixture {
    /// For the engine of this host.
    pub async fn open() -> Result<Self> {
        let base = Baked::base().await?;
        let data_dir = leftovers::make_directory("conformance")?;
        let lock = DataDir::lock(&data_dir)?;
        let pool = Pool::open(&lock, &PoolConfig { size: PoolSize::Bytes(BUILD_POOL_BYTES) })?;
        // The janitor finds our machines by this, as it does those of a node.
        let tag = format!("{:06x}", std::process::id() & 0xff_ffff);
        std::fs::write(data_dir.join("instance"), &tag)?;
        crate::command::copy_into(&[&base.images()], pool.path())?;
        let images = ImageStore::open(pool.path().join("images")).await?;
        let kernel = images.kernel(&KernelSource::default(), &Silent).await?;
        let initramfs = images.initramfs(&kernel, &Silent).await?;
        let spec = template();
        let rootfs = images.rootfs(&spec.rootfs, Reuse::IfPresent, &Silent).await?;
        Ok(Self {
            engine: engine::engine()?,
            prefix: format!("pandastack-{tag}-"),
            instance: tag,
            directory: pool.path().join("machines"),
            kernel: kernel.path.clone(),
            initramfs: initramfs.path.clone(),
            rootfs: rootfs.path.clone(),
            shape: MachineShape::new(u8::try_from(spec.vcpus)?, spec.memory_mib)?,
            next: AtomicU32::new(0),
            booted: tokio::sync::OnceCell::new(),
            filled: tokio::sync::OnceCell::new(),
            _lock: Arc::new(lock),
        })
    }

    /// The same for machines with another amount of memory.
    fn sized(&self, memory_mib: u32) -> Result<Self> {
        Ok(Self {
            engine: Arc::clone(&self.engine),
            prefix: self.prefix.clone(),
            instance: self.instance.clone(),
            directory: self.directory.clone(),
            kernel: self.kernel.clone(),
            initramfs: self.initramfs.clone(),
            rootfs: self.rootfs.clone(),
            shape: MachineShape::new(self.shape.vcpus(), memory_mib)?,
            next: AtomicU32::new(memory_mib),
            booted: tokio::sync::OnceCell::new(),
            filled: tokio::sync::OnceCell::new(),
            _lock: Arc::clone(&self._lock),
        })
    }

    fn place(&self) -> Result<Place> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory.join(number.to_string());
        std::fs::create_dir_all(&directory)?;
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        std::fs::set_permissions(&directory, permissions)?;
        let name = format!("{}{number}", self.prefix);
        Ok(Place { directory, name, instance: self.instance.clone(), uid: FIRST_UID + number })
    }

    /// Processes of the suite that are named like this place's.
    fn processes(&self, place: &Place) -> Result<usize> {
        let name = place.name.strip_prefix("pandastack-").context("a name of the suite")?;
        let mut count = 0;
        for process in crate::census::machines(name.split('-').next().unwrap_or_default())? {
            let line = std::fs::read(format!("/proc/{}/cmdline", process.pid)).unwrap_or_default();
            let named = line.split(|&byte| byte == 0).any(|argument| {
                argument == place.name.as_bytes()
                    || argument.strip_prefix(place.name.as_bytes()).is_some_and(|rest| rest.starts_with(b","))
            });
            count += usize::from(named);
        }
        Ok(count)
    }

    async fn boot(&self) -> Result<Machine> {
        self.boot_with(Vec::new()).await
    }

    async fn boot_with(&self, volumes: Vec<VolumeDrive>) -> Result<Machine> {
        let place = self.place()?;
        let (memory_path, disk_path) = (place.directory.join("memory"), place.directory.join("disk"));
        let memory = File::options().read(true).write(true).create_new(true).open(&memory_path)?;
        memory.set_len(self.shape.memory_bytes())?;
        memory.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666))?;
        let (disk, _) = clone_file(&self.rootfs, &disk_path)?;
        let plan = BootPlan {
            place: place.clone(),
            shape: self.shape,
            kernel: self.kernel.clone(),
            initramfs: self.initramfs.clone(),
            memory,
            disk,
            volumes,
            tap: None,
        };
        let vm = self.engine.boot(plan).await.context("boot")?;
        Ok(Machine::new(vm, place, memory_path, disk_path))
    }

    fn plan(&self, state: &State, volumes: Vec<VolumeDrive>) -> Result<(RestorePlan, PathBuf)> {
        let place = self.place()?;
        let disk_path = place.directory.join("disk");
        let (disk, _) = clone_file(&state.disk, &disk_path)?;
        let memory = File::open(&state.memory)?;
        Ok((
            RestorePlan {
                place,
                shape: self.shape,
                memory: MemoryOrigin::File(memory),
                disk,
                volumes,
                tap: None,
            },
            disk_path,
        ))
    }

    async fn prepare(&self, state: &State) -> Result<(Box<dyn Prepared>, Place, PathBuf)> {
        self.prepare_with(state, Vec::new()).await
    }

    async fn prepare_with(
        &self,
        state: &State,
        volumes: Vec<VolumeDrive>,
    ) -> Result<(Box<dyn Prepared>, Place, PathBuf)> {
        self.prepare_on(&self.engine, state, volumes).await
    }

    async fn prepare_on(
        &self,
        engine: &Arc<dyn Engine>,
        state: &State,
        volumes: Vec<VolumeDrive>,
    ) -> Result<(Box<dyn Prepared>, Place, PathBuf)> {
        let (plan, disk) = self.plan(state, volumes)?;
        let place = plan.place.clone();
        Ok((engine.prepare(plan).await.context("prepare")?, place, disk))
    }

    /// A machine of saved state, paused.
    async fn restore(&self, state: &State) -> Result<Machine> {
        self.restore_with(state, Vec::new()).await
    }

    async fn restore_with(&self, state: &State, volumes: Vec<VolumeDrive>) -> Result<Machine> {
        let (prepared, place, disk) = self.prepare_with(state, volumes).await?;
        let vm = prepared.load(File::open(&state.devices)?).await.context("load")?;
        Ok(Machine::new(vm, place, state.memory.clone(), disk))
    }

    /// Saved state of a booted machine with a word in its memory and on its disk.
    async fn booted_state(&self) -> Result<&State> {
        let make = async || {
            let machine = self.boot().await?;
            let link = machine.first_link().await?;
            crate::guest::shell(&link, "echo booted > /run/word; echo booted > /word; sync").await?;
            crate::guest::start_counter(&link).await?;
            let (state, _) = machine.save(&link, Origin::Booted).await?;
            machine.vm.kill().await;
            Ok(state)
        };
        self.booted.get_or_try_init(make).await
    }
}

/// How a machine came to be; its memory is saved differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Booted,
    Restored,
}

impl Machine {
    fn new(vm: Arc<dyn Vm>, place: Place, memory: PathBuf, disk: PathBuf) -> Self {
        let end = EndOnDrop(vm.record().process);
        Self { vm, place, memory, disk, _end: end }
    }

    /// The link to a guest that is just booting.
    async fn first_link(&self) -> Result<Link> {
        self.open_link(Opening::Clean, wait::scaled(BOOT_TIMEOUT)).await
    }

    async fn open_link(&self, opening: Opening, patience: Duration) -> Result<Link> {
        let open = async {
            let stream = self.vm.connect_link().await?;
            Ok::<_, anyhow::Error>(Link::open(stream, opening, None).await?.0)
        };
        match tokio::time::timeout(patience, open).await {
            Ok(opened) => opened,
            Err(_) => {
                anyhow::bail!("the guest did not answer; its console: {}", self.vm.console_tail().await)
            }
        }
    }

    /// Lets a restored guest run and opens its link.
    async fn resume(&self) -> Result<Link> {
        self.vm.resume().await.context("resume")?;
        self.open_link(Opening::Clean, wait::scaled(ANSWER_TIMEOUT)).await
    }

    /// Saves an instant; the machine stays paused.
    async fn save(&self, link: &Link, origin: Origin) -> Result<(State, Saved)> {
        link.quiesce(Flush::Nothing).await?;
        self.vm.pause().await?;
        self.save_paused(origin).await
    }

    async fn save_paused(&self, origin: Origin) -> Result<(State, Saved)> {
        let devices_path = self.place.directory.join("saved-devices");
        let devices = File::options().write(true).create_new(true).open(&devices_path)?;
        let (memory, memory_path) = match origin {
            Origin::Booted => (None, self.memory.clone()),
            Origin::Restored => {
                let path = self.place.directory.join("saved-memory");
                let (copy, _) = clone_file(&self.memory, &path)?;
                (
                    Some(MemoryTarget { base: File::open(&self.memory)?, copy, write_out: WriteOut::Later }),
                    path,
                )
            }
        };
        let saved = self.vm.save(SaveTarget { memory, devices }).await.context("save")?;
        // Nobody writes it from here on, and the jail's user must be able to read it.
        std::fs::set_permissions(&memory_path, std::os::unix::fs::PermissionsExt::from_mode(0o444))?;
        let disk = self.place.directory.join("saved-disk");
        clone_file(&self.disk, &disk)?;
        Ok((State { memory: memory_path, devices: devices_path, disk }, saved))
    }

    fn process_directory(&self) -> PathBuf {
        Path::new("/proc").join(self.vm.record().process.pid.to_string())
    }
}
