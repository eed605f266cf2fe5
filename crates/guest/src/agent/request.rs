//! From a request to what it starts, and how it ends early.

use guest_link::limits::{BATCH_ENTRIES_MAX, DATA_BYTES_MAX};
use guest_link::message::{
    ConnectRequest, Event, Failure, FileRequest, InputEnd, ListeningPort, Offsets, ProcessFailure, ProcessId,
    ProcessInfo, ProcessRequest, ProcessSpec, Request, Response, Started, SystemRequest,
};

use super::Agent;
use super::completion::Completion;
use super::stream::{FileWork, Work};
use crate::connection::Connection;
use crate::file::{self, Plan};
use crate::process::{Attached, Progress, defaults, spawn, terminal};
use crate::system::{self, disks, metrics, ports, volumes};
use crate::{identity, kernel};

/// Streams that may follow one process.
const ATTACHED_MAX: usize = 16;

/// Longest tag.
const TAG_BYTES_MAX: usize = 1024;

impl Agent {
    /// Begins what a request asks for. `None`: it could not be read.
    pub(super) fn serve(&mut self, id: u32, request: Option<Request>) {
        let begun = match request {
            Some(Request::Identify(identity)) => identity::assume(&identity).map(|confirmed| {
                self.answer(id, Ok(Response::Identified(confirmed)));
            }),
            Some(Request::Process(request)) => self.serve_process(id, request),
            Some(Request::File(request)) => {
                self.serve_file(id, request);
                Ok(())
            }
            Some(Request::Connect(request)) => self.serve_connect(id, &request),
            Some(Request::System(request)) => self.serve_system(id, &request),
            None => Err(Failure::Malformed),
        };
        if let Err(failure) = begun {
            self.fail(id, failure);
        }
    }

    /// Ends a stream with its final word.
    pub(super) fn answer(&mut self, id: u32, outcome: Result<Response, Failure>) {
        self.release(id);
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.work = Work::Answer;
            stream.finish(&outcome);
            stream.enqueue(id, &mut self.ready);
        }
    }

    pub(super) fn fail(&mut self, id: u32, failure: Failure) {
        self.answer(id, Err(failure));
    }

    /// Forgets a stream.
    pub(super) fn close(&mut self, id: u32) {
        self.release(id);
        if let Some(stream) = self.streams.remove(&id) {
            self.windows_left += stream.window - guest_link::limits::GUEST_WINDOW_BYTES;
        }
    }

    /// Lets go of what a stream holds: a process lives on, a transfer is aborted.
    fn release(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match std::mem::replace(&mut stream.work, Work::Answer) {
            Work::Attached { process } => {
                self.processes.detach(process, id);
                // It may have waited for this stream.
                self.read_output(process.0);
            }
            Work::File(work) => {
                if let Some(task) = work.task {
                    self.dispose(task);
                }
            }
            Work::Answer | Work::Start { .. } | Work::Input { .. } | Work::Connection(_) => {}
        }
    }

    fn serve_process(&mut self, id: u32, request: ProcessRequest) -> Result<(), Failure> {
        match request {
            ProcessRequest::Start(spec) => return self.start(id, spec),
            ProcessRequest::Attach { process, from } => return self.attach(id, process, from),
            ProcessRequest::Input { process, end } => return self.open_input(id, process, end),
            ProcessRequest::Signal { process, signal, scope } => {
                self.processes.signal(process, signal, scope)?;
                self.answer(id, Ok(Response::Done));
            }
            ProcessRequest::Resize { process, size } => {
                let process = self.processes.get(process)?;
                let terminal = process.terminal_file().ok_or(Failure::Process(ProcessFailure::NoTerminal))?;
                let failed = |error| Failure::Process(ProcessFailure::Spawn { errno: kernel::errno(&error) });
                terminal::resize(terminal, size).map_err(failed)?;
                self.answer(id, Ok(Response::Done));
            }
            ProcessRequest::SetDefaults(wanted) => {
                self.submit_answer(id, move || (Vec::new(), defaults::set(wanted).map(|()| Response::Done)))
            }
            ProcessRequest::Status { process } => {
                let info = self.processes.get(process)?.info();
                self.answer(id, Ok(Response::Process(info)));
            }
            ProcessRequest::List => {
                let mut batch: Vec<ProcessInfo> = Vec::new();
                let mut batches = Vec::new();
                for process in self.processes.iter() {
                    batch.push(process.info());
                    // Commands are cut at 4 KiB, paths are no longer: four fit in a frame with room to spare.
                    if batch.len() == 4 {
                        batches.push(Event::Processes(std::mem::take(&mut batch)));
                    }
                }
                batches.push(Event::Processes(batch));
                self.say_all(id, &batches);
                self.answer(id, Ok(Response::Done));
            }
        }
        Ok(())
    }

    fn start(&mut self, id: u32, spec: ProcessSpec) -> Result<(), Failure> {
        if spec.tag.as_ref().is_some_and(|tag| tag.len() > TAG_BYTES_MAX) {
            return Err(Failure::Process(ProcessFailure::InvalidCommand));
        }
        self.processes.begin_start()?;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.work = Work::Start { input: Vec::new(), ended: false };
        }
        let session = self.sessions;
        self.workers.submit(move || {
            let spawned = spawn::spawn(&spec);
            Completion::Spawned { session, stream: id, spec: Box::new(spec), spawned }
        });
        Ok(())
    }

    pub(super) fn attach(&mut self, id: u32, process: ProcessId, from: Offsets) -> Result<(), Failure> {
        let target = self.processes.get_mut(process)?;
        if target.attached.len() >= ATTACHED_MAX {
            return Err(Failure::Limit { what: "streams that follow one process".into() });
        }
        let sent = target.clamp([from.stdout, from.stderr]);
        target.attached.push(Attached { stream: id, sent });
        let started =
            Started { process, pid: target.pid as u32, from: Offsets { stdout: sent[0], stderr: sent[1] } };
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.work = Work::Attached { process };
            stream.say(&Event::Started(started));
            stream.enqueue(id, &mut self.ready);
        }
        Ok(())
    }

    fn open_input(&mut self, id: u32, process: ProcessId, end: InputEnd) -> Result<(), Failure> {
        let target = self.processes.get(process)?;
        if target.exit.is_some() {
            return Err(Failure::Process(ProcessFailure::NotRunning));
        }
        if !target.input.is_open() {
            return Err(Failure::Process(ProcessFailure::StdinClosed));
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.work = Work::Input { process, end, ended: false };
        }
        Ok(())
    }

    fn serve_file(&mut self, id: u32, request: FileRequest) {
        match file::plan(request) {
            Plan::Once(request) => self.submit_answer(id, move || (Vec::new(), file::perform(request))),
            Plan::Steps(task) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.work = Work::File(FileWork::new(task));
                }
                self.drive_file(id);
            }
        }
    }

    /// Lets a worker find the answer.
    fn submit_answer(
        &mut self,
        id: u32,
        job: impl FnOnce() -> (Vec<Event>, Result<Response, Failure>) + Send + 'static,
    ) {
        let session = self.sessions;
        self.workers.submit(move || {
            let (events, outcome) = job();
            Completion::Answer { session, stream: id, events, outcome }
        });
    }

    fn serve_connect(&mut self, id: u32, request: &ConnectRequest) -> Result<(), Failure> {
        let connection = Connection::begin(request, id, &self.poll)?;
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.work = Work::Connection(Box::new(connection));
        }
        Ok(())
    }

    fn serve_system(&mut self, id: u32, request: &SystemRequest) -> Result<(), Failure> {
        let failed = |error: std::io::Error| Failure::File(file::file_failure(&error));
        match request {
            SystemRequest::Ping => self.answer(id, Ok(Response::Done)),
            SystemRequest::Ports => self.submit_answer(id, move || match ports::listening() {
                Ok(found) => (port_batches(found), Ok(Response::Done)),
                Err(error) => (Vec::new(), Err(failed(error))),
            }),
            SystemRequest::Metrics => {
                self.submit_answer(id, move || {
                    (Vec::new(), metrics::measure().map(Response::Metrics).map_err(failed))
                });
            }
            SystemRequest::Sync => self.submit_answer(id, || {
                system::sync();
                (Vec::new(), Ok(Response::Done))
            }),
            SystemRequest::Trim => self.submit_answer(id, || (Vec::new(), system::trim())),
            SystemRequest::FindVolumes { count } => {
                let read_only = vec![false; usize::from(*count)];
                self.submit_answer(id, move || {
                    (Vec::new(), disks::find(&read_only).map(|()| Response::Done).map_err(failed))
                });
            }
            SystemRequest::FindVolumesInModes { read_only } => {
                let read_only = read_only.clone();
                self.submit_answer(id, move || {
                    (Vec::new(), disks::find(&read_only).map(|()| Response::Done).map_err(failed))
                });
            }
            SystemRequest::GrowRoot { bytes } => {
                let bytes = *bytes;
                self.submit_answer(id, move || {
                    (Vec::new(), volumes::grow_root(bytes).map(|()| Response::Done).map_err(failed))
                });
            }
            SystemRequest::MountVolume { slot, place, read_only } => {
                let (slot, place, read_only) = (*slot, place.clone(), *read_only);
                self.submit_answer(id, move || {
                    let mounted = volumes::mount(slot, file::as_path(&place), read_only);
                    (Vec::new(), mounted.map(|()| Response::Done).map_err(failed))
                });
            }
            SystemRequest::GrowVolume { slot, bytes } => {
                let (slot, bytes) = (*slot, *bytes);
                self.submit_answer(id, move || {
                    (Vec::new(), volumes::grow(slot, bytes).map(|()| Response::Done).map_err(failed))
                });
            }
            SystemRequest::SetResolver { servers, before } => {
                let (servers, before) = (servers.clone(), before.clone());
                self.submit_answer(id, move || {
                    let changed = identity::change_resolver(&servers, &before);
                    (Vec::new(), changed.map(|()| Response::Done).map_err(failed))
                });
            }
            SystemRequest::SealVolumes => self.submit_answer(id, move || {
                (Vec::new(), disks::seal().map(|()| Response::Done).map_err(failed))
            }),
            SystemRequest::Shutdown { grace_ms } => {
                if std::process::id() != 1 {
                    return Err(Failure::Unsupported);
                }
                self.shutdown_wanted = Some(*grace_ms);
                self.answer(id, Ok(Response::Done));
            }
        }
        Ok(())
    }

    pub(super) fn say_all(&mut self, id: u32, events: &[Event]) {
        if let Some(stream) = self.streams.get_mut(&id) {
            events.iter().for_each(|event| stream.say(event));
            stream.enqueue(id, &mut self.ready);
        }
    }

    /// A worker started a process, or failed to.
    pub(super) fn spawned(
        &mut self,
        id: Option<u32>,
        spec: &ProcessSpec,
        spawned: Result<spawn::Spawned, Failure>,
    ) {
        let started = self.processes.finish_start(spec, spawned, &self.poll);
        let work = id
            .and_then(|id| self.streams.get_mut(&id))
            .map(|stream| std::mem::replace(&mut stream.work, Work::Answer));
        let (Some(id), Some(Work::Start { input, ended })) = (id, work) else {
            // Nobody waits for it any more; it runs detached.
            if let Ok(process) = started {
                self.loud.push(process.0);
            }
            return;
        };
        let result = started.and_then(|process| {
            if spec.attachment == guest_link::message::Attachment::Attached {
                self.attach(id, process, Offsets::BEGINNING)?;
                for (data, cost) in input {
                    self.input(id, data, cost);
                }
                if ended {
                    self.take_end(id);
                }
            } else {
                let target = self.processes.get(process)?;
                let started = Started { process, pid: target.pid as u32, from: Offsets::BEGINNING };
                self.answer(id, Ok(Response::Started(started)));
            }
            Ok(process)
        });
        match result {
            Ok(process) => {
                if self.processes.read_output(process.0) == Progress::More {
                    self.loud.push(process.0);
                }
                self.announce(process.0);
            }
            Err(failure) => self.fail(id, failure),
        }
    }
}

/// Cuts ports into events that fit in a frame.
fn port_batches(ports: Vec<ListeningPort>) -> Vec<Event> {
    // An entry is at most 64 bytes: an address, numbers and a program name of at most 15.
    let size = BATCH_ENTRIES_MAX.min(DATA_BYTES_MAX / 64);
    ports.chunks(size).map(|batch| Event::Ports(batch.to_vec())).collect()
}
