//! What a node finds when it starts: sandboxes of an earlier process, whole or half made.
//!
//! Decisions are [`domain::lifecycle::recover`]; this file looks and acts. Processes that no sandbox claims end first, then the
//! network is opened with the slots that running machines hold, then each sandbox gets its driver back.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use domain::lifecycle::{Found, Phase, Recovery, recover};
use machine::{Vm, VmProcess, VmState};
use network::Slot;
use storage::Durability;

use crate::archive;
use crate::driver::{self, Running, reopen};
use crate::error::NodeError;
use crate::hibernation::{self, Image};
use crate::machine_resources::MachineResources;
use crate::node::Shared;
use crate::paths::{Paths, remove_directory};
use crate::record::{MemoryBase, SandboxRecord};
use crate::restore;

/// A sandbox found on disk and what to do about it.
#[derive(Debug)]
pub(crate) struct Finding {
    directory: PathBuf,
    record: SandboxRecord,
    recovery: Recovery,
}

impl Finding {
    pub(crate) fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    pub(crate) fn record(&self) -> &SandboxRecord {
        &self.record
    }

    pub(crate) fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Whether its machine goes on.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.recovery, Recovery::AttachRunning | Recovery::AttachPaused)
    }
}

/// Looks at every sandbox of an earlier process. Directories without a record were never answered for and go.
pub(crate) fn survey(paths: &Paths) -> io::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for entry in fs::read_dir(paths.sandboxes())? {
        let directory = entry?.path();
        match SandboxRecord::read(&directory)? {
            Some(record) => {
                let alive = match &record.vm {
                    Some(vm) => VmProcess::open(vm.process)?.is_some_and(|process| process.is_alive()),
                    None => false,
                };
                let image_whole = Image::read(&directory).is_some();
                let recovery = recover(Found { phase: record.phase, vm_alive: alive, image_whole });
                findings.push(Finding { directory, record, recovery });
            }
            None if directory.join("record.json").exists() => {
                tracing::error!(path = %directory.display(), "a sandbox's record cannot be read; it is left alone");
            }
            None => remove_directory(&directory)?,
        }
    }
    Ok(findings)
}

/// Processes and network slots that running sandboxes hold.
pub(crate) fn claims(findings: &[Finding]) -> (Vec<machine::ProcessIdentity>, Vec<Slot>) {
    let attached = findings
        .iter()
        .filter(|finding| matches!(finding.recovery, Recovery::AttachRunning | Recovery::AttachPaused));
    let processes =
        attached.clone().filter_map(|finding| Some(finding.record.vm.as_ref()?.process)).collect();
    let slots = attached.filter_map(|finding| finding.record.slot).map(Slot::new).collect();
    (processes, slots)
}

/// Acts on a finding: the sandbox has its driver again, or is gone.
pub(crate) async fn act(shared: &Arc<Shared>, finding: Finding) -> Result<(), NodeError> {
    let Finding { directory, mut record, recovery } = finding;
    if recovery != Recovery::Remove {
        shared.volumes.reclaim(&record.id, &record.volumes);
    }
    let id = record.id.clone();
    let (phase, running) = match recovery {
        Recovery::Remove => {
            tracing::info!(sandbox.id = %id, "removing sandbox {id}, which was {:?}", record.phase);
            return remove_directory(&directory).map_err(NodeError::host("remove a half-made sandbox"));
        }
        Recovery::Hibernated => {
            // A wake that got this far did not let the guest run.
            hibernation::withdraw_waking(&directory)
                .map_err(NodeError::host("keep the hibernation image"))?;
            if let Some(image) = Image::read(&directory) {
                record.memory = MemoryBase::Own(image.memory);
            }
            (Phase::Hibernated, None)
        }
        Recovery::Died => {
            if record.died.is_none() {
                record.died = Some("its machine process was gone when the node started".to_owned());
            }
            (Phase::Died, None)
        }
        Recovery::AttachRunning | Recovery::AttachPaused => {
            match attach(shared, &record, recovery == Recovery::AttachRunning).await {
                Ok(running) => match recovery {
                    Recovery::AttachPaused => (Phase::Paused, Some(running)),
                    _ => (Phase::Running, Some(running)),
                },
                Err(error) => {
                    record.died = Some(format!("its machine could not be taken charge of again: {error}"));
                    end_machine(shared, &record).await;
                    (Phase::Died, None)
                }
            }
        }
    };
    record.phase = phase;
    record.generation += 1;
    if running.is_none() {
        record.vm = None;
        record.slot = None;
    }
    record
        .write(&directory, Durability::Unsynced)
        .map_err(NodeError::host("write down the sandbox's state"))?;
    hibernation::remove_unnamed(&directory, record.own_memory())
        .map_err(NodeError::host("remove parts of an interrupted sleep"))?;
    tracing::info!(sandbox.id = %id, "found sandbox {id}: {phase:?}");
    let sandbox = driver::spawn(shared, record, running);
    shared.remember(sandbox);
    Ok(())
}

async fn attach(
    shared: &Arc<Shared>,
    record: &SandboxRecord,
    should_run: bool,
) -> Result<Running, NodeError> {
    let gone = || NodeError::Damaged { what: "its record names no machine".to_owned() };
    let (vm_record, slot) = record.vm.as_ref().zip(record.slot).ok_or_else(gone)?;
    let slot = Slot::new(slot);
    let addresses = shared.network.addresses(slot).ok_or_else(gone)?;
    let directory = shared.paths.sandbox(&record.id);
    let pin = match &record.memory {
        MemoryBase::Snapshot(id) => Some(shared.snapshots.pin_for_recovery(id)?),
        MemoryBase::Own(_) | MemoryBase::Booted(_) => None,
    };
    let place = shared.names.place(&directory, slot);
    let memory = match (&vm_record.on_demand, &record.memory, &pin) {
        (Some(regions), MemoryBase::Snapshot(_), Some(pin)) => {
            Some(archive::memory_again(shared, pin, regions)?)
        }
        (Some(_), MemoryBase::Own(name), _) => Some(restore::own_memory(&directory.join(name))?),
        _ => None,
    };
    let vm = shared.engine.attach(vm_record, &place, memory).await.map_err(|error| match error {
        machine::AttachError::Gone => NodeError::Damaged { what: "its machine process is gone".to_owned() },
        machine::AttachError::Control(error) => error.into(),
    })?;
    let link = if should_run { link_to_running(&*vm).await? } else { None };
    // A node killed while it changed the policy had written it down first.
    if shared.network.policy(slot) != Some(record.network)
        && let Err(error) = shared.network.set_policy(slot, record.network).await
    {
        tracing::warn!(sandbox.id = %record.id, %error, "the network of sandbox {} is not as it should be", record.id);
    }
    let resources = MachineResources { directory, slot, addresses, tap: None, told: None };
    Ok(Running::new(shared, vm, link, resources, pin))
}

/// A node killed in the middle of a save leaves the guest paused: it goes on. One that does not answer stays; the next request
/// tries again.
async fn link_to_running(vm: &dyn Vm) -> Result<Option<guest_link::client::Link>, NodeError> {
    if vm.state().await? == VmState::Paused {
        vm.resume().await?;
    }
    match reopen(vm).await {
        Ok(link) => Ok(Some(link)),
        Err(error) => {
            tracing::warn!(%error, "a running guest does not answer");
            Ok(None)
        }
    }
}

async fn end_machine(shared: &Shared, record: &SandboxRecord) {
    if let Some(vm) = &record.vm
        && let Ok(Some(process)) = VmProcess::open(vm.process)
    {
        process.kill().await;
        if let Err(error) = machine::cgroup::clear(&shared.names.tag) {
            tracing::warn!(%error, "the group of a machine stays until the next start");
        }
    }
    if let Some(slot) = record.slot
        && let Err(error) = shared.network.release(Slot::new(slot)).wait().await
    {
        tracing::warn!(slot, %error, "network slot {slot} could not be given back");
    }
}
