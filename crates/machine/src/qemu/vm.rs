//! One QEMU process and what can be done to it.

use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;

use async_trait::async_trait;
use memory::pages::Trace;
use serde_json::{Value, json};
use tokio::net::UnixStream;

use super::command::{ROOT_NODE, volume_node};
use super::counters;
use super::postcopy;
use super::qmp::{Qmp, connect_unix};
use super::rates;
use crate::counters::Counters;
use crate::engine::{
    AttachError, ControlError, Exit, LazyMemory, MemoryOrigin, Place, SaveTarget, Saved, StartError, Vm,
    VmRecord, VmState,
};
use crate::on_demand::{self, Pages, capture, exited};
use crate::output::Output;
use crate::process::VmProcess;
use crate::rates::Rates;
use crate::waiting::{Loadable, explain};

pub(super) const CONTROL_SOCKET: &str = "control.sock";
pub(super) const LINK_SOCKET: &str = "link.sock";
/// How long a fresh QEMU may take to listen; generous, because many may start at once on few cores.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long loading or saving devices may take.
const STATE_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between looks at whether saved devices have been loaded; loading takes a few milliseconds.
const LOAD_POLL: Duration = Duration::from_micros(300);
/// Descriptor set of saved devices while they are read or written.
const DEVICES_SET: u32 = 9;
const DEVICES_PATH: &str = "/dev/fdset/9";

/// A QEMU with a guest in it.
#[derive(Debug)]
pub(super) struct QemuVm {
    process: VmProcess,
    control: Qmp,
    /// Where its memory comes from, if that comes on demand.
    pages: Option<Pages>,
    /// Its sockets' directory, held open: it may be renamed while the machine lives.
    directory: File,
    /// What it had counted before this node took charge of it.
    counted_before: Counters,
    /// What the process says; unknown for one that an earlier node process started.
    output: Option<Output>,
}

/// Connects to a QEMU just started; ends it when that fails.
pub(super) async fn control_new(
    process: VmProcess,
    output: Output,
    place: Place,
    rates: Rates,
    memory: Option<LazyMemory>,
) -> Result<QemuVm, StartError> {
    let connecting = async {
        let directory = open_directory(&place)?;
        let control = Qmp::connect(&directory, CONTROL_SOCKET, START_TIMEOUT, memory.is_some()).await?;
        if rates.limit_anything() {
            rates::set(&control, rates).await?;
        }
        Ok((directory, control))
    };
    let connected = tokio::select! {
        connected = connecting => connected,
        _ = process.ended() => Err(ControlError::Ended),
    };
    match connected {
        Ok((directory, control)) => {
            let pages = memory.map(Pages::new);
            let counted_before = Counters::default();
            Ok(QemuVm { process, control, pages, directory, counted_before, output: Some(output) })
        }
        Err(error) => {
            process.kill().await;
            Err(explain(error, Some(&output)))
        }
    }
}

fn open_directory(place: &Place) -> Result<File, ControlError> {
    File::open(&place.directory)
        .map_err(|source| ControlError::Host { action: "open the machine's directory", source })
}

impl QemuVm {
    pub(super) async fn attach(
        record: &VmRecord,
        place: &Place,
        rates: Rates,
        memory: Option<MemoryOrigin>,
    ) -> Result<Self, AttachError> {
        let watch = |source| ControlError::Host { action: "watch the machine process", source };
        let process = VmProcess::attach(record.process, place).map_err(watch)?.ok_or(AttachError::Gone)?;
        let directory = open_directory(place)?;
        // First, because QEMU answers nothing while it waits for memory itself.
        let pages = Pages::take_over(&process, record, memory)?;
        let control = Qmp::connect(&directory, CONTROL_SOCKET, Duration::ZERO, pages.is_some()).await?;
        // The node that started it may have had others.
        rates::set(&control, rates).await?;
        let mut vm =
            Self { process, control, pages, directory, counted_before: Counters::default(), output: None };
        vm.counted_before = vm.counted().await?;
        Ok(vm)
    }

    async fn status(&self) -> Result<String, ControlError> {
        let answer = self.control.run("query-status", json!({})).await?;
        let status = answer.get("status").and_then(Value::as_str);
        status.map(str::to_owned).ok_or(ControlError::Garbled { command: "query-status" })
    }

    async fn counted(&self) -> Result<Counters, ControlError> {
        let command = "query-blockstats";
        counters::parse(&self.control.run(command, json!({})).await?).ok_or(ControlError::Garbled { command })
    }

    /// The file behind a disk has this size already: what counts is that the device tells the guest.
    async fn tell_size(&self, node: &str, bytes: u64) -> Result<(), ControlError> {
        let arguments = json!({ "node-name": node, "size": bytes });
        self.control.run("block_resize", arguments).await.map(drop)
    }
}

#[async_trait]
impl Vm for QemuVm {
    fn record(&self) -> VmRecord {
        let on_demand = self.pages.as_ref().and_then(Pages::regions);
        VmRecord { process: self.process.identity(), on_demand }
    }

    fn deprioritize(&self) {
        self.process.deprioritize();
    }

    async fn state(&self) -> Result<VmState, ControlError> {
        match self.status().await?.as_str() {
            "running" => Ok(VmState::Running),
            _ => Ok(VmState::Paused),
        }
    }

    async fn pause(&self) -> Result<(), ControlError> {
        self.control.run_within("stop", json!({}), STATE_TIMEOUT).await.map(drop)
    }

    async fn resume(&self) -> Result<(), ControlError> {
        self.control.run("cont", json!({})).await.map(drop)
    }

    async fn grow_volume(&self, slot: usize, bytes: u64) -> Result<(), ControlError> {
        self.tell_size(&volume_node(slot), bytes).await
    }

    async fn grow_root(&self, bytes: u64) -> Result<(), ControlError> {
        self.tell_size(ROOT_NODE, bytes).await
    }

    async fn save(&self, target: SaveTarget) -> Result<Saved, ControlError> {
        let devices = async {
            self.control.pass_file(DEVICES_SET, target.devices.as_fd()).await?;
            // Writes every device and no memory; despite its name it has nothing to do with Xen. `live` leaves the guest paused
            // rather than marking its disks as handed over.
            let arguments = json!({ "filename": DEVICES_PATH, "live": true });
            let saved = self.control.run_within("xen-save-devices-state", arguments, STATE_TIMEOUT).await;
            let removed = self.control.run("remove-fd", json!({ "fdset-id": DEVICES_SET })).await;
            saved.and(removed)
        };
        let Some(memory) = target.memory else {
            devices.await?;
            return Ok(Saved::default());
        };
        let captured = tokio::task::block_in_place(|| capture(&self.process, self.pages.as_ref(), &memory))?;
        devices.await?;
        Ok(captured)
    }

    async fn counters(&self) -> Result<Option<Counters>, ControlError> {
        Ok(Some(self.counted().await?.minus(self.counted_before)))
    }

    async fn connect_link(&self) -> Result<UnixStream, ControlError> {
        connect_unix(&self.directory, LINK_SOCKET)
            .await
            .map_err(|source| ControlError::Host { action: "connect to the guest link", source })
    }

    async fn console_tail(&self) -> String {
        let arguments = json!({ "device": "console", "size": 65536, "format": "utf8" });
        match self.control.run("ringbuf-read", arguments).await {
            Ok(Value::String(text)) => text,
            _ => String::new(),
        }
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
impl Loadable for QemuVm {
    fn process(&self) -> &VmProcess {
        &self.process
    }

    fn output(&self) -> Option<&Output> {
        self.output.as_ref()
    }

    async fn load(&self, devices: File) -> Result<(), ControlError> {
        let patience = on_demand::patience(self.pages.is_some(), STATE_TIMEOUT);
        let loaded = async {
            let loading = async {
                while self.status().await? == "inmigrate" {
                    tokio::time::sleep(LOAD_POLL).await;
                }
                Ok(())
            };
            tokio::time::timeout(patience, loading).await.map_err(|_| ControlError::Unresponsive {
                command: "migrate-incoming",
                seconds: patience.as_secs(),
            })?
        };
        if let Some(pages) = &self.pages {
            return postcopy::load(&self.control, &self.process, pages, devices, loaded).await;
        }
        self.control.pass_file(DEVICES_SET, devices.as_fd()).await?;
        self.control.run("migrate-incoming", json!({ "uri": format!("file:{DEVICES_PATH}") })).await?;
        loaded.await?;
        self.control.run("remove-fd", json!({ "fdset-id": DEVICES_SET })).await.map(drop)
    }
}
