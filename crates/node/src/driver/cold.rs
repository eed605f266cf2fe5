//! Booting a sandbox from its disk, when its memory is lost or does not fit this host.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use domain::lifecycle::{Phase, Request, Verdict};
use guest_link::client::{Link, Opening};
use guest_link::message::NetworkPast;
use machine::{BootPlan, Vm};
use storage::Durability;

use super::{Driver, Running};
use crate::bake::boot_files;
use crate::error::NodeError;
use crate::hibernation;
use crate::identity::{Who, identity};
use crate::machine_resources::{MachineResources, open_disk};
use crate::record::MemoryBase;
use crate::restore::{find_volumes, mount_volumes, open_network};

/// The memory of a booted machine is written by its process, under its own user id.
const BOOT_MEMORY_MODE: u32 = 0o666;

impl Driver {
    pub(super) async fn start_cold(&mut self) -> Result<(), NodeError> {
        match self.record.phase.on(Request::StartCold) {
            Verdict::Already => return Ok(()),
            Verdict::Refuse => return self.refuse(Request::StartCold),
            Verdict::Go(_) => {}
        }
        let before = self.record.phase;
        let files = boot_files(&self.shared, &image::Silent).await?;
        let shared = Arc::clone(&self.shared);
        let _turn = shared.restore_turn().await?;
        self.forget_network();
        let mut resources = MachineResources::take(&self.shared.network, self.directory.clone()).await?;
        self.record.memory = MemoryBase::Booted(format!("memory.{}", self.record.generation));
        self.enter(Phase::Starting, Durability::Synced)?;
        match self.boot(&files, &mut resources).await {
            Ok((vm, link)) => {
                self.running = Some(Running::new(&self.shared, vm, Some(link), resources, None));
                self.record.died = None;
                self.record.engine = Some(self.shared.engine.fingerprint().clone());
                self.enter(Phase::Running, Durability::Unsynced)
            }
            Err(error) => {
                resources.leave(&self.shared.network).await;
                let reason = format!("it did not start from its disk: {error}");
                tracing::warn!(sandbox.id = %self.record.id, ?before, "{reason}");
                self.machine_ended(reason).await;
                Err(error)
            }
        }
    }

    async fn boot(
        &mut self,
        files: &crate::bake::BootFiles,
        resources: &mut MachineResources,
    ) -> Result<(Arc<dyn Vm>, Link), NodeError> {
        let host = NodeError::host;
        // From here on the disk moves on; memory saved before would not fit it.
        hibernation::retire(&self.directory).map_err(host("retire the hibernation image"))?;
        hibernation::remove_leftovers(&self.directory, None).map_err(host("remove the old memory"))?;
        let name = self.record.own_memory().unwrap_or("memory").to_owned();
        let memory = create_memory(&self.directory.join(name), self.record.shape.memory_bytes())?;
        let plan = BootPlan {
            place: self.shared.names.place(&resources.directory, resources.slot),
            shape: self.record.shape,
            kernel: files.kernel.clone(),
            initramfs: files.initramfs.clone(),
            memory,
            disk: open_disk(&self.disk())?,
            volumes: self.shared.volumes.drives(&self.record.volumes)?,
            tap: resources.tap.take(),
        };
        let vm = self.shared.engine.boot(plan).await?;
        let dns = self.shared.config.name_servers.told_to(self.record.network);
        resources.told = Some(dns.clone());
        let identity = identity(
            self.record.host_name(),
            &self.record.identity_seed,
            Who::Anew,
            resources.addresses,
            NetworkPast::None,
            dns,
        )
        .map_err(host("make an identity"))?;
        let connected = async {
            let link = first_link(&*vm, self.shared.config.boot_patience, Some(identity)).await?;
            let patience = self.shared.config.guest_patience;
            find_volumes(&link, &self.record.volumes, patience).await?;
            mount_volumes(&link, &self.record.volumes, 0, patience).await?;
            open_network(&self.shared, resources.slot, self.record.network).await?;
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
}

/// A sparse file for the memory of a machine that boots.
pub(crate) fn create_memory(path: &std::path::Path, bytes: u64) -> Result<File, NodeError> {
    let host = NodeError::host("make the machine's memory");
    let file = File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(BOOT_MEMORY_MODE)
        .open(path)
        .map_err(host)?;
    file.set_len(bytes).map_err(host)?;
    // The mode above was subject to the process's umask.
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(BOOT_MEMORY_MODE)).map_err(host)?;
    Ok(file)
}

/// Waits until a booting guest answers; its console tells why when it does not.
pub(crate) async fn first_link(
    vm: &dyn Vm,
    patience: std::time::Duration,
    identity: Option<guest_link::message::Identity>,
) -> Result<Link, NodeError> {
    let opening = async {
        let stream = vm.connect_link().await?;
        let (link, _) =
            Link::open(stream, Opening::Clean, identity).await.map_err(NodeError::guest("boot"))?;
        Ok::<_, NodeError>(link)
    };
    let outcome = tokio::select! {
        opened = tokio::time::timeout(patience, opening) => {
            opened.unwrap_or(Err(NodeError::GuestSilent { what: "boot", seconds: patience.as_secs() }))
        }
        exit = vm.exited() => {
            tracing::warn!(reason = %exit.reason, "the machine ended while its guest booted");
            Err(machine::ControlError::Ended.into())
        }
    };
    if outcome.is_ok() {
        vm.deprioritize();
    } else {
        let console = vm.console_tail().await;
        tracing::warn!(%console, "a guest did not boot");
    }
    outcome
}
