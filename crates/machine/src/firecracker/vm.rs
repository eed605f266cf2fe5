//! One Firecracker process and what can be done to it.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use domain::MachineShape;
use memory::pages::Trace;
use serde_json::{Value, json};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::api::{Api, Method};
use super::counters::Counting;
use super::link::{self, Life};
use super::log;
use super::machine::{self, ROOT, WRITABLE, drive_path};
use super::on_demand;
use super::rates::RatedDevices;
use super::room::{self, Room};
use crate::counters::Counters;
use crate::engine::{
    AttachError, ControlError, Exit, LazyMemory, MemoryOrigin, Place, SaveTarget, Saved, StartError, Vm,
    VmRecord, VmState,
};
use crate::huge_pages::{HugePages, Promise, Promises};
use crate::on_demand::{Pages, capture, exited};
use crate::output::Output;
use crate::process::VmProcess;
use crate::rates::Rates;
use crate::waiting::{Loadable, explain};

/// How long a fresh Firecracker may take to listen; generous, because many may start at once on few cores.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between looks at whether it listens, which takes a few milliseconds.
const START_POLL: Duration = Duration::from_micros(500);
/// How long loading or saving may take: a booted machine's whole memory is written.
const STATE_TIMEOUT: Duration = Duration::from_secs(120);
/// What Firecracker says when it has written the devices and cannot write the memory.
const MEMORY_REFUSED: &str = "memory backing file";

/// A Firecracker, with or without a guest in it.
#[derive(Debug)]
pub(super) struct FirecrackerVm {
    process: VmProcess,
    api: Api,
    room: Arc<Room>,
    /// Where its memory comes from, if that comes on demand.
    pages: Option<Pages>,
    rates: Rates,
    rated: RatedDevices,
    /// What its memory is taken from when a guest comes, if that is in huge pages.
    huge_pages: Option<(Promises, MachineShape)>,
    promise: OnceLock<Promise>,
    /// It was started with other pages than machines are now: what is saved of it would fit nobody.
    has_other_pages: bool,
    life: watch::Sender<Life>,
    /// Whoever carries bytes of the guest link; they end with this value.
    carriers: Mutex<JoinSet<()>>,
    /// What the process and the guest's console say, where that could be found.
    output: Option<Arc<Output>>,
    /// What it has counted, where it says so.
    counting: Option<Arc<Counting>>,
    /// Whoever listens to all of that and to the log.
    _listeners: JoinSet<()>,
}

/// Connects to a Firecracker just started; ends it when that fails.
pub(super) async fn control_new(
    process: VmProcess,
    output: Output,
    memory: Option<LazyMemory>,
    place: &Place,
    (rates, rated): (Rates, RatedDevices),
) -> Result<FirecrackerVm, StartError> {
    let connecting = async {
        loop {
            if let Ok(room) = Room::open(process.identity().pid)
                && room.connect(room::CONTROL_SOCKET).await.is_ok()
            {
                return room;
            }
            tokio::time::sleep(START_POLL).await;
        }
    };
    let connected = tokio::select! {
        connected = tokio::time::timeout(START_TIMEOUT, connecting) => connected.map_err(|_| {
            ControlError::Unresponsive { command: "listen", seconds: START_TIMEOUT.as_secs() }
        }),
        _ = process.ended() => Err(ControlError::Ended),
    };
    match connected {
        Ok(room) => {
            let pages = memory.map(Pages::new);
            let vm = FirecrackerVm::new(process, room, pages, Some(output), place);
            Ok(FirecrackerVm { rates, rated, ..vm })
        }
        Err(error) => {
            process.kill().await;
            Err(explain(error, Some(&output)))
        }
    }
}

impl FirecrackerVm {
    fn new(
        process: VmProcess,
        room: Room,
        pages: Option<Pages>,
        output: Option<Output>,
        place: &Place,
    ) -> Self {
        let room = Arc::new(room);
        let output = output.map(Arc::new);
        let mut listeners = JoinSet::new();
        if let Some(output) = &output {
            listeners.spawn(Arc::clone(output).listen());
        }
        match room.pipe(room::LOG) {
            Ok(pipe) => drop(listeners.spawn(log::tell(pipe, place.name.clone()))),
            // One that an older version of this program started has none.
            Err(error) => tracing::debug!(%error, "machine {} has no log", place.name),
        }
        let counting = match room.pipe(room::COUNTERS) {
            Ok(pipe) => Some(Counting::new(pipe)),
            Err(error) => {
                tracing::debug!(%error, "machine {} does not tell what it counts", place.name);
                None
            }
        };
        if let Some(counting) = &counting {
            listeners.spawn(Arc::clone(counting).listen());
        }
        Self {
            api: Api::new(Arc::clone(&room), pages.is_some()),
            pages,
            rates: Rates::default(),
            rated: RatedDevices::all(false),
            huge_pages: None,
            promise: OnceLock::new(),
            has_other_pages: false,
            life: watch::Sender::new(Life { runs: false, saves: 0 }),
            carriers: Mutex::new(JoinSet::new()),
            process,
            room,
            output,
            counting,
            _listeners: listeners,
        }
    }

    pub(super) async fn attach(
        record: &VmRecord,
        place: &Place,
        memory: Option<MemoryOrigin>,
        rates: Rates,
        (huge_pages, promises): (HugePages, &Promises),
    ) -> Result<Self, AttachError> {
        let watch = |source| ControlError::Host { action: "watch the machine process", source };
        let process = VmProcess::attach(record.process, place).map_err(watch)?.ok_or(AttachError::Gone)?;
        let room = Room::open(record.process.pid)
            .map_err(|source| ControlError::Host { action: "open the machine's room", source })?;
        // It was the process that was meant if that is still there.
        if !process.is_alive() {
            return Err(AttachError::Gone);
        }
        let output = Output::of(record.process.pid).ok();
        let pages = Pages::take_over(&process, record, memory)?;
        let mut vm = Self { rates, ..Self::new(process, room, pages, output, place) };
        let runs = vm.state().await? == VmState::Running;
        vm.life.send_modify(|life| life.runs = runs);
        // The node that started it may have had other rates, or was killed while it saved.
        let config = vm.api.call("describe", Method::Get, "/vm/config", None).await?;
        let cards = config.get("network-interfaces").and_then(Value::as_array);
        vm.rated.has_network = cards.is_some_and(|cards| !cards.is_empty());
        vm.rate(vm.rates).await?;
        let huge_memory_mib = machine::huge_memory_mib(&config);
        vm.has_other_pages = huge_memory_mib.is_some() != (huge_pages == HugePages::TwoMib);
        if let Some(memory_mib) = huge_memory_mib {
            vm.promise = promises.note(memory_mib << 20).into();
        }
        Ok(vm)
    }

    pub(super) fn with_huge_pages(self, huge_pages: Option<(Promises, MachineShape)>) -> Self {
        Self { huge_pages, ..self }
    }

    /// Before its memory is touched.
    fn take_huge_pages(&self) -> Result<(), ControlError> {
        if let Some((promises, shape)) = &self.huge_pages {
            let promise = promises.take(*shape)?;
            self.promise.get_or_init(|| promise);
        }
        Ok(())
    }

    /// Makes the machine of these requests, the last of which starts the guest; ends the process when that fails.
    pub(super) async fn start(self, requests: &[(String, Value)]) -> Result<Self, StartError> {
        let started = async {
            self.take_huge_pages()?;
            for (path, body) in requests {
                self.api.put("boot", path, body).await?;
            }
            self.life.send_modify(|life| life.runs = true);
            self.rate_if_limited(self.rates).await
        };
        if let Err(error) = started.await {
            self.process.kill().await;
            return Err(explain(error, self.output.as_deref()));
        }
        Ok(self)
    }

    /// Gives the devices their rates, or frees them from all.
    async fn rate(&self, rates: Rates) -> Result<(), ControlError> {
        for (path, body) in self.rated.requests(rates) {
            self.api.call("limit a device", Method::Patch, &path, Some(&body)).await?;
        }
        Ok(())
    }

    /// The same where there is anything to change: what is saved and what is new has no rates.
    async fn rate_if_limited(&self, rates: Rates) -> Result<(), ControlError> {
        if self.rates.limit_anything() { self.rate(rates).await } else { Ok(()) }
    }

    async fn change_state(&self, command: &'static str, wanted: VmState) -> Result<(), ControlError> {
        // Whoever carries the link is still from before the guest is, and moves only after it does.
        let before = self.life.borrow().runs;
        self.life.send_modify(|life| life.runs &= wanted == VmState::Running);
        let changed = async {
            if self.state().await? != wanted {
                let state = if wanted == VmState::Running { "Resumed" } else { "Paused" };
                let request = json!({ "state": state });
                self.api.call(command, Method::Patch, "/vm", Some(&request)).await?;
            }
            Ok(())
        };
        let changed = changed.await;
        let runs = if changed.is_ok() { wanted == VmState::Running } else { before };
        self.life.send_modify(|life| life.runs = runs);
        changed
    }

    /// The file behind a disk has its size already: what counts is that the device looks at it and tells the guest.
    async fn look_again(&self, drive: &str) -> Result<(), ControlError> {
        let request = json!({ "drive_id": drive, "path_on_host": drive_path(drive) });
        let path = format!("/drives/{drive}");
        self.api.call("grow", Method::Patch, &path, Some(&request)).await.map(drop)
    }

    /// Writes the devices, and the memory too where its file can be written. A restored machine's cannot: Firecracker writes the
    /// devices first, finds that, and gives up, which is all that is wanted. The guest hears that its connections are gone.
    async fn save_devices(&self, restored: bool, devices: &File) -> Result<(), ControlError> {
        let host = |action| move |source: io::Error| ControlError::Host { action, source };
        self.room.remove_devices().map_err(host("remove saved devices"))?;
        self.life.send_modify(|life| life.saves += 1);
        let request = json!({
            "snapshot_type": "Full",
            "snapshot_path": drive_path(room::DEVICES),
            "mem_file_path": "/memory",
        });
        // What the guest asked of its devices before it stood still is done once its Firecracker has answered anything at all since:
        // otherwise a queue could be served between the saved devices and the saved memory.
        self.state().await?;
        self.rate_if_limited(Rates::default()).await?;
        let saved = self
            .api
            .call_within(STATE_TIMEOUT, "save", Method::Put, "/snapshot/create", Some(&request))
            .await;
        self.rate_if_limited(self.rates).await?;
        match saved {
            Ok(_) => {}
            Err(ControlError::Refused { reason, .. }) if restored && reason.contains(MEMORY_REFUSED) => {}
            Err(error) => return Err(error),
        }
        tokio::task::block_in_place(|| self.room.take_devices(devices)).map_err(host("take saved devices"))
    }
}

#[async_trait]
impl Vm for FirecrackerVm {
    fn record(&self) -> VmRecord {
        let on_demand = self.pages.as_ref().and_then(Pages::regions);
        VmRecord { process: self.process.identity(), on_demand }
    }

    fn deprioritize(&self) {
        self.process.deprioritize();
    }

    async fn state(&self) -> Result<VmState, ControlError> {
        let answer = self.api.call("describe", Method::Get, "/", None).await?;
        match answer.get("state").and_then(Value::as_str) {
            Some("Running") => Ok(VmState::Running),
            Some(_) => Ok(VmState::Paused),
            None => Err(ControlError::Garbled { command: "describe" }),
        }
    }

    async fn pause(&self) -> Result<(), ControlError> {
        self.change_state("pause", VmState::Paused).await
    }

    async fn resume(&self) -> Result<(), ControlError> {
        self.change_state("resume", VmState::Running).await
    }

    async fn grow_volume(&self, slot: usize, _bytes: u64) -> Result<(), ControlError> {
        let drive = WRITABLE.get(slot).ok_or_else(|| ControlError::Refused {
            command: "grow",
            reason: format!("a machine has no volume {slot}"),
        })?;
        self.look_again(drive).await
    }

    async fn grow_root(&self, _bytes: u64) -> Result<(), ControlError> {
        self.look_again(ROOT).await
    }

    async fn save(&self, target: SaveTarget) -> Result<Saved, ControlError> {
        if self.has_other_pages {
            let reason = "it was started with another setting of huge pages".to_owned();
            return Err(ControlError::Refused { command: "save", reason });
        }
        // Saving devices changes memory, so that comes after it.
        self.save_devices(target.memory.is_some(), &target.devices).await?;
        match &target.memory {
            None => Ok(Saved::default()),
            Some(memory) => {
                let captured =
                    tokio::task::block_in_place(|| capture(&self.process, self.pages.as_ref(), memory))?;
                // A process that was killed meanwhile may have looked like one that changed nothing. One that answers had its
                // memory all the time.
                self.state().await?;
                Ok(captured)
            }
        }
    }

    async fn counters(&self) -> Result<Option<Counters>, ControlError> {
        let Some(counting) = &self.counting else { return Ok(None) };
        let request = json!({ "action_type": "FlushMetrics" });
        match self.api.put("count", "/actions", &request).await {
            // It has written its line before it answers. Of one that has ended there is what it wrote by itself.
            Ok(()) | Err(ControlError::Ended) => Ok(Some(counting.sums())),
            Err(error) => Err(error),
        }
    }

    async fn connect_link(&self) -> Result<UnixStream, ControlError> {
        let (ours, theirs) = UnixStream::pair()
            .map_err(|source| ControlError::Host { action: "connect to the guest link", source })?;
        let mut carriers = self.carriers.lock().unwrap_or_else(PoisonError::into_inner);
        while carriers.try_join_next().is_some() {}
        carriers.spawn(link::carry(Arc::clone(&self.room), self.life.subscribe(), ours));
        Ok(theirs)
    }

    async fn console_tail(&self) -> String {
        self.output.as_ref().map(|output| output.tail()).unwrap_or_default()
    }

    async fn exited(&self) -> Exit {
        exited(&self.process, self.pages.as_ref()).await
    }

    fn trace(&self) -> Option<Trace> {
        self.pages.as_ref().and_then(Pages::trace)
    }

    async fn kill(&self) {
        self.process.kill().await;
    }
}

#[async_trait]
impl Loadable for FirecrackerVm {
    fn process(&self) -> &VmProcess {
        &self.process
    }

    fn output(&self) -> Option<&Output> {
        self.output.as_deref()
    }

    async fn load(&self, devices: File) -> Result<(), ControlError> {
        self.take_huge_pages()?;
        let host = |action| move |source: io::Error| ControlError::Host { action, source };
        tokio::task::block_in_place(|| self.room.put_devices(&devices))
            .map_err(host("hand over saved devices"))?;
        let backend = match &self.pages {
            None => json!({ "backend_path": "/memory", "backend_type": "File" }),
            Some(_) => json!({ "backend_path": drive_path(room::PAGES_SOCKET), "backend_type": "Uffd" }),
        };
        let request = json!({
            "snapshot_path": drive_path(room::DEVICES),
            "mem_backend": backend,
            "resume_vm": false,
        });
        let loading =
            self.api.call_within(STATE_TIMEOUT, "load", Method::Put, "/snapshot/load", Some(&request));
        match &self.pages {
            None => loading.await?,
            Some(pages) => on_demand::serve_while(pages, &self.room, loading).await?,
        };
        self.room.remove_devices().map_err(host("remove saved devices"))?;
        self.rate_if_limited(self.rates).await
    }
}
