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
use crate::poll::{Ready, Source};
use crate::process::{Attached, Progress, defaults, spawn, terminal};
use crate::system::{self, disks, metrics, ports};
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
                    (Vec::new(), disks::grow_root(bytes).map(|()| Response::Done).map_err(failed))
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

    /// Data from the host for whatever the stream is.
    pub(super) fn input(&mut self, id: u32, data: Vec<u8>, cost: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match &mut stream.work {
            Work::Start { input, .. } => input.push((data, cost)),
            Work::Attached { process } | Work::Input { process, .. } => {
                let process = *process;
                match self.processes.get_mut(process) {
                    Ok(target) if target.input.is_open() => {
                        target.input.push(id, data, cost);
                        self.write_input(process.0);
                    }
                    // Nobody reads it.
                    _ => self.consumed(id, cost),
                }
            }
            Work::File(work) => {
                work.input.data.push(data);
                work.cost += cost;
                self.drive_file(id);
            }
            Work::Connection(connection) => {
                connection.push(data, cost);
                self.write_connection(id);
            }
            Work::Answer => self.consumed(id, cost),
        }
    }

    /// The host sends no more on the stream.
    pub(super) fn take_end(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match &mut stream.work {
            Work::Start { ended, .. } => *ended = true,
            Work::Attached { process } => {
                let process = *process;
                if let Ok(target) = self.processes.get_mut(process) {
                    target.input.close(target.terminal);
                }
                self.write_input(process.0);
            }
            Work::Input { process, end, ended } => {
                *ended = true;
                let (process, end) = (*process, *end);
                if end == InputEnd::Close
                    && let Ok(target) = self.processes.get_mut(process)
                {
                    target.input.close(target.terminal);
                }
                self.write_input(process.0);
                self.settle_input(id);
            }
            Work::File(work) => {
                work.input.end = true;
                self.drive_file(id);
            }
            Work::Connection(connection) => {
                connection.end_input();
                self.write_connection(id);
            }
            Work::Answer => {}
        }
    }

    /// Writes to a process's input and gives the windows back.
    pub(super) fn write_input(&mut self, process: u32) {
        let mut returned = Vec::new();
        self.processes.write_input(process, &mut returned);
        for (stream, cost) in returned {
            self.consumed(stream, cost);
            self.settle_input(stream);
        }
    }

    /// Ends an input stream whose data the process has taken, or will never take.
    fn settle_input(&mut self, id: u32) {
        let Some(stream) = self.streams.get(&id) else { return };
        let Work::Input { process, ended, .. } = &stream.work else { return };
        match self.processes.get(*process) {
            Ok(target) if target.input.waiting(id) => {}
            Ok(_) if *ended => self.answer(id, Ok(Response::Done)),
            Ok(target) if target.input.is_open() => {}
            Ok(_) | Err(_) => self.fail(id, Failure::Process(ProcessFailure::StdinClosed)),
        }
    }

    /// Gives window back to the host.
    pub(super) fn consumed(&mut self, id: u32, cost: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && stream.consumed(cost, &mut self.windows_left)
        {
            self.credits.push_back(id);
        }
    }

    pub(super) fn drive_connection(&mut self, id: u32, ready: Ready) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Work::Connection(connection) = &mut stream.work else { return };
        connection.readable |= ready.readable;
        connection.writable |= ready.writable;
        match connection.advance(id, &self.poll) {
            Ok(true) => stream.say(&Event::Connected),
            Ok(false) => {}
            Err(failure) => return self.fail(id, failure),
        }
        stream.enqueue(id, &mut self.ready);
        self.write_connection(id);
    }

    fn write_connection(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Work::Connection(connection) = &mut stream.work else { return };
        match connection.write() {
            Ok(returned) => {
                // Both directions may be over now.
                stream.enqueue(id, &mut self.ready);
                self.consumed(id, returned);
            }
            Err(failure) => self.fail(id, failure),
        }
    }

    /// A watch has something to read.
    pub(super) fn drive_watch(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && let Work::File(work) = &mut stream.work
        {
            work.news = true;
            self.drive_file(id);
        }
    }

    /// Gives a file task its next step, if it is here, has something to do, and what it produced before was sent.
    pub(super) fn drive_file(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Work::File(work) = &mut stream.work else { return };
        let Some(task) = &work.task else { return };
        if !stream.messages.is_empty() || work.sent < work.data.len() || work.outcome.is_some() {
            return;
        }
        if task.wants_input() && work.input.data.is_empty() && !work.input.end {
            return;
        }
        if task.news().is_some() {
            if !work.news {
                return;
            }
            work.news = false;
        }
        let Some(mut task) = work.task.take() else { return };
        let input = std::mem::take(&mut work.input);
        let cost = std::mem::take(&mut work.cost);
        let session = self.sessions;
        self.workers.submit(move || {
            let step = task.step(input);
            Completion::Stepped { session, stream: id, task, step, cost }
        });
    }

    /// A worker made a step.
    pub(super) fn stepped(&mut self, id: u32, task: Box<file::Task>, step: file::Step, cost: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return self.dispose(task) };
        let Work::File(work) = &mut stream.work else { return self.dispose(task) };
        if let Some(descriptor) = task.news() {
            if !work.watched {
                work.watched = true;
                // Without it the watch would be deaf, and the caller must know.
                if self.poll.add(&descriptor, Source::Watch(id)).is_err() {
                    self.dispose(task);
                    return self.fail(id, Failure::Limit { what: "watches".into() });
                }
            }
            // A step reads a bounded piece: there may be more.
            work.news |= !step.events.is_empty();
        }
        work.data = step.data;
        work.sent = 0;
        match step.outcome {
            // The last step: the task and its files are done with.
            Some(outcome) => {
                work.outcome = Some(outcome);
                for event in &step.events {
                    stream.say(event);
                }
                stream.enqueue(id, &mut self.ready);
                self.dispose(task);
            }
            None => {
                work.task = Some(task);
                for event in &step.events {
                    stream.say(event);
                }
                stream.enqueue(id, &mut self.ready);
            }
        }
        if cost > 0 {
            self.consumed(id, cost);
        }
        self.drive_file(id);
    }

    /// Drops a task where it may block: an aborted upload removes its file.
    pub(super) fn dispose(&mut self, task: Box<file::Task>) {
        self.workers.submit(move || {
            drop(task);
            Completion::Nothing
        });
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
