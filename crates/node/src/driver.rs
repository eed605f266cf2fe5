//! One task per sandbox owns it: requests are taken one at a time, each decided by the rules in [`domain::lifecycle`], written
//! down, then done. Everyone else sees the sandbox's state on a watch channel and talks to its guest over the link published
//! there.

use std::future::pending;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::lifecycle::{Phase, Request, Verdict};
use domain::{EngineFingerprint, SandboxId, SnapshotId};
use guest_link::client::{Flush, Link, LinkError, Opening};
use machine::{Exit, Vm};
use network::Policy;
use storage::Durability;
use tokio::sync::{mpsc, oneshot, watch};

use crate::archive;
use crate::error::NodeError;
use crate::hibernation;
use crate::machine_resources::{MachineResources, Resting};
use crate::meter::Meter;
use crate::node::Shared;
use crate::paths::remove_directory;
use crate::record::{MemoryBase, SandboxRecord};
use crate::restore::RestoreTimings;
use crate::save::{MemorySource, SaveTimings, silence};
use crate::snapshots::{DISK, Pin, SnapshotKind};

pub(crate) mod cold;
mod ending;
mod relink;
mod settings;
mod sleep;
mod snapshot;

pub(crate) use ending::DEATH_TIMEOUT;
use relink::Relink;

/// Requests waiting for one sandbox; more are refused by making the caller wait.
const QUEUE_LENGTH: usize = 32;
/// How long a guest may take to answer a new connection to a machine that was already running.
const RELINK_TIMEOUT: Duration = Duration::from_secs(10);
/// A handle on a sandbox. Cheap to clone; the sandbox does not end with it.
#[derive(Debug, Clone)]
pub struct Sandbox {
    id: SandboxId,
    requests: mpsc::Sender<Message>,
    state: watch::Receiver<SandboxState>,
}

/// What a sandbox is doing.
#[derive(Debug, Clone)]
pub struct SandboxState {
    /// What is written down about it.
    pub record: Arc<SandboxRecord>,
    /// The way to its guest, while that is up.
    pub link: Option<Link>,
    /// Who can be asked what its machine counted, while it has one.
    pub(crate) meter: Option<Arc<Meter>>,
}

pub(crate) type Reply<T> = oneshot::Sender<Result<T, NodeError>>;

/// What a driver is asked.
#[derive(Debug)]
pub(crate) enum Message {
    Pause(Reply<()>),
    Resume(Reply<()>),
    Hibernate(Reply<SaveTimings>),
    Wake(Reply<RestoreTimings>),
    StartCold(Reply<()>),
    Delete(Reply<()>),
    Snapshot(SnapshotKind, SnapshotId, Reply<(Pin, SaveTimings)>),
    Console(Reply<String>),
    Link(Reply<Link>),
    SetNetworkPolicy(Policy, Reply<()>),
    TellVolumeSizes(Reply<()>),
}

impl Sandbox {
    /// Its id.
    pub fn id(&self) -> &SandboxId {
        &self.id
    }

    /// What it is doing now.
    pub fn state(&self) -> SandboxState {
        self.state.borrow().clone()
    }

    /// Follows what it is doing.
    pub fn watch(&self) -> watch::Receiver<SandboxState> {
        self.state.clone()
    }

    /// The way to its guest. Waits for an operation that is under way; fails when the guest cannot be reached.
    pub async fn link(&self) -> Result<Link, NodeError> {
        if let Some(link) = self.state.borrow().link.clone().filter(|link| !link.is_closed()) {
            return Ok(link);
        }
        self.ask(Message::Link).await
    }

    /// Stops the guest's CPUs.
    pub async fn pause(&self) -> Result<(), NodeError> {
        self.ask(Message::Pause).await
    }

    /// Lets a paused guest go on.
    pub async fn resume(&self) -> Result<(), NodeError> {
        self.ask(Message::Resume).await
    }

    /// Saves its memory and ends its machine.
    pub async fn hibernate(&self) -> Result<SaveTimings, NodeError> {
        self.ask(Message::Hibernate).await
    }

    /// Brings it back from hibernation, or from a pause. Says where the time went, which is nowhere if nothing was restored.
    pub async fn wake(&self) -> Result<RestoreTimings, NodeError> {
        self.ask(Message::Wake).await
    }

    /// Boots it from its disk: its memory is lost, its files are not.
    pub async fn start_cold(&self) -> Result<(), NodeError> {
        self.ask(Message::StartCold).await
    }

    /// Removes it and everything it has.
    pub async fn delete(&self) -> Result<(), NodeError> {
        match self.ask(Message::Delete).await {
            // The driver of a sandbox that is gone is gone too.
            Err(NodeError::NoSandbox(_)) => Ok(()),
            other => other,
        }
    }

    pub(crate) async fn set_network_policy(&self, policy: Policy) -> Result<(), NodeError> {
        self.ask(|reply| Message::SetNetworkPolicy(policy, reply)).await
    }

    /// Makes its guest see how large its volumes are, if it has a machine.
    pub(crate) async fn tell_volume_sizes(&self) -> Result<(), NodeError> {
        self.ask(Message::TellVolumeSizes).await
    }

    /// What its guest wrote to its console since this was last asked, as far as it is still held. Empty when it has no machine.
    pub async fn console(&self) -> Result<String, NodeError> {
        self.ask(Message::Console).await
    }

    pub(crate) async fn save(
        &self,
        purpose: SnapshotKind,
        id: SnapshotId,
    ) -> Result<(Pin, SaveTimings), NodeError> {
        self.ask(|reply| Message::Snapshot(purpose, id, reply)).await
    }

    async fn ask<T>(&self, message: impl FnOnce(Reply<T>) -> Message) -> Result<T, NodeError> {
        let gone = || NodeError::NoSandbox(self.id.clone());
        let (reply, answer) = oneshot::channel();
        self.requests.send(message(reply)).await.map_err(|_| gone())?;
        answer.await.map_err(|_| gone())?
    }
}

/// A machine in its place, as a driver holds it.
pub(crate) struct Running {
    pub(crate) vm: Arc<dyn Vm>,
    /// `None` while the guest does not answer, or is paused since before this process started.
    pub(crate) link: Option<Link>,
    pub(crate) resources: MachineResources,
    /// Keeps the snapshot in place whose memory the machine maps.
    pub(crate) pin: Option<Pin>,
    meter: Arc<Meter>,
}

impl Running {
    pub(crate) fn new(
        shared: &Shared,
        vm: Arc<dyn Vm>,
        link: Option<Link>,
        resources: MachineResources,
        pin: Option<Pin>,
    ) -> Self {
        let meter = Meter::new(&vm, &shared.total);
        Self { vm, link, resources, pin, meter }
    }
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    directory: PathBuf,
    record: SandboxRecord,
    running: Option<Running>,
    /// A machine that is not needed any more: the sandbox has fallen asleep.
    asleep: Option<Running>,
    /// The network it had before it fell asleep, as long as it sleeps.
    resting: Option<Resting>,
    state: watch::Sender<SandboxState>,
    relink: Relink,
}

/// Starts the task that owns a sandbox from here on.
pub(crate) fn spawn(shared: &Arc<Shared>, record: SandboxRecord, running: Option<Running>) -> Sandbox {
    let (requests, queue) = mpsc::channel(QUEUE_LENGTH);
    let link = running.as_ref().and_then(|running| running.link.clone());
    let meter = running.as_ref().map(|running| Arc::clone(&running.meter));
    let (state, watcher) = watch::channel(SandboxState { record: Arc::new(record.clone()), link, meter });
    let id = record.id.clone();
    let directory = shared.paths.sandbox(&id);
    let (shared_by_all, relink) = (Arc::clone(shared), Relink::new());
    let driver = Driver {
        shared: shared_by_all,
        directory,
        record,
        running,
        asleep: None,
        resting: None,
        state,
        relink,
    };
    shared.tasks.spawn(driver.run(queue));
    Sandbox { id, requests, state: watcher }
}

async fn exited(running: Option<&Running>) -> Exit {
    match running {
        Some(running) => running.vm.exited().await,
        None => pending().await,
    }
}

async fn link_lost(running: Option<&Running>) -> LinkError {
    match running.and_then(|running| running.link.as_ref()) {
        Some(link) => link.closed().await,
        None => pending().await,
    }
}

impl Driver {
    async fn run(mut self, mut queue: mpsc::Receiver<Message>) {
        let closing = self.shared.closing.clone();
        loop {
            tokio::select! {
                biased;
                () = closing.cancelled() => return,
                exit = exited(self.running.as_ref()) => self.machine_ended(exit.reason).await,
                error = link_lost(self.running.as_ref()) => self.note_lost_link(error).await,
                message = queue.recv() => match message {
                    None => return,
                    Some(Message::Delete(reply)) => {
                        let outcome = self.delete().await;
                        let deleted = outcome.is_ok();
                        answer(reply, outcome);
                        if deleted {
                            return;
                        }
                    }
                    Some(message) => self.handle(message).await,
                },
                () = self.relink.wait() => self.relink().await,
            }
        }
    }

    async fn handle(&mut self, message: Message) {
        match message {
            Message::Pause(reply) => {
                let outcome = self.pause().await;
                answer(reply, self.or_death(outcome).await);
            }
            Message::Resume(reply) => {
                let outcome = self.resume().await;
                answer(reply, self.or_death(outcome).await);
            }
            Message::Hibernate(reply) => {
                let outcome = self.hibernate().await;
                answer(reply, self.or_death(outcome).await);
                // The sandbox sleeps from the moment its image is whole. Whoever asked need not wait for what is left to do, but
                // whatever is asked next does.
                self.end_asleep().await;
            }
            Message::Wake(reply) => answer(reply, self.wake().await),
            Message::StartCold(reply) => answer(reply, self.start_cold().await),
            Message::Snapshot(purpose, id, reply) => {
                let outcome = self.snapshot(purpose, id).await;
                answer(reply, self.or_death(outcome).await);
                // Nobody may be left to want what was saved.
                self.shared.snapshots.collect();
            }
            Message::Link(reply) => {
                let outcome = self.link().await;
                answer(reply, self.or_death(outcome).await);
            }
            Message::Console(reply) => answer(reply, Ok(self.console().await)),
            Message::SetNetworkPolicy(policy, reply) => answer(reply, self.set_network_policy(policy).await),
            Message::TellVolumeSizes(reply) => answer(reply, self.tell_volume_sizes().await),
            Message::Delete(reply) => answer(reply, self.delete().await),
        }
        self.notice_death().await;
    }

    fn refuse<T>(&self, request: Request) -> Result<T, NodeError> {
        let id = self.record.id.clone();
        match (&self.record.died, self.record.phase) {
            (Some(reason), Phase::Died) => Err(NodeError::Died { id, reason: reason.clone() }),
            (_, phase) => Err(NodeError::Refused { id, phase, request }),
        }
    }

    /// What a saved state of the machine fits: the engine that the machine was started with, which need not be the one that this node
    /// starts machines with.
    fn fingerprint(&self) -> EngineFingerprint {
        self.record.engine.clone().unwrap_or_else(|| self.shared.engine.fingerprint().clone())
    }

    /// Writes down a phase, and only then lets everyone see it.
    fn enter(&mut self, phase: Phase, durability: Durability) -> Result<(), NodeError> {
        let mut next = self.record.clone();
        next.phase = phase;
        next.generation += 1;
        next.slot = self.running.as_ref().map(|running| running.resources.slot.get());
        next.vm = self.running.as_ref().map(|running| running.vm.record());
        next.write(&self.directory, durability).map_err(NodeError::host("write down the sandbox's state"))?;
        self.record = next;
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        let link = match self.record.phase {
            Phase::Running => self.running.as_ref().and_then(|running| running.link.clone()),
            _ => None,
        };
        let meter = self.running.as_ref().map(|running| Arc::clone(&running.meter));
        self.state.send_replace(SandboxState { record: Arc::new(self.record.clone()), link, meter });
    }

    async fn pause(&mut self) -> Result<(), NodeError> {
        match self.record.phase.on(Request::Pause) {
            Verdict::Already => return Ok(()),
            Verdict::Refuse => return self.refuse(Request::Pause),
            Verdict::Go(_) => {}
        }
        self.link().await?;
        let Some(running) = &self.running else { return self.refuse(Request::Pause) };
        let Some(link) = &running.link else { return self.refuse(Request::Pause) };
        silence(link, Flush::Nothing).await?;
        if let Err(error) = running.vm.pause().await {
            link.resume();
            return Err(error.into());
        }
        self.enter(Phase::Paused, Durability::Unsynced)
    }

    async fn resume(&mut self) -> Result<(), NodeError> {
        match self.record.phase.on(Request::Resume) {
            Verdict::Already => return Ok(()),
            Verdict::Refuse => return self.refuse(Request::Resume),
            Verdict::Go(_) => {}
        }
        let Some(running) = &self.running else { return self.refuse(Request::Resume) };
        running.vm.resume().await?;
        if let Some(link) = &running.link {
            link.resume();
        }
        self.enter(Phase::Running, Durability::Unsynced)
    }

    async fn delete(&mut self) -> Result<(), NodeError> {
        if self.record.phase.on(Request::Delete) == Verdict::Refuse {
            return self.refuse(Request::Delete);
        }
        self.seal_volumes().await;
        self.enter(Phase::Deleting, Durability::Synced)?;
        if let Some(running) = self.running.take() {
            running.meter.ask_last().await;
            running.vm.kill().await;
            self.give_up(running).await;
            // Whoever still looks at it holds nothing of the machine.
            self.publish();
        }
        self.forget_network();
        remove_directory(&self.directory).map_err(NodeError::host("remove the sandbox's files"))?;
        self.shared.volumes.release(&self.record.id, &self.record.volumes);
        self.shared.forget(&self.record.id);
        Ok(())
    }

    /// The link, opened anew if it is not up.
    async fn link(&mut self) -> Result<Link, NodeError> {
        let phase = self.record.phase;
        let Some(running) = &mut self.running else { return self.refuse(Request::Resume) };
        if phase != Phase::Running {
            return self.refuse(Request::Resume);
        }
        if let Some(link) = running.link.as_ref().filter(|link| !link.is_closed()) {
            return Ok(link.clone());
        }
        let link = reopen(&*running.vm).await?;
        running.link = Some(link.clone());
        self.publish();
        Ok(link)
    }

    async fn note_lost_link(&mut self, error: LinkError) {
        let id = self.record.id.clone();
        // A machine that ends closes its link on the way.
        self.notice_death().await;
        let Some(running) = &mut self.running else { return };
        running.link = None;
        if self.relink.lost() {
            tracing::warn!(sandbox.id = %id, %error, "lost the link to sandbox {id}");
        }
        self.publish();
    }

    async fn relink(&mut self) {
        self.relink.done();
        if self.record.phase == Phase::Running
            && self.running.is_some()
            && let Err(error) = self.link().await
        {
            let id = &self.record.id;
            tracing::debug!(sandbox.id = %id, %error, "the guest of sandbox {id} does not answer; the next request tries again");
        }
    }

    /// A machine whose memory comes from the archive is saved over all of that memory, so it must be here.
    async fn bring_base(&mut self) -> Result<(), NodeError> {
        let pin = self.running.as_mut().and_then(|running| running.pin.as_mut());
        if let Some(pin) = pin.filter(|pin| pin.is_elsewhere()) {
            *pin = archive::land(&self.shared, pin).await?;
        }
        Ok(())
    }

    fn memory_source(&self) -> Result<MemorySource, NodeError> {
        Ok(match &self.record.memory {
            MemoryBase::Snapshot(_) => {
                let pin = self.running.as_ref().and_then(|running| running.pin.as_ref());
                let pin = pin.ok_or_else(|| NodeError::NoSnapshot(self.record.origin.clone()))?;
                MemorySource::Private { base: pin.path(crate::snapshots::MEMORY)? }
            }
            MemoryBase::Own(name) => MemorySource::Private { base: self.directory.join(name) },
            MemoryBase::Booted(name) => MemorySource::Shared { file: self.directory.join(name) },
        })
    }

    fn base_sums(&self) -> Option<memory::Checksums> {
        match &self.record.memory {
            MemoryBase::Snapshot(_) => {
                self.running.as_ref()?.pin.as_ref()?.sums(crate::snapshots::MEMORY_SUMS)
            }
            MemoryBase::Own(name) => hibernation::read_sums(&self.directory, name).ok(),
            MemoryBase::Booted(_) => None,
        }
    }

    fn disk(&self) -> PathBuf {
        disk_of(&self.directory)
    }
}

fn disk_of(directory: &Path) -> PathBuf {
    directory.join(DISK)
}

/// Opens the link of a machine that may have been talked to before.
pub(crate) async fn reopen(vm: &dyn Vm) -> Result<Link, NodeError> {
    let opening = async {
        let stream = vm.connect_link().await?;
        let (link, _) =
            Link::open(stream, Opening::Reattach, None).await.map_err(NodeError::guest("answer"))?;
        Ok(link)
    };
    let silent = NodeError::GuestSilent { what: "answer", seconds: RELINK_TIMEOUT.as_secs() };
    tokio::time::timeout(RELINK_TIMEOUT, opening).await.unwrap_or(Err(silent))
}

fn answer<T>(reply: Reply<T>, outcome: Result<T, NodeError>) {
    // A caller that went away has its answer in the sandbox's state.
    drop(reply.send(outcome));
}
