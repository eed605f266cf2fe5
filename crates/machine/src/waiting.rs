//! What engines have in common about a process whose guest has not arrived, and about the memory of one that has.

use std::fs::File;
use std::sync::Arc;

use async_trait::async_trait;
use memory::Captured;
use memory::pages::PageServer;

use crate::engine::{ControlError, MemoryTarget, Prepared, Saved, StartError, Vm, VmRecord};
use crate::output::Output;
use crate::process::VmProcess;

/// A machine process into which saved devices can be loaded.
#[async_trait]
pub(crate) trait Loadable: Vm + 'static {
    fn process(&self) -> &VmProcess;

    /// What the process says, where that is known.
    fn output(&self) -> Option<&Output>;

    /// Loads the devices; the guest is whole and paused afterwards.
    async fn load(&self, devices: File) -> Result<(), ControlError>;
}

/// What it means for a start, with what the process said to its end.
pub(crate) fn explain(error: ControlError, said: Option<&Output>) -> StartError {
    match (error, said) {
        (ControlError::Ended, Some(said)) => StartError::Ended { output: said.tail() },
        (ControlError::HugePages(error), _) => error.into(),
        (error, _) => error.into(),
    }
}

/// Writes what the guest of a process changed over a copy of the memory it was restored from. Blocks.
pub(crate) fn capture_memory(process: &VmProcess, target: &MemoryTarget) -> Result<Saved, ControlError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| ControlError::Capture(error);
    let pid = process.identity().pid;
    let memory = memory::GuestMemory::find(pid, &target.base).map_err(|error| failed(error.into()))?;
    let captured =
        memory::capture(&memory, &target.copy, target.write_out).map_err(|error| failed(error.into()))?;
    Ok(captured.into())
}

/// The same for memory that came on demand: what changed is found by comparing. Blocks.
pub(crate) fn capture_served(
    process: &VmProcess,
    server: &PageServer,
    target: &MemoryTarget,
) -> Result<Saved, ControlError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| ControlError::Capture(error);
    let memory = server.memory(process.identity().pid).map_err(|error| failed(error.into()))?;
    let captured = memory::capture_compared(&memory, &target.base, &target.copy, target.write_out)
        .map_err(|error| failed(error.into()))?;
    Ok(captured.into())
}

impl From<Captured> for Saved {
    fn from(captured: Captured) -> Self {
        Self { written_bytes: captured.bytes, changed: captured.ranges, sums: captured.sums }
    }
}

/// A process whose guest has not arrived.
#[derive(Debug)]
pub(crate) struct Waiting<V: Loadable> {
    /// `None` once the guest has arrived or the process has ended.
    vm: Option<V>,
}

impl<V: Loadable> Waiting<V> {
    pub(crate) fn new(vm: V) -> Self {
        Self { vm: Some(vm) }
    }

    fn vm(&self) -> &V {
        self.vm.as_ref().expect("only `load`, `discard` and `drop` take it, and each consumes the value")
    }
}

impl<V: Loadable> Drop for Waiting<V> {
    fn drop(&mut self) {
        if let Some(vm) = &self.vm {
            vm.process().kill_blocking();
        }
    }
}

#[async_trait]
impl<V: Loadable> Prepared for Waiting<V> {
    fn record(&self) -> VmRecord {
        self.vm().record()
    }

    fn is_alive(&self) -> bool {
        self.vm().process().is_alive()
    }

    async fn load(mut self: Box<Self>, devices: File) -> Result<Arc<dyn Vm>, StartError> {
        let loaded = self.vm().load(devices).await;
        let vm =
            self.vm.take().expect("only `load`, `discard` and `drop` take it, and each consumes the value");
        match loaded {
            Ok(()) => Ok(Arc::new(vm)),
            Err(error) => {
                vm.kill().await;
                Err(explain(error, vm.output()))
            }
        }
    }

    async fn discard(mut self: Box<Self>) {
        self.vm().kill().await;
        self.vm = None;
    }
}
