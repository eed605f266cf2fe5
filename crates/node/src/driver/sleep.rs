//! Putting a sandbox to sleep and waking it.

use std::fs::File;
use std::sync::Arc;
use std::time::Instant;

use domain::lifecycle::{Phase, Request, Verdict};
use guest_link::client::Flush;
use guest_link::message::{Identity, NetworkPast};
use storage::Durability;
use tracing::info_span;

use super::{Driver, Running};
use crate::error::NodeError;
use crate::hibernation::{self, Image};
use crate::identity::{Who, identity};
use crate::machine_resources::MachineResources;
use crate::read_ahead;
use crate::record::MemoryBase;
use crate::restore::{self, LiveMachine, RestoreTimings, milliseconds};
use crate::save::{self, Afterwards, FirstUse, SaveTimings, Subject, Targets};
use crate::step::Step;

impl Driver {
    pub(super) async fn hibernate(&mut self) -> Result<SaveTimings, NodeError> {
        let before = self.record.phase;
        match before.on(Request::Hibernate) {
            Verdict::Already => return Ok(SaveTimings::default()),
            Verdict::Refuse => return self.refuse(Request::Hibernate),
            Verdict::Go(_) => {}
        }
        if before == Phase::Running {
            self.link().await?;
        }
        self.enter(Phase::Hibernating, Durability::Unsynced)?;
        match self.save_image(before).await {
            Ok((image, timings)) => {
                self.fall_asleep(image);
                Ok(timings)
            }
            Err(error) => {
                let keep = self.record.own_memory().map(str::to_owned);
                if let Err(error) = hibernation::remove_leftovers(&self.directory, keep.as_deref()) {
                    tracing::warn!(sandbox.id = %self.record.id, %error, "parts of a failed hibernation stay on disk");
                }
                self.enter(before, Durability::Unsynced)?;
                Err(error)
            }
        }
    }

    async fn save_image(&mut self, before: Phase) -> Result<(Image, SaveTimings), NodeError> {
        self.bring_base().await?;
        let memory = self.memory_source()?;
        let names = Image::names(self.record.generation);
        let targets = Targets {
            memory: self.directory.join(&names.0),
            devices: self.directory.join(&names.1),
            disk: None,
            first_use: FirstUse::Later,
        };
        let disk = self.disk();
        let paused = before == Phase::Paused;
        let Some(running) = &self.running else { return self.refuse(Request::Hibernate) };
        let subject = Subject {
            vm: &*running.vm,
            link: running.link.as_ref().filter(|_| !paused),
            memory: &memory,
            disk: &disk,
        };
        // Nothing goes on before all of it is on the disk.
        let _early = self.shared.pool.write_early();
        let (saved, mut timings) =
            save::take(&subject, &targets, Flush::FileSystems, Afterwards::StayPaused).await?;
        let fingerprint = self.fingerprint();
        let committing = Instant::now();
        let committed = tokio::task::block_in_place(|| {
            // Memory that is on the disk must not meet a volume that was not yet.
            self.shared.volumes.sync(&self.record.volumes)?;
            Image::commit(&self.directory, names, fingerprint, || {
                save::memory_sums(&targets.memory, self.base_sums(), &saved)
            })
        });
        timings.commit_ms = milliseconds(committing);
        match committed {
            Ok(image) => Ok((image, timings)),
            Err(error) => {
                if !paused {
                    running.vm.resume().await?;
                    if let Some(link) = &running.link {
                        link.resume();
                    }
                }
                Err(error)
            }
        }
    }

    /// The image is whole: from here on it, and not the machine, is the sandbox, whether that can be written down or not. A
    /// record that still says `Hibernating` beside a whole image means the same.
    fn fall_asleep(&mut self, image: Image) {
        let running = self.running.take();
        self.record.memory = MemoryBase::Own(image.memory);
        // Need not be synced: `Hibernating` beside a whole image says the same.
        if let Err(error) = self.enter(Phase::Hibernated, Durability::Unsynced) {
            tracing::warn!(sandbox.id = %self.record.id, %error, "the sleep of sandbox {} could not be written down", self.record.id);
            self.record.phase = Phase::Hibernated;
            self.publish();
        }
        if let Some(running) = &running {
            self.shared.network.leave_soon(running.resources.slot);
        }
        self.asleep = running;
        let keep = self.record.own_memory().map(str::to_owned);
        if let Err(error) = hibernation::remove_unnamed(&self.directory, keep.as_deref()) {
            tracing::warn!(sandbox.id = %self.record.id, %error, "old memory of sandbox {} stays", self.record.id);
        }
    }

    /// Where the time went, unless there was nothing to restore.
    pub(super) async fn wake(&mut self) -> Result<RestoreTimings, NodeError> {
        match self.record.phase.on(Request::Wake) {
            Verdict::Already => return Ok(RestoreTimings::default()),
            Verdict::Refuse => return self.refuse(Request::Wake),
            Verdict::Go(Phase::Running) => {
                self.resume().await?;
                return Ok(RestoreTimings::default());
            }
            Verdict::Go(_) => {}
        }
        let prepare = Step::begin(info_span!("machine.prepare", otel.kind = "internal"));
        let damaged = || NodeError::Damaged { what: "its hibernation image is not there".to_owned() };
        let image = Image::read(&self.directory).ok_or_else(damaged)?;
        image.fingerprint.fits(self.shared.engine.fingerprint())?;
        read_ahead::begin(self.directory.join(&image.memory));
        tokio::task::block_in_place(|| image.verify(&self.directory))?;
        let shared = Arc::clone(&self.shared);
        let _turn = shared.restore_turn().await?;
        self.enter(Phase::Waking, Durability::Unsynced)?;
        let again = self.resting.take().and_then(|resting| {
            MachineResources::take_again(&self.shared.network, self.directory.clone(), resting)
        });
        let taken = match again {
            Some(resources) => Ok(resources),
            None => MachineResources::take(&self.shared.network, self.directory.clone()).await,
        };
        let resources = match taken {
            Ok(resources) => resources,
            Err(error) => {
                self.enter(Phase::Hibernated, Durability::Unsynced)?;
                return Err(error);
            }
        };
        self.wake_in(image, resources, prepare).await
    }

    async fn wake_in(
        &mut self,
        image: Image,
        mut resources: MachineResources,
        prepare: Step,
    ) -> Result<RestoreTimings, NodeError> {
        let mut timings = RestoreTimings::default();
        let dns = self.shared.config.name_servers.told_to(self.record.network);
        let knows = resources.told.as_ref() == Some(&dns);
        resources.told = Some(dns.clone());
        let made = identity(
            self.record.host_name(),
            &self.record.identity_seed,
            Who::Same,
            resources.addresses,
            NetworkPast::Possible,
            dns,
        );
        let identity = match made {
            // A guest that finds its network again has nothing to change.
            Ok(identity) if knows => Identity { network: None, ..identity },
            Ok(identity) => identity,
            Err(error) => {
                resources.leave(&self.shared.network).await;
                self.enter(Phase::Hibernated, Durability::Unsynced)?;
                return Err(NodeError::host("make an identity")(error));
            }
        };
        let loaded = match self.load_image(&image, &mut resources, prepare, &mut timings).await {
            Ok(vm) => match self.use_up_image(&*vm, &resources) {
                Ok(()) => Ok(vm),
                Err(error) => {
                    vm.kill().await;
                    Err(error)
                }
            },
            Err(error) => Err(error),
        };
        let vm = match loaded {
            Ok(vm) => vm,
            Err(error) => {
                // The guest has not run: the image is as good as before.
                resources.leave(&self.shared.network).await;
                hibernation::withdraw_waking(&self.directory)
                    .map_err(NodeError::host("keep the hibernation image"))?;
                self.enter(Phase::Hibernated, Durability::Unsynced)?;
                return Err(error);
            }
        };
        let confirm = Step::begin(info_span!("machine.confirm", otel.kind = "internal"));
        let patience = self.shared.config.guest_patience;
        match restore::resume_and_confirm(vm, &self.record.id, identity, patience).await {
            Ok(LiveMachine { vm, link }) => {
                timings.confirm_ms = confirm.end_ms();
                let slot = resources.slot;
                self.running = Some(Running::new(&self.shared, vm, Some(link), resources, None));
                self.record.memory = MemoryBase::Own(image.memory);
                self.enter(Phase::Running, Durability::Unsynced)?;
                hibernation::remove_leftovers(&self.directory, self.record.own_memory())
                    .map_err(NodeError::host("remove the used hibernation image"))?;
                self.tell_volume_sizes().await?;
                restore::open_network(&self.shared, slot, self.record.network).await?;
                Ok(timings)
            }
            Err(error) => {
                resources.leave(&self.shared.network).await;
                self.machine_ended(format!("it did not wake: {error}")).await;
                Err(error)
            }
        }
    }

    /// Writes down which machine it is now, and ends the validity of the image: the guest is about to run.
    fn use_up_image(&mut self, vm: &dyn machine::Vm, resources: &MachineResources) -> Result<(), NodeError> {
        let mut next = self.record.clone();
        next.vm = Some(vm.record());
        next.engine = Some(self.shared.engine.fingerprint().clone());
        next.slot = Some(resources.slot.get());
        next.write(&self.directory, Durability::Unsynced)
            .map_err(NodeError::host("write down the machine"))?;
        hibernation::retire(&self.directory).map_err(NodeError::host("retire the hibernation image"))?;
        self.record = next;
        Ok(())
    }

    async fn load_image(
        &self,
        image: &Image,
        resources: &mut MachineResources,
        prepare: Step,
        timings: &mut RestoreTimings,
    ) -> Result<Arc<dyn machine::Vm>, NodeError> {
        let directory = self.directory.clone();
        let noted = tokio::task::spawn_blocking(move || hibernation::note_waking(&directory));
        let memory = self.directory.join(&image.memory);
        let (engine, names) = (&*self.shared.engine, &self.shared.names);
        let prepared = async {
            let volumes = self.shared.volumes.drives(&self.record.volumes)?;
            restore::prepare_own(engine, names, resources, self.record.shape, &memory, volumes).await
        };
        let prepared = prepared.await;
        let noted = noted.await.unwrap_or_else(|error| Err(std::io::Error::other(error)));
        let prepared = prepared?;
        if let Err(error) = noted {
            prepared.discard().await;
            return Err(NodeError::host("note the waking")(error));
        }
        timings.prepare_ms = prepare.end_ms();
        let load = Step::begin(info_span!("machine.load", otel.kind = "internal"));
        let devices =
            File::open(self.directory.join(&image.devices)).map_err(NodeError::host("open the devices"))?;
        let vm = prepared.load(devices).await?;
        timings.load_ms = load.end_ms();
        Ok(vm)
    }
}
