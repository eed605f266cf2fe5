//! What a sandbox has besides its machine: volumes and a network policy.

use std::time::Duration;

use domain::lifecycle::Phase;
use network::Policy;
use storage::Durability;

use super::Driver;
use crate::error::NodeError;
use crate::volumes::{AttachMode, VolumeAttachment, any_writable};

/// How long a guest that is about to be removed may take to write out what it has in memory for its volumes.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a guest may take to note its name servers.
const RESOLVER_TIMEOUT: Duration = Duration::from_secs(5);

impl Driver {
    /// Written down first, so that it holds whenever the guest runs.
    pub(super) async fn set_network_policy(&mut self, policy: Policy) -> Result<(), NodeError> {
        let mut next = self.record.clone();
        next.network = policy;
        next.write(&self.directory, Durability::Unsynced)
            .map_err(NodeError::host("write down the network policy"))?;
        self.record = next;
        self.publish();
        if let Some(running) = &self.running {
            self.shared.network.set_policy(running.resources.slot, policy).await?;
            self.tell_resolver(policy).await;
        }
        Ok(())
    }

    /// Tells a guest that runs whom to ask for names. One that cannot be told, because it is paused or old, asks as before.
    async fn tell_resolver(&mut self, policy: Policy) {
        let name_servers = &self.shared.config.name_servers;
        let (servers, before) = (name_servers.told_to(policy), name_servers.told_to(Policy::Open));
        let Ok(link) = self.link().await else { return };
        let told = tokio::time::timeout(RESOLVER_TIMEOUT, link.set_resolver(servers.clone(), before)).await;
        match told {
            Ok(Ok(())) => {
                if let Some(running) = &mut self.running {
                    running.resources.told = Some(servers);
                }
            }
            Ok(Err(error)) => {
                tracing::debug!(sandbox.id = %self.record.id, %error, "a guest was not told of its name servers");
            }
            Err(_) => {
                tracing::debug!(sandbox.id = %self.record.id, "a guest was not told of its name servers in time")
            }
        }
    }

    /// A volume that grew while nobody could be told is told now; for one that did not, nothing happens.
    pub(super) async fn tell_volume_sizes(&self) -> Result<(), NodeError> {
        let Some(running) = &self.running else { return Ok(()) };
        for (slot, attachment) in self.record.volumes.iter().enumerate() {
            if attachment.mode == AttachMode::ReadWrite {
                let bytes = self.shared.volumes.look(&attachment.volume)?.bytes;
                running.vm.grow_volume(slot, bytes).await?;
                self.fill_volume(slot, attachment, bytes).await;
            }
        }
        Ok(())
    }

    /// The file system of a volume that this node mounted grows with it. One that does not is as good as it was.
    async fn fill_volume(&self, slot: usize, attachment: &VolumeAttachment, bytes: u64) {
        let link = self.running.as_ref().and_then(|running| running.link.as_ref());
        let (Some(link), Some(_), Ok(slot)) = (link, &attachment.mount, u8::try_from(slot)) else { return };
        if self.record.phase != Phase::Running {
            return;
        }
        let id = &self.record.id;
        match tokio::time::timeout(FLUSH_TIMEOUT, link.grow_volume(slot, bytes)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::info!(sandbox.id = %id, %error, "the file system of a volume did not grow")
            }
            Err(_) => tracing::info!(sandbox.id = %id, "the file system of a volume did not grow in time"),
        }
    }

    /// What a user wrote to a volume and did not flush should be there for the next sandbox, and a file system that was mounted
    /// should look unmounted, so that it can be read without being mended first. A guest that does not answer loses what it had
    /// in memory only, as in a power cut.
    pub(super) async fn seal_volumes(&self) {
        let link = self.running.as_ref().and_then(|running| running.link.as_ref());
        let Some(link) = link.filter(|_| self.record.phase == Phase::Running) else { return };
        if !any_writable(&self.record.volumes) {
            return;
        }
        let id = &self.record.id;
        match tokio::time::timeout(FLUSH_TIMEOUT, link.seal_volumes()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                tracing::warn!(sandbox.id = %id, %error, "sandbox {id} did not flush its volumes");
            }
            Err(_) => tracing::warn!(sandbox.id = %id, "sandbox {id} did not flush its volumes in time"),
        }
    }
}
