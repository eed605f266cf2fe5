//! The engine under test: QEMU, with whatever accelerates it on this host, unless another one is demanded.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail};
use async_trait::async_trait;
use domain::EngineFingerprint;
use engines::Settings;
use host::{EngineSetting, Programs};
use machine::{
    AttachError, BootPlan, Engine, HugePages, MemoryOrigin, Place, Prepared, Rates, RestorePlan, StartError,
    Vm, VmRecord,
};

use crate::cache;

/// `qemu-kvm` or `firecracker` where nothing else will do: in a box that is there for trying KVM.
const ENGINE_DEMANDED: &str = "PANDASTACK_TEST_ENGINE";

/// The Firecracker to use.
const FIRECRACKER: &str = "FIRECRACKER_BIN";

static ENGINE: OnceLock<Arc<dyn Engine>> = OnceLock::new();

/// The engine of this host, opened once per process.
pub fn engine() -> Result<Arc<dyn Engine>> {
    if let Some(engine) = ENGINE.get() {
        return Ok(Arc::clone(engine));
    }
    let engine = with_rates(Rates::default())?;
    Ok(Arc::clone(ENGINE.get_or_init(|| engine)))
}

/// The same engine, whose machines have limits.
pub fn with_rates(rates: Rates) -> Result<Arc<dyn Engine>> {
    with(|settings| settings.rates = rates)
}

/// The same engine, whose machines have huge pages; `None` where it has none to give.
pub fn with_huge_pages() -> Result<Option<Arc<dyn Engine>>> {
    match demanded()? {
        EngineSetting::Firecracker => with(|settings| settings.huge_pages = HugePages::TwoMib).map(Some),
        _ => Ok(None),
    }
}

fn with(change: impl FnOnce(&mut Settings)) -> Result<Arc<dyn Engine>> {
    // Several processes must not make the jail's root at once.
    let directory = cache::directory()?;
    let _lock = cache::lock(&directory.join("engine.lock"))?;
    let mut settings = settings(demanded()?, directory.join("host-probe.json"));
    change(&mut settings);
    let opened = settings.open(&directory.join("jails"));
    Ok(opened.context("open the engine under test")?.engine)
}

/// Another engine than the one under test: a real one where this host has two, as the box has, else one that only says so.
pub fn other() -> Result<Arc<dyn Engine>> {
    let (ours, firecracker) = (demanded()?, std::env::var_os(FIRECRACKER).is_some());
    let other = match ours {
        EngineSetting::Firecracker => EngineSetting::QemuKvm,
        EngineSetting::QemuKvm if firecracker => EngineSetting::Firecracker,
        _ => {
            let changed = Upgraded::changed(engine()?, |ours| ours.engine = "firecracker".to_owned());
            return Ok(Arc::new(changed));
        }
    };
    let directory = cache::directory()?;
    let _lock = cache::lock(&directory.join("engine.lock"))?;
    let opened = settings(other, directory.join("host-probe.json")).open(&directory.join("jails"));
    Ok(opened.context("open another engine")?.engine)
}

fn demanded() -> Result<EngineSetting> {
    Ok(match std::env::var(ENGINE_DEMANDED).as_deref() {
        Ok("qemu-kvm") => EngineSetting::QemuKvm,
        Ok("firecracker") => EngineSetting::Firecracker,
        Ok(other) => bail!("{ENGINE_DEMANDED} is {other}, which these suites do not know"),
        Err(_) => EngineSetting::Qemu,
    })
}

fn settings(engine: EngineSetting, probe_cache: PathBuf) -> Settings {
    let firecracker = std::env::var_os(FIRECRACKER).map(PathBuf::from);
    Settings::new(engine, Programs { firecracker, ..Programs::default() }, probe_cache)
}

/// The same engine after an upgrade: it works as before and says that it is another version.
pub struct Upgraded {
    engine: Arc<dyn Engine>,
    fingerprint: EngineFingerprint,
    takes_memory_on_demand: bool,
}

impl Upgraded {
    /// Wraps an engine.
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self::changed(engine, |fingerprint| fingerprint.version.push_str(" upgraded"))
    }

    /// An engine that is changed in another way.
    pub fn changed(engine: Arc<dyn Engine>, change: impl FnOnce(&mut EngineFingerprint)) -> Self {
        let mut fingerprint = engine.fingerprint().clone();
        change(&mut fingerprint);
        let takes_memory_on_demand = engine.takes_memory_on_demand();
        Self { engine, fingerprint, takes_memory_on_demand }
    }

    /// An engine as on a host where memory cannot come on demand.
    pub fn without_memory_on_demand(engine: Arc<dyn Engine>) -> Self {
        Self { takes_memory_on_demand: false, ..Self::changed(engine, |_| {}) }
    }
}

#[async_trait]
impl Engine for Upgraded {
    fn fingerprint(&self) -> &EngineFingerprint {
        &self.fingerprint
    }

    async fn boot(&self, plan: BootPlan) -> Result<Arc<dyn Vm>, StartError> {
        self.engine.boot(plan).await
    }

    async fn prepare(&self, plan: RestorePlan) -> Result<Box<dyn Prepared>, StartError> {
        self.engine.prepare(plan).await
    }

    async fn attach(
        &self,
        record: &VmRecord,
        place: &Place,
        memory: Option<MemoryOrigin>,
    ) -> Result<Arc<dyn Vm>, AttachError> {
        self.engine.attach(record, place, memory).await
    }

    fn takes_memory_on_demand(&self) -> bool {
        self.takes_memory_on_demand
    }

    fn reclaims_free_pages(&self) -> bool {
        self.engine.reclaims_free_pages()
    }
}
