//! The engine under test: QEMU, with whatever accelerates it on this host, unless another one is demanded.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, bail, ensure};
use async_trait::async_trait;
use domain::EngineFingerprint;
use host::{Deadlines, EngineSetting, FirecrackerFound, Freshness, ProbeSettings, Programs};
use machine::firecracker::{FirecrackerConfig, FirecrackerEngine};
use machine::qemu::{Accelerator, QemuConfig, QemuEngine};
use machine::{AttachError, BootPlan, Engine, Place, Prepared, RestorePlan, StartError, Vm, VmRecord};

use crate::cache;

const FIRMWARE: [&str; 2] = ["/usr/share/qemu/qboot.rom", "/usr/local/share/qemu/qboot.rom"];

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
    // Several processes must not make the jail's root at once.
    let directory = cache::directory()?;
    let _lock = cache::lock(&directory.join("engine.lock"))?;
    let engine: Arc<dyn Engine> = match std::env::var(ENGINE_DEMANDED).as_deref() {
        Ok("firecracker") => Arc::new(open_firecracker(&directory)?),
        _ => Arc::new(open_qemu(&directory)?),
    };
    Ok(Arc::clone(ENGINE.get_or_init(|| engine)))
}

fn open_firecracker(directory: &Path) -> Result<FirecrackerEngine> {
    let program = std::env::var_os(FIRECRACKER).with_context(|| format!("{FIRECRACKER} is not set"))?;
    let config = FirecrackerConfig {
        program: program.into(),
        host_cpu: host_cpu()?,
        tsc_khz: host::tsc_khz().khz,
        jail_roots: directory.join("jails"),
    };
    FirecrackerEngine::open(config).context("open the Firecracker engine")
}

fn host_cpu() -> Result<String> {
    let cpu = host::cpu_identity().context("identify the CPU")?;
    Ok(format!("{} {}-{}-{} {}", cpu.model_name, cpu.family, cpu.model, cpu.stepping, cpu.flags_digest))
}

fn open_qemu(directory: &Path) -> Result<QemuEngine> {
    let programs = Programs::default();
    let probed = host::probe(&ProbeSettings {
        programs: programs.clone(),
        cache: Some(directory.join("host-probe.json")),
        freshness: Freshness::UseCache,
        deadlines: Deadlines::default(),
    })
    .context("find a QEMU to probe this host with")?;
    let finding = host::classify(&probed.probe);
    let setting = match std::env::var(ENGINE_DEMANDED).as_deref() {
        Ok("qemu-kvm") => EngineSetting::QemuKvm,
        Ok(other) => bail!("{ENGINE_DEMANDED} is {other}, which these suites do not know"),
        Err(_) => EngineSetting::Auto,
    };
    let choice = host::choose(setting, &finding, Some(&probed.probe), &FirecrackerFound::Missing);
    ensure!(choice.works, "no engine works on this host: {}", choice.reason);
    let accelerator = match choice.engine {
        host::Engine::Qemu { accel: host::Accelerator::Kvm } => Accelerator::Kvm,
        host::Engine::Qemu { accel: host::Accelerator::Tcg } => Accelerator::Tcg,
        host::Engine::Firecracker => bail!("these suites run the QEMU engine"),
    };
    let firmware = FIRMWARE.iter().map(PathBuf::from).find(|path| path.exists());
    let config = QemuConfig {
        program: programs.qemu().context("find qemu-system-x86_64")?,
        firmware: firmware.context("find QEMU's firmware qboot.rom")?,
        accelerator,
        host_cpu: host_cpu()?,
        tsc_khz: host::tsc_khz().khz,
        jail_roots: directory.join("jails"),
    };
    QemuEngine::open(config).context("open the QEMU engine")
}

/// The same engine after an upgrade: it works as before and says that it is another version.
pub struct Upgraded {
    engine: Arc<dyn Engine>,
    fingerprint: EngineFingerprint,
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
        Self { engine, fingerprint }
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

    async fn attach(&self, record: &VmRecord, place: &Place) -> Result<Arc<dyn Vm>, AttachError> {
        self.engine.attach(record, place).await
    }
}
