//! A node over a data directory of its own.

use std::fs::File;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use domain::{SandboxId, SnapshotId};
use image::template::TemplateSpec;
use machine::Engine;
use network::AddressPool;
use node::{CreateFrom, CreateRequest, NameServers, Node, NodeConfig, PrestartedVmms, SnapshotKind};
use storage::{DataDir, Pool, PoolConfig, PoolSize};
use tokio::runtime::Runtime;
use tokio::sync::{OnceCell, Semaphore};

use crate::baked::{Baked, Contents, template};
use crate::census::Census;
use crate::guest::Guest;
use crate::{cache, engine, leftovers, program, wait};

/// Sparse: a pool takes what is in it.
pub(crate) const BUILD_POOL_BYTES: u64 = 8 << 30;
/// The same with large templates in it.
pub(crate) const LARGE_POOL_BYTES: u64 = 40 << 30;
/// What guests with an open network are told to ask for names. An address for examples: nobody has it.
pub const NAME_SERVER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 53);
/// Tests of one process at a time. Guests are emulated, cores are few.
const TESTS_AT_ONCE: usize = 2;
/// How long one test may take, on a busy host.
const TEST_TIMEOUT: Duration = Duration::from_secs(240);
/// How long a node may take to let go of what a test has deleted.
const TIDY_TIMEOUT: Duration = Duration::from_secs(60);

/// One runtime for the whole process, because nodes outlive tests.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    start_logging();
    let builder = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build();
    builder.expect("a host that runs virtual machines can start threads")
});
static TURNS: Semaphore = Semaphore::const_new(TESTS_AT_ONCE);
static SHARED: OnceCell<Lab> = OnceCell::const_new();
static LABS: AtomicU32 = AtomicU32::new(0);

fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("PANDASTACK_LOG");
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("off"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

/// The runtime that tests and their nodes share.
pub(crate) fn runtime() -> &'static Runtime {
    &RUNTIME
}

/// Runs a test when it is its turn, with a deadline.
pub fn run(test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    run_for(TEST_TIMEOUT, test)
}

/// The same for a test that needs longer.
pub fn run_for(patience: Duration, test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    runtime().block_on(in_turn_for(patience, test()))
}

/// Runs a test with no other at its side: it counts what happens in this whole process.
pub fn run_alone(test: impl AsyncFnOnce() -> Result<()>) -> Result<()> {
    let every_turn = u32::try_from(TESTS_AT_ONCE)?;
    runtime().block_on(async {
        let _turns = TURNS.acquire_many(every_turn).await?;
        with_deadline(TEST_TIMEOUT, test()).await
    })
}

/// Waits for a turn, then for the test, with a deadline.
pub(crate) async fn in_turn(test: impl Future<Output = Result<()>>) -> Result<()> {
    in_turn_for(TEST_TIMEOUT, test).await
}

async fn in_turn_for(patience: Duration, test: impl Future<Output = Result<()>>) -> Result<()> {
    let _turn = TURNS.acquire().await?;
    with_deadline(patience, test).await
}

async fn with_deadline(patience: Duration, test: impl Future<Output = Result<()>>) -> Result<()> {
    let mut test = std::pin::pin!(test);
    let (mut left, mut built_for) = (wait::scaled(patience), program::built_for());
    loop {
        if let Ok(outcome) = tokio::time::timeout(left, &mut test).await {
            return outcome;
        }
        // What compiling took is not the test's fault.
        left = program::built_for().saturating_sub(built_for);
        built_for += left;
        ensure!(!left.is_zero(), "the test did not end");
    }
}

/// Runs a test in the node that all tests of this process share.
pub fn in_lab(test: impl AsyncFnOnce(&'static Lab) -> Result<()>) -> Result<()> {
    runtime().block_on(async {
        let lab = SHARED.get_or_try_init(|| Lab::open(LabSettings::new("shared"))).await?;
        in_turn(test(lab)).await
    })
}

/// The addresses of one range.
pub(crate) fn address_pool(range: u8) -> Result<AddressPool> {
    Ok(AddressPool::new(Ipv4Addr::new(10, 210, range, 0), 24)?)
}

/// What a lab is made of.
#[derive(Debug, Clone)]
pub struct LabSettings {
    /// Part of its directory's name.
    pub name: &'static str,
    /// Size of its pool.
    pub pool_bytes: u64,
    /// What its pool begins with, of each template.
    pub contents: Contents,
    /// Templates of the catalogue that are baked besides the suites' own. Their snapshots are found by [`Lab::snapshot_of`].
    pub templates: Vec<TemplateSpec>,
    /// Machine processes and networks kept ready. None by default, so that what is left over can be counted.
    pub kept_ready: usize,
    /// Machine processes kept ready when more are asked for at once.
    pub kept_ready_max: usize,
    /// How long a restored guest may take to confirm its identity.
    pub guest_patience: Duration,
}

impl LabSettings {
    /// With more templates than the suites' own, and room for them.
    pub fn with_templates(name: &'static str, templates: &[TemplateSpec]) -> Self {
        Self { pool_bytes: LARGE_POOL_BYTES, templates: templates.to_vec(), ..Self::new(name) }
    }

    /// The usual ones.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            pool_bytes: BUILD_POOL_BYTES,
            contents: Contents::Everything,
            templates: Vec::new(),
            kept_ready: 0,
            kept_ready_max: 0,
            guest_patience: Duration::from_secs(30),
        }
    }
}

/// A data directory and the node that owns it. Both go when the process ends, in whatever way.
pub struct Lab {
    data_dir: PathBuf,
    config: NodeConfig,
    template: SnapshotId,
    node: Node,
    _range: File,
}

/// A data directory whose node is closed.
pub struct ClosedLab {
    data_dir: PathBuf,
    config: NodeConfig,
    template: SnapshotId,
    range: File,
}

impl Lab {
    /// Makes a data directory with the suites' template in it, and opens a node on it.
    pub async fn open(settings: LabSettings) -> Result<Self> {
        Self::prepare(settings).await?.open().await
    }

    /// Makes a data directory with the suites' template in it.
    pub async fn prepare(settings: LabSettings) -> Result<ClosedLab> {
        let mut baked = vec![Baked::base().await?];
        for spec in &settings.templates {
            baked.push(Baked::of(spec).await?);
        }
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let data_dir = leftovers::make_directory(&format!("{}{number}", settings.name))?;
        let (number, range) = cache::address_range()?;
        let mut config = NodeConfig::new(&data_dir);
        config.pool_size = PoolSize::Bytes(settings.pool_bytes);
        config.addresses = address_pool(number)?;
        config.prestarted_vmms = PrestartedVmms { least: settings.kept_ready, most: settings.kept_ready_max };
        config.prestarted_networks = u32::try_from(settings.kept_ready)?;
        config.guest_patience = wait::scaled(settings.guest_patience);
        // Nobody is there.
        config.name_servers = NameServers::These(vec![NAME_SERVER]);
        let template = baked[0].snapshot().clone();
        tokio::task::block_in_place(|| -> Result<()> {
            let lock = DataDir::lock(&data_dir)?;
            let pool = Pool::open(&lock, &PoolConfig { size: config.pool_size })?;
            baked.iter().try_for_each(|baked| baked.copy_to(pool.path(), settings.contents))
        })?;
        Ok(ClosedLab { data_dir, config, template, range })
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The node's settings.
    pub fn config(&self) -> &NodeConfig {
        &self.config
    }

    /// Where the node keeps its files.
    pub fn pool(&self) -> PathBuf {
        self.data_dir.join("pool")
    }

    /// The directory of a sandbox.
    pub fn sandbox_directory(&self, id: &SandboxId) -> PathBuf {
        self.pool().join("sandboxes").join(id.as_str())
    }

    /// The directory of a snapshot.
    pub fn snapshot_directory(&self, id: &SnapshotId) -> PathBuf {
        self.pool().join("snapshots").join(id.as_str())
    }

    /// The template's snapshot.
    pub fn template(&self) -> &SnapshotId {
        &self.template
    }

    /// The snapshot of a template of the catalogue.
    pub async fn snapshot_of(&self, spec: &TemplateSpec) -> Result<SnapshotId> {
        Ok(self.node.template(spec, &|_| {}).await?)
    }

    /// A new sandbox of the template.
    pub async fn create(&self) -> Result<Guest> {
        self.create_from(&self.template).await
    }

    /// A new sandbox of a snapshot.
    pub async fn create_from(&self, snapshot: &SnapshotId) -> Result<Guest> {
        let request = CreateRequest::new(CreateFrom::Snapshot(snapshot.clone()));
        let (sandbox, _) = self.node.create(request).await.context("create a sandbox")?;
        Ok(Guest::new(sandbox))
    }

    /// Children of a sandbox.
    pub async fn fork(&self, parent: &Guest, count: usize) -> Result<Vec<Guest>> {
        let (children, _) = self.node.fork(parent.sandbox(), count).await.context("fork")?;
        let mut guests = Vec::new();
        for child in children {
            guests.push(Guest::new(child.context("make a child")?));
        }
        Ok(guests)
    }

    /// What is on the host now. Networks that are ready for the next sandbox are not counted.
    pub fn census(&self) -> Result<Census> {
        let mut census = Census::take(&self.data_dir)?;
        census.namespaces = census.namespaces.saturating_sub(self.node.network().stats().ready as usize);
        Ok(census)
    }

    /// What is on the host once each machine has its network and neither a network nor a group is still being put away: what later
    /// counts are compared with. A sleeping or removed sandbox gives them back after the request is answered.
    pub async fn settled_census(&self) -> Result<Census> {
        let mut settled = None;
        for sandbox in self.node().sandboxes() {
            // Whatever is asked waits until the machine of one that has just fallen asleep is gone.
            drop(sandbox.console().await);
        }
        wait::until_async("the host settles", TIDY_TIMEOUT, async || {
            let census = self.census()?;
            let network = self.node().network().stats();
            let is_settled = census.namespaces + census.waiting.len()
                == census.machines + network.resting as usize
                && network.making == 0
                && census.empty_groups == 0;
            settled = is_settled.then_some(census);
            Ok(is_settled)
        })
        .await?;
        settled.context("it did not settle")
    }

    /// Waits until there is exactly what `expected` says.
    pub async fn expect_census(&self, expected: &Census) -> Result<()> {
        let outcome =
            wait::until_async("nothing is left over", TIDY_TIMEOUT, async || Ok(self.census()? == *expected))
                .await;
        let found = self.census()?;
        outcome.with_context(|| format!("expected {expected:?}, found {found:?}"))
    }

    /// Ids of the snapshots that somebody asked to keep.
    pub fn kept_snapshots(&self) -> Vec<SnapshotId> {
        let kept = self.node.snapshots().into_iter().filter(|info| info.about.purpose == SnapshotKind::Kept);
        kept.map(|info| info.id).collect()
    }

    /// Closes the node; its machines go on.
    pub async fn close(self) -> ClosedLab {
        let Self { data_dir, config, template, node, _range: range } = self;
        node.close().await;
        ClosedLab { data_dir, config, template, range }
    }

    /// Removes everything, when nobody uses it any more.
    pub async fn remove(self) -> Result<()> {
        self.close().await.remove()
    }
}

impl ClosedLab {
    /// Opens the node again.
    pub async fn open(self) -> Result<Lab> {
        let engine = engine::engine()?;
        self.open_with(engine).await
    }

    /// Opens the node again, with an engine given.
    pub async fn open_with(self, engine: Arc<dyn Engine>) -> Result<Lab> {
        let Self { data_dir, config, template, range } = self;
        let node = Node::open(config.clone(), move |_| Ok(engine)).await.context("open the node")?;
        Ok(Lab { data_dir, config, template, node, _range: range })
    }

    /// The data directory.
    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The node's settings, to be changed before it is opened.
    pub fn config(&mut self) -> &mut NodeConfig {
        &mut self.config
    }

    /// The template's snapshot.
    pub fn template(&self) -> &SnapshotId {
        &self.template
    }

    /// Removes the data directory and all it owns.
    pub fn remove(self) -> Result<()> {
        tokio::task::block_in_place(|| leftovers::remove(&self.data_dir))
    }
}

/// Bakes the template in a lab whose engine has changed.
pub async fn bake_anew(lab: &Lab) -> Result<SnapshotId> {
    lab.snapshot_of(&template()).await
}
