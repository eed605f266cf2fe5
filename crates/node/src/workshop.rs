//! Machines in which templates are built: booted on a clone of a disk, with further disks attached to read from, used for some
//! steps, and thrown away.
//!
//! Nothing of a workshop is written down. Its files lie among those of machines without a sandbox, which a node removes when it
//! opens, after it has ended the processes: a node that is killed leaves nothing behind. What is worth keeping is cloned
//! elsewhere ([`Workshop::keep`]).

mod command;
mod files;
mod tool;

use std::fs::File;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::{MachineShape, SandboxId};
use guest_link::GuestPath;
use guest_link::client::{CallError, Link};
use guest_link::message::NetworkPast;
use guest_link::tool::{DiskMount, Place, ToolRequest};
use machine::{BootPlan, DriveMode, VOLUMES_MAX, Vm, VolumeDrive};
use network::Policy;
use rustix::fs::{FallocateFlags, fallocate};
use storage::clone_file;

use crate::bake::{boot_files, random_name};
use crate::driver::cold::{create_memory, first_link};
use crate::error::NodeError;
use crate::identity::{IdentitySeed, Who, identity, random};
use crate::machine_resources::{MachineResources, open_disk};
use crate::name_servers::resolver_text;
use crate::node::{Node, Shared};
use crate::restore::open_network;
use crate::scoped_machine::ScopedMachine;
use crate::snapshots::{DISK, MEMORY};

pub use command::WorkshopCommand;
pub use files::{CopyItem, CopySettings, Entries, Listed};

/// Room for what a guest writes before anybody notices that it writes too much.
const WRITE_ROOM_BYTES: u64 = 256 << 20;
/// Where the guest has the attached disks. In memory, like all of `/dev`.
const ATTACHED: &str = "/dev/attached";
/// How long mounting a disk and the like may take.
const SMALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a link that broke waits for the machine's own end, which explains it better.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// A machine to build in.
#[derive(Debug, Clone)]
pub struct WorkshopPlan {
    /// What its root disk is a clone of.
    pub disk: PathBuf,
    /// Its size.
    pub shape: MachineShape,
    /// What its guest may reach.
    pub network: Policy,
    /// Disks to read from: ext4, whole, and nobody's to write meanwhile. At most [`VOLUMES_MAX`].
    pub attached: Vec<PathBuf>,
    /// Disks to write, likewise: the guest has clones of them. Together with those to read at most [`VOLUMES_MAX`].
    pub writable: Vec<PathBuf>,
}

/// A machine to build in. Ended when dropped, with everything it has on the host.
pub struct Workshop {
    link: Link,
    disk: PathBuf,
    attached: usize,
    /// The clones of disks to write. The guest has them after those to read.
    writable: Vec<PathBuf>,
    /// Text of `/etc/resolv.conf` for its commands, while it has a network.
    resolver: Option<String>,
    machine: ScopedMachine,
}

impl std::fmt::Debug for Workshop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Workshop").field("disk", &self.disk).field("attached", &self.attached).finish()
    }
}

impl Node {
    /// Boots a machine on a clone of a disk, with further disks attached read-only and mounted by the guest. After `Err` nothing
    /// is left.
    pub async fn workshop(&self, plan: WorkshopPlan) -> Result<Workshop, NodeError> {
        let asked = plan.attached.len() + plan.writable.len();
        if asked > VOLUMES_MAX {
            return Err(NodeError::TooManyVolumes { asked, max: VOLUMES_MAX });
        }
        let shared = Arc::clone(self.shared());
        // Runs to its end even when the caller goes away: then the workshop is dropped, and its machine ends.
        let opening = self.shared().tasks.spawn(async move { open(&shared, plan).await });
        opening.await.unwrap_or(Err(NodeError::Closing))
    }
}

async fn open(shared: &Arc<Shared>, plan: WorkshopPlan) -> Result<Workshop, NodeError> {
    let required = plan.shape.memory_bytes() + WRITE_ROOM_BYTES;
    tokio::task::block_in_place(|| shared.pool.require_free(required)).map_err(|error| {
        tracing::warn!(%error, "no room to build a template");
        NodeError::NoSpace { what: "a build" }
    })?;
    let directory = shared.paths.waiting().join(format!("workshop-{}", random_name()?));
    let mut resources = MachineResources::take(&shared.network, directory).await?;
    match boot(shared, &plan, &mut resources).await {
        Ok((vm, link)) => furnish(shared, &plan, vm, link, resources).await,
        Err(error) => {
            resources.remove(&shared.network).await;
            Err(error)
        }
    }
}

/// Boots the machine and makes its guest somebody. After `Err` the process is gone.
async fn boot(
    shared: &Arc<Shared>,
    plan: &WorkshopPlan,
    resources: &mut MachineResources,
) -> Result<(Arc<dyn Vm>, Link), NodeError> {
    let host = NodeError::host;
    let files = boot_files(shared, &image::Silent).await?;
    let disk = resources.directory.join(DISK);
    tokio::task::block_in_place(|| clone_file(&plan.disk, &disk))?;
    let memory = create_memory(&resources.directory.join(MEMORY), plan.shape.memory_bytes())?;
    reserve(&memory, plan.shape.memory_bytes())?;
    let attach = |path: &PathBuf| {
        let file = File::open(path).map_err(host("open a disk to attach"))?;
        Ok(VolumeDrive { file, mode: DriveMode::ReadOnly })
    };
    let mut volumes = plan.attached.iter().map(attach).collect::<Result<Vec<_>, NodeError>>()?;
    for (from, to) in plan.writable.iter().zip(writable_disks(plan, resources)) {
        tokio::task::block_in_place(|| clone_file(from, &to))?;
        volumes.push(VolumeDrive { file: open_disk(&to)?, mode: DriveMode::ReadWrite });
    }
    let boot = BootPlan {
        place: shared.names.place(&resources.directory, resources.slot),
        shape: plan.shape,
        kernel: files.kernel.clone(),
        initramfs: files.initramfs.clone(),
        memory,
        disk: open_disk(&disk)?,
        volumes,
        tap: resources.tap.take(),
    };
    let id = SandboxId::from_random(random().map_err(host("make an id"))?);
    let seed = IdentitySeed::new().map_err(host("make an identity"))?;
    let vm = shared.engine.boot(boot).await?;
    let connected = async {
        let identity = identity(
            seed.host_name(&id),
            &seed,
            Who::Anew,
            resources.addresses,
            NetworkPast::None,
            Vec::new(),
        )
        .map_err(host("make an identity"))?;
        let link = first_link(&*vm, shared.config.boot_patience, Some(identity)).await?;
        open_network(shared, resources.slot, plan.network).await?;
        Ok(link)
    };
    match connected.await {
        Ok(link) => Ok((vm, link)),
        Err(error) => {
            vm.kill().await;
            Err(error)
        }
    }
}

/// Takes the room for a machine's memory now. A pool that fills up while the guest works would end its machine for touching memory that
/// has no room; so its guest is told by its disk instead, and a step can say why it failed.
fn reserve(memory: &File, bytes: u64) -> Result<(), NodeError> {
    let reserved = tokio::task::block_in_place(|| fallocate(memory, FallocateFlags::empty(), 0, bytes));
    reserved.map_err(|errno| NodeError::host("reserve the machine's memory")(errno.into()))
}

/// Gives a booted machine its keeper, and its guest the attached disks.
async fn furnish(
    shared: &Arc<Shared>,
    plan: &WorkshopPlan,
    vm: Arc<dyn Vm>,
    link: Link,
    resources: MachineResources,
) -> Result<Workshop, NodeError> {
    let (disk, writable) = (resources.directory.join(DISK), writable_disks(plan, &resources));
    let machine = ScopedMachine::new(shared, vm, resources);
    let resolver = resolver_text(&shared.config.name_servers.told_to(plan.network));
    let workshop = Workshop { link, disk, attached: plan.attached.len(), writable, resolver, machine };
    match workshop.mount_attached().await {
        Ok(()) => Ok(workshop),
        Err(error) => {
            workshop.close().await;
            Err(error)
        }
    }
}

/// Where the clones of disks to write are.
fn writable_disks(plan: &WorkshopPlan, resources: &MachineResources) -> Vec<PathBuf> {
    (0..plan.writable.len()).map(|index| resources.directory.join(format!("writable-{index}.ext4"))).collect()
}

impl Workshop {
    /// The link to its guest.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// Where the guest has the attached disk of this number, counted from 0: those to read, then those to write.
    pub fn attached(&self, index: usize) -> GuestPath {
        guest_path(&format!("{ATTACHED}/{index}"))
    }

    /// A path for a mount. Where it lies in an attached disk, links in it are followed inside that disk.
    pub fn place(&self, path: &GuestPath) -> Place {
        tool::place(path)
    }

    /// Flushes the guest's root file system and clones its disk to `to`, a new file, while nobody can write it. The machine goes
    /// on. After `Err` there is no such file.
    pub async fn keep(&self, to: &Path) -> Result<(), NodeError> {
        self.clone_held(&guest_path("/"), &self.disk, to).await
    }

    /// The same with the disk to write of this number, counted from 0 among those.
    pub async fn keep_writable(&self, index: usize, to: &Path) -> Result<(), NodeError> {
        let missing = || NodeError::Tool { what: "keep a disk", said: format!("there is no disk {index}") };
        let disk = self.writable.get(index).ok_or_else(missing)?;
        self.clone_held(&self.attached(self.attached + index), disk, to).await
    }

    async fn clone_held(&self, place: &GuestPath, disk: &Path, to: &Path) -> Result<(), NodeError> {
        let mut held = self.hold(place).await?;
        let cloned = tokio::task::block_in_place(|| clone_file(disk, to));
        match held.let_go(self).await {
            Ok(()) => cloned.map(drop).map_err(NodeError::from),
            Err(error) => {
                if cloned.is_ok() {
                    // What may be half flushed is worth nothing; a file that stays is its caller's to find.
                    drop(std::fs::remove_file(to));
                }
                Err(error)
            }
        }
    }

    /// Ends the machine and removes everything of it.
    pub async fn close(self) {
        self.machine.close().await;
    }

    async fn mount_attached(&self) -> Result<(), NodeError> {
        let all = self.attached + self.writable.len();
        if all == 0 {
            return Ok(());
        }
        // Those to read come first, then those to write.
        let read_only: Vec<bool> = (0..all).map(|index| index < self.attached).collect();
        self.attended("find the attached disks", self.link.find_volumes(&read_only)).await?;
        let mounts = (0..all).zip('b'..).map(|(index, letter)| DiskMount {
            device: guest_path(&format!("/dev/vd{letter}")),
            place: self.attached(index),
            writable: index >= self.attached,
        });
        let request = ToolRequest::Mount(mounts.collect());
        self.tool("mount the attached disks", &request, SMALL_TIMEOUT).await.map(drop)
    }

    /// Waits for the guest's answer, or for the end of its machine.
    async fn attended<T>(
        &self,
        what: &'static str,
        work: impl Future<Output = Result<T, CallError>>,
    ) -> Result<T, NodeError> {
        let mut ended = self.machine.ended();
        let outcome = tokio::select! {
            outcome = work => outcome,
            // The sender goes only after it has told.
            reason = ended.wait_for(Option::is_some) => return Err(self.is_over(reason.ok().as_deref())),
        };
        match outcome {
            Err(CallError::Link(error)) => {
                let mut ended = self.machine.ended();
                match tokio::time::timeout(END_TIMEOUT, ended.wait_for(Option::is_some)).await {
                    Ok(reason) => Err(self.is_over(reason.ok().as_deref())),
                    Err(_) => Err(NodeError::link(what)(error)),
                }
            }
            outcome => outcome.map_err(NodeError::guest(what)),
        }
    }

    fn is_over(&self, reason: Option<&Option<String>>) -> NodeError {
        let reason = reason.and_then(Option::clone).unwrap_or_else(|| "it is gone".to_owned());
        NodeError::WorkshopEnded { reason }
    }
}

/// A path of our own making, or `/`.
fn guest_path(text: &str) -> GuestPath {
    GuestPath::parse(text).unwrap_or_else(|_| unreachable!("an absolute path without zero bytes"))
}
