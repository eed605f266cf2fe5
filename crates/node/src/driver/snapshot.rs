//! Saving an instant of a sandbox that goes on as before.

use std::time::Instant;

use domain::SnapshotId;
use domain::lifecycle::{Phase, Request, Verdict};
use guest_link::client::Flush;
use machine::Saved;
use storage::clone::clone_open_file;
use storage::{Durability, Staged};

use super::Driver;
use crate::error::NodeError;
use crate::hibernation::Image;
use crate::read_ahead;
use crate::restore::milliseconds;
use crate::save::{self, Afterwards, FirstUse, MEMORY_MODE, SaveTimings, Subject, Targets, staged_targets};
use crate::snapshots::{self, Pin, SnapshotKind};
use crate::volumes::{VolumeRead, any_writable};

impl Driver {
    pub(super) async fn console(&self) -> String {
        match &self.running {
            Some(running) => running.vm.console_tail().await,
            None => String::new(),
        }
    }

    pub(super) async fn snapshot(
        &mut self,
        purpose: SnapshotKind,
        id: SnapshotId,
    ) -> Result<(Pin, SaveTimings), NodeError> {
        if self.record.phase.on(Request::Snapshot) == Verdict::Refuse {
            return self.refuse(Request::Snapshot);
        }
        // The volume would go on changing, and memory saved now would one day meet a newer one.
        if any_writable(&self.record.volumes) {
            return Err(NodeError::HasVolumes(self.record.id.clone()));
        }
        let first_use = if purpose == SnapshotKind::Fork { FirstUse::Now } else { FirstUse::Later };
        let staged = self.shared.snapshots.stage()?;
        let targets = staged_targets(&staged, first_use)?;
        let (saved, mut timings, base_sums) = match self.record.phase {
            Phase::Hibernated => {
                let sums = tokio::task::block_in_place(|| self.copy_image(&targets))?;
                (Saved::default(), SaveTimings::default(), Some(sums))
            }
            _ => {
                let (saved, timings) = self.take_instant(&targets, &purpose).await?;
                (saved, timings, self.base_sums())
            }
        };
        let committing = Instant::now();
        let pin =
            tokio::task::block_in_place(|| self.commit(staged, &id, &targets, purpose, &saved, base_sums))?;
        timings.commit_ms = milliseconds(committing);
        Ok((pin, timings))
    }

    async fn take_instant(
        &mut self,
        targets: &Targets,
        purpose: &SnapshotKind,
    ) -> Result<(Saved, SaveTimings), NodeError> {
        let paused = self.record.phase == Phase::Paused;
        if !paused {
            self.link().await?;
        }
        self.bring_base().await?;
        let memory = self.memory_source()?;
        let disk = self.disk();
        let Some(running) = &self.running else { return self.refuse(Request::Snapshot) };
        let subject = Subject {
            vm: &*running.vm,
            link: running.link.as_ref().filter(|_| !paused),
            memory: &memory,
            disk: &disk,
        };
        // A kept snapshot may one day be started from its disk alone, so what the guest has only in memory goes to disk first.
        let flush = if *purpose == SnapshotKind::Kept { Flush::FileSystems } else { Flush::Nothing };
        let afterwards = if paused { Afterwards::StayPaused } else { Afterwards::Resume };
        save::take(&subject, targets, flush, afterwards).await
    }

    /// A hibernated sandbox is its files already.
    fn copy_image(&self, targets: &Targets) -> Result<memory::Checksums, NodeError> {
        let damaged = || NodeError::Damaged { what: "its hibernation image is not there".to_owned() };
        let image = Image::read(&self.directory).ok_or_else(damaged)?;
        image.verify(&self.directory)?;
        let copies = [
            (self.directory.join(&image.memory), Some(&targets.memory), MEMORY_MODE),
            (self.directory.join(&image.devices), Some(&targets.devices), 0o600),
            (self.disk(), targets.disk.as_ref(), 0o600),
        ];
        for (source, target, mode) in copies {
            let Some(target) = target else { continue };
            let source =
                std::fs::File::open(source).map_err(NodeError::host("open the hibernation image"))?;
            clone_open_file(&source, target, mode)?;
        }
        read_ahead::carry(&self.directory.join(&image.memory), &targets.memory);
        image.sums(&self.directory)
    }

    fn commit(
        &self,
        staged: Staged,
        id: &SnapshotId,
        targets: &Targets,
        purpose: SnapshotKind,
        saved: &Saved,
        base_sums: Option<memory::Checksums>,
    ) -> Result<Pin, NodeError> {
        let memory_sums = save::memory_sums(&targets.memory, base_sums, saved)?;
        let origin = self.shared.snapshots.pin_for_recovery(&self.record.origin).ok();
        let disk_sums = match &targets.disk {
            Some(disk) => save::disk_sums(disk, origin.as_ref())?,
            None => return Err(NodeError::Damaged { what: "a snapshot without a disk".to_owned() }),
        };
        save::write_sums(&staged, &memory_sums, &disk_sums)?;
        let durability =
            if purpose == SnapshotKind::Fork { Durability::Unsynced } else { Durability::Synced };
        let mut about =
            snapshots::about(purpose, self.record.template.clone(), self.fingerprint(), self.record.shape);
        about.parent = Some(self.record.origin.clone());
        about.sandbox = Some(self.record.id.clone());
        for attachment in &self.record.volumes {
            let writers = self.shared.volumes.look(&attachment.volume)?.writers;
            let (volume, mount) = (attachment.volume.clone(), attachment.mount.clone());
            about.volumes.push(VolumeRead { volume, writers, mount });
        }
        about.changed_bytes = saved.changed.iter().map(|range| range.end - range.start).sum();
        self.shared.snapshots.commit(staged, id, about, durability)
    }
}
