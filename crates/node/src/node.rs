//! A node: a data directory, an engine, and the sandboxes in between.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::lifecycle::Phase;
use domain::{EngineFingerprint, SandboxId, SnapshotId, TemplateName};
use image::ImageStore;
use image::template::TemplateSpec;
use machine::Engine;
use network::{AddressPool, InstanceTag, Network, NetworkConfig, Policy, Uplink};
use serde::Serialize;
use storage::{DataDir, Pool, PoolConfig, VolumeStore};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, info_span};

use crate::archive::{self, Archive};
use crate::bake::{self, BakeProgress, BootFiles, BuiltTemplate};
use crate::config::NodeConfig;
use crate::create::{self, NewSandbox};
use crate::driver::Sandbox;
use crate::error::{NodeError, OpenError};
use crate::fresh::Fresh;
use crate::identity::random;
use crate::instance::{self, Note};
use crate::keyed_mutex::KeyedMutex;
use crate::machine_resources::Names;
use crate::meter::Total;
use crate::name_servers::NameServers;
use crate::paths::{BUILDS_STAGING, Paths, remove_directory};
use crate::request::{Child, CreateFrom, CreateRequest, Forked};
use crate::restore::RestoreTimings;
use crate::save::SaveTimings;
use crate::snapshots::{DISK, SnapshotInfo, SnapshotKind, Snapshots};
use crate::volumes::{VolumeClaims, Volumes};
use crate::waiting::{self, Waiting};
use crate::{range, recovery, sweep};

/// Most children of one fork.
const FORK_CHILDREN_MAX: usize = 64;

/// Counts for operators.
#[derive(Debug, Clone, Serialize)]
pub struct NodeStats {
    /// Sandboxes by phase.
    pub sandboxes: HashMap<Phase, usize>,
    /// Machine processes that wait for a guest.
    pub prestarted_vmms: usize,
    /// Networks ready.
    pub networks_ready: u32,
    /// Bytes free in the pool.
    pub pool_free_bytes: u64,
}

/// Everything a node's tasks share.
pub(crate) struct Shared {
    pub(crate) config: NodeConfig,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) network: Network,
    pub(crate) images: ImageStore,
    pub(crate) snapshots: Arc<Snapshots>,
    pub(crate) pool: Pool,
    pub(crate) volumes: VolumeClaims,
    pub(crate) paths: Paths,
    pub(crate) names: Names,
    pub(crate) waiting: Waiting,
    pub(crate) archive: Option<Archive>,
    pub(crate) bakes: KeyedMutex<TemplateName>,
    /// KeyedMutex to bake a template in another size.
    pub(crate) variant_bakes: Semaphore,
    pub(crate) boot_files: tokio::sync::Mutex<Option<BootFiles>>,
    /// What machines have counted.
    pub(crate) total: Arc<Total>,
    pub(crate) tasks: TaskTracker,
    pub(crate) closing: CancellationToken,
    sandboxes: Mutex<HashMap<SandboxId, Sandbox>>,
    restores: Semaphore,
    /// Held for the life of the node: nobody else may touch the data directory.
    _lock: DataDir,
}

/// Permission to restore, and a nudge to the waiting machines when it is over.
pub(crate) struct RestoreTurn<'a> {
    shared: &'a Shared,
    permit: Option<SemaphorePermit<'a>>,
}

impl Drop for RestoreTurn<'_> {
    fn drop(&mut self) {
        self.permit = None;
        self.shared.waiting.nudge();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<SandboxId, Sandbox>> {
        self.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn sandbox(&self, id: &SandboxId) -> Option<Sandbox> {
        self.lock().get(id).cloned()
    }

    pub(crate) fn remember(&self, sandbox: Sandbox) {
        self.lock().insert(sandbox.id().clone(), sandbox);
    }

    pub(crate) fn forget(&self, id: &SandboxId) {
        self.lock().remove(id);
    }

    /// Waits for a turn to restore.
    pub(crate) async fn restore_turn(&self) -> Result<RestoreTurn<'_>, NodeError> {
        let permit = self.restores.acquire().await.map_err(|_| NodeError::Closing)?;
        Ok(RestoreTurn { shared: self, permit: Some(permit) })
    }

    /// Whether nobody is restoring.
    pub(crate) fn restores_idle(&self) -> bool {
        self.restores.available_permits() == self.config.concurrent_restores
    }
}

/// A node. Cheap to clone. Its machines outlive it.
#[derive(Clone)]
pub struct Node {
    shared: Arc<Shared>,
}

impl Node {
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }
}

type EngineError = Box<dyn std::error::Error + Send + Sync>;

impl Node {
    /// Takes the data directory, finds what an earlier process left there, and removes what nobody needs.
    /// `make_engine` is given a directory for the engine's own files.
    pub async fn open(
        mut config: NodeConfig,
        make_engine: impl FnOnce(&Path) -> Result<Arc<dyn Engine>, EngineError>,
    ) -> Result<Self, OpenError> {
        if config.uplink == Uplink::None && config.name_servers == NameServers::Host {
            // They cannot be reached: without any, looking up a name fails at once instead of after many seconds.
            config.name_servers = NameServers::These(Vec::new());
        }
        if config.data_dir.join(instance::RESTORING).exists() {
            return Err(OpenError::HalfRestored { data_dir: config.data_dir });
        }
        let turn = tokio::task::block_in_place(instance::turn);
        let _turn = turn.map_err(|source| OpenError::Host { action: "look at other instances", source })?;
        config.addresses = range::choose(&config).await?;
        let before = Fresh::before(&config.data_dir);
        let opened = Self::open_directory(config, make_engine).await;
        if opened.is_err() {
            tokio::task::block_in_place(|| before.undo());
        }
        opened
    }

    async fn open_directory(
        config: NodeConfig,
        make_engine: impl FnOnce(&Path) -> Result<Arc<dyn Engine>, EngineError>,
    ) -> Result<Self, OpenError> {
        let host = |action| move |source| OpenError::Host { action, source };
        std::fs::create_dir_all(&config.data_dir).map_err(host("make the data directory"))?;
        let lock = DataDir::lock(&config.data_dir)?;
        let pool = tokio::task::block_in_place(|| Pool::open(&lock, &PoolConfig { size: config.pool_size }))?;
        let tag = instance::tag(&config.data_dir).map_err(host("name the data directory"))?;
        let engine = tokio::task::block_in_place(|| make_engine(&config.data_dir.join("jails")))
            .map_err(OpenError::Engine)?;
        let paths = Paths::new(pool.path()).map_err(host("make the pool's directories"))?;
        let names = Names::new(tag.as_str());

        let findings = recovery::survey(&paths).map_err(host("look for sandboxes"))?;
        let (processes, slots) = recovery::claims(&findings);
        sweep::end_unclaimed(&names.prefix(), &processes).await.map_err(host("end leftover machines"))?;
        machine::cgroup::clear(&names.tag).map_err(host("remove groups of leftover machines"))?;
        remove_directory(&paths.waiting()).map_err(host("remove leftover machines"))?;
        remove_directory(&paths.builds().join(BUILDS_STAGING)).map_err(host("remove half-made builds"))?;
        let paths = Paths::new(pool.path()).map_err(host("make the pool's directories"))?;
        let snapshots = Snapshots::open(paths.snapshots(), paths.archived())?;
        let archive =
            config.archive.as_ref().map(|archive| Archive::open(archive, &paths.chunks())).transpose()?;
        let volumes = VolumeClaims::new(VolumeStore::open(&paths.volumes())?);
        let images =
            ImageStore::open(paths.images()).await.map_err(|error| OpenError::Images(Box::new(error)))?;
        let images = images.with_authorities(config.authorities.as_deref());
        let restores = Semaphore::new(config.concurrent_restores);
        let note = Note::new(tag.clone(), &config.data_dir).and_then(|note| note.write());
        note.map_err(host("tell others of this instance"))?;
        instance::keep_addresses(&config.data_dir, config.addresses)
            .map_err(host("write down the addresses"))?;
        let network_config = NetworkConfig {
            pool: config.addresses,
            uplink: config.uplink.clone(),
            prepared: config.prestarted_networks,
            ..NetworkConfig::new(tag)
        };
        // The last that can fail: what it makes on the host is not undone otherwise.
        let (network, report) = Network::open(network_config, &slots).await?;
        for broken in &report.broken {
            tracing::warn!(?broken, "a sandbox's network is not whole");
        }
        let shared = Arc::new(Shared {
            config,
            engine,
            network,
            images,
            snapshots,
            pool,
            volumes,
            paths,
            names,
            waiting: Waiting::default(),
            archive,
            bakes: KeyedMutex::default(),
            variant_bakes: Semaphore::new(bake::BAKES_AT_ONCE),
            boot_files: tokio::sync::Mutex::default(),
            total: Arc::default(),
            tasks: TaskTracker::new(),
            closing: CancellationToken::new(),
            sandboxes: Mutex::default(),
            restores,
            _lock: lock,
        });
        for finding in findings {
            if let Err(error) = recovery::act(&shared, finding).await {
                tracing::error!(%error, "a sandbox could not be recovered");
            }
        }
        shared.snapshots.collect();
        shared.tasks.spawn(waiting::keep_ready(Arc::clone(&shared)));
        shared.tasks.spawn(archive::keep(Arc::clone(&shared)));
        Ok(Self { shared })
    }

    /// Lets go of everything; machines go on running and are found by the next node. Networks and processes made ahead of need
    /// are removed.
    pub async fn close(self) {
        // Before anybody lets go of a pin.
        self.shared.snapshots.close();
        self.shared.closing.cancel();
        self.shared.restores.close();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
        self.shared.lock().clear();
        if let Err(error) = self.shared.network.close().await {
            tracing::warn!(%error, "parts of the network stay until the next start");
        }
        if self.shared.network.stats().leased == 0
            && let Ok(tag) = InstanceTag::parse(&self.shared.names.tag)
            && let Err(error) = instance::forget(&tag)
        {
            tracing::warn!(%error, "what others know of this instance stays until the next start");
        }
        if let Err(error) = machine::cgroup::clear(&self.shared.names.tag) {
            tracing::warn!(%error, "the group of this node's machines stays until the next start");
        }
    }

    /// Where guests get their addresses from.
    pub fn addresses(&self) -> AddressPool {
        self.shared.config.addresses
    }

    /// What machines saved here depend on.
    pub fn fingerprint(&self) -> &EngineFingerprint {
        self.shared.engine.fingerprint()
    }

    /// Forgets which kernel and package sources were found earlier: the next template is made from the newest there are.
    pub async fn look_anew(&self) -> Result<(), NodeError> {
        bake::look_anew(&self.shared).await
    }

    /// The snapshot of a template; built and baked if this is its first use.
    pub async fn template(
        &self,
        spec: &TemplateSpec,
        report: &(dyn Fn(BakeProgress) + Send + Sync),
    ) -> Result<SnapshotId, NodeError> {
        let pin = bake::ensure(&self.shared, spec, report).await?;
        waiting::want(&self.shared, &pin);
        Ok(pin.id().clone())
    }

    /// The snapshot of a template that was built; baked if this is its first use. When anything that went into it changes it is
    /// baked anew, and the old one goes with its last user.
    pub async fn built_template(
        &self,
        template: &BuiltTemplate,
        report: &(dyn Fn(BakeProgress) + Send + Sync),
    ) -> Result<SnapshotId, NodeError> {
        let pin = bake::ensure_built(&self.shared, template, report).await?;
        Ok(pin.id().clone())
    }

    /// Forgets a template: no sandbox can be made from it any more, in any size, and its snapshots go with their last users. One that is being
    /// baked meanwhile is not.
    pub fn remove_template(&self, name: &TemplateName) -> Result<(), NodeError> {
        bake::remove(&self.shared, name)
    }

    /// Makes a sandbox. When this returns its guest has confirmed who it is and takes commands. After `Err` nothing is left.
    pub async fn create(&self, request: CreateRequest) -> Result<(Sandbox, RestoreTimings), NodeError> {
        let CreateFrom::Snapshot(snapshot) = request.from;
        let pin = self.shared.snapshots.pin(&snapshot)?;
        let id = match request.id {
            Some(id) => id,
            None => SandboxId::from_random(random().map_err(NodeError::host("make an id"))?),
        };
        let CreateRequest { host_name, volumes, network, disk_bytes, .. } = request;
        self.create_from(NewSandbox { id, host_name, pin, volumes, network, disk_bytes }).await
    }

    /// Runs to its end even when the caller goes away: then the sandbox is made, and listed, and nothing is left half done.
    async fn create_from(&self, new: NewSandbox) -> Result<(Sandbox, RestoreTimings), NodeError> {
        let shared = Arc::clone(&self.shared);
        let span = info_span!("machine.restore", otel.kind = "internal", sandbox.id = %new.id);
        let making =
            self.shared.tasks.spawn(async move { create::make(&shared, new).await }.instrument(span));
        making.await.unwrap_or(Err(NodeError::Closing))
    }

    /// The sandbox of this id.
    pub fn sandbox(&self, id: &SandboxId) -> Result<Sandbox, NodeError> {
        self.shared.sandbox(id).ok_or_else(|| NodeError::NoSandbox(id.clone()))
    }

    /// All sandboxes.
    pub fn sandboxes(&self) -> Vec<Sandbox> {
        let mut all: Vec<_> = self.shared.lock().values().cloned().collect();
        all.sort_by(|a, b| a.id().cmp(b.id()));
        all
    }

    /// Keeps an instant of a sandbox; the sandbox goes on.
    pub async fn snapshot(&self, sandbox: &Sandbox) -> Result<(SnapshotInfo, SaveTimings), NodeError> {
        let id = SnapshotId::from_random(random().map_err(NodeError::host("make an id"))?);
        self.snapshot_as(sandbox, id).await
    }

    /// As [`Node::snapshot`], with an id for it.
    pub async fn snapshot_as(
        &self,
        sandbox: &Sandbox,
        id: SnapshotId,
    ) -> Result<(SnapshotInfo, SaveTimings), NodeError> {
        let (pin, timings) = sandbox.save(SnapshotKind::Kept, id).await?;
        let info = self.shared.snapshots.list().into_iter().find(|info| info.id == *pin.id());
        Ok((info.ok_or_else(|| NodeError::NoSnapshot(pin.id().clone()))?, timings))
    }

    /// Snapshots that are not deleted, oldest first.
    pub fn snapshots(&self) -> Vec<SnapshotInfo> {
        self.shared.snapshots.list()
    }

    /// Deletes a snapshot. Machines made from it, and snapshots of those, are not touched.
    pub fn delete_snapshot(&self, id: &SnapshotId) -> Result<(), NodeError> {
        self.shared.snapshots.delete(id)
    }

    /// Makes `count` sandboxes that go on from this instant of another, which goes on too. They read the volumes
    /// that it reads and have its network policy. All share one memory file. The outer
    /// error means that no instant could be taken; each child has an outcome of its own.
    pub async fn fork(
        &self,
        sandbox: &Sandbox,
        count: usize,
    ) -> Result<(Vec<Result<Sandbox, NodeError>>, SaveTimings), NodeError> {
        let id = || random().map(SandboxId::from_random).map_err(NodeError::host("make an id"));
        let child = || Ok(Child { id: id()?, host_name: None });
        let children = (0..count).map(|_| child()).collect::<Result<Vec<_>, NodeError>>()?;
        let forked = self.fork_as(sandbox, children).await?;
        let children = forked.children.into_iter().map(|made| made.map(|(child, _)| child)).collect();
        Ok((children, forked.timings))
    }

    /// As [`Node::fork`], with ids and names for the children. Outcomes come in their order.
    pub async fn fork_as(&self, sandbox: &Sandbox, children: Vec<Child>) -> Result<Forked, NodeError> {
        if children.is_empty() || children.len() > FORK_CHILDREN_MAX {
            return Err(NodeError::ForkCount { asked: children.len(), max: FORK_CHILDREN_MAX });
        }
        let (node, sandbox) = (self.clone(), sandbox.clone());
        // Runs to its end even when the caller goes away, so that the instant is either used or removed.
        let forking =
            self.shared.tasks.spawn(async move { node.fork_all(&sandbox, children).await }.in_current_span());
        forking.await.unwrap_or(Err(NodeError::Closing))
    }

    async fn fork_all(&self, sandbox: &Sandbox, children: Vec<Child>) -> Result<Forked, NodeError> {
        let id = SnapshotId::from_random(random().map_err(NodeError::host("make an id"))?);
        let (pin, timings) = sandbox.save(SnapshotKind::Fork, id).await?;
        let instant = pin.id().clone();
        let network = sandbox.state().record.network;
        let child = |Child { id, host_name }| {
            let (pin, volumes) = (pin.clone(), Vec::new());
            NewSandbox { id, host_name, pin, volumes, network, disk_bytes: None }
        };
        let making = children.into_iter().map(|one| self.create_from(child(one)));
        let children = futures::future::join_all(making).await;
        drop(pin);
        // Where no child came to be, nobody needs the instant.
        self.shared.snapshots.collect();
        Ok(Forked { instant, children, timings })
    }

    /// Opens or closes a sandbox's network, now if it runs and whenever it does later.
    pub async fn set_network_policy(&self, id: &SandboxId, policy: Policy) -> Result<(), NodeError> {
        self.sandbox(id)?.set_network_policy(policy).await
    }

    /// The volumes of this node.
    pub fn volumes(&self) -> Volumes<'_> {
        Volumes { shared: &self.shared }
    }

    /// Bytes on disk that only this sandbox uses.
    pub async fn unique_bytes(&self, id: &SandboxId) -> u64 {
        let directory = self.shared.paths.sandbox(id);
        let count = move || {
            let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
            let files = files.filter_map(|entry| std::fs::File::open(entry.path()).ok());
            files.filter_map(|file| storage::unique_bytes(&file).ok()).sum()
        };
        tokio::task::spawn_blocking(count).await.unwrap_or(0)
    }

    /// Where builds of templates keep their files: in the pool, so that clones are cheap. What is in its `staging` directory goes
    /// whenever a node opens.
    pub fn builds_directory(&self) -> PathBuf {
        self.shared.paths.builds()
    }

    /// Size of a sandbox's root disk.
    pub fn disk_bytes(&self, id: &SandboxId) -> Option<u64> {
        std::fs::metadata(self.shared.paths.sandbox(id).join(DISK)).ok().map(|about| about.len())
    }

    /// Whether guests with an open network reach anything.
    pub fn has_uplink(&self) -> bool {
        self.shared.config.uplink != Uplink::None
    }

    /// The network of this node's sandboxes.
    pub fn network(&self) -> &Network {
        &self.shared.network
    }

    /// Counts for operators.
    pub fn stats(&self) -> NodeStats {
        let mut sandboxes = HashMap::new();
        for sandbox in self.sandboxes() {
            *sandboxes.entry(sandbox.state().record.phase).or_insert(0) += 1;
        }
        NodeStats {
            sandboxes,
            prestarted_vmms: self.shared.waiting.count(),
            networks_ready: self.shared.network.stats().ready,
            pool_free_bytes: self.shared.pool.free_bytes().unwrap_or(0),
        }
    }
}
