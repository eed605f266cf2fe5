//! Processes from the host's side.

use std::sync::Arc;

use super::state::Item;
use super::stream::Stream;
use super::{CallError, Link, LinkError};
use crate::message::{
    Attachment, Channel, Event, Exit, InputEnd, Offsets, ProcessDefaults, ProcessFailure, ProcessId,
    ProcessInfo, ProcessRequest, ProcessSpec, Request, Response, SignalScope, Started, Stdin, TerminalSize,
};

/// A process the host follows. Dropping it (and its [`ProcessInput`]) detaches: the process lives on.
pub struct Process {
    stream: Arc<Stream>,
    started: Started,
    next: Offsets,
    input: bool,
}

/// What a process did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessEvent {
    /// It wrote.
    Output {
        /// Where to.
        channel: Channel,
        /// Offset of the first byte, counted from the start of the process.
        offset: u64,
        /// What.
        data: Vec<u8>,
    },
    /// Output was lost before this attachment asked for it.
    Gap {
        /// Which.
        channel: Channel,
        /// First lost byte.
        from: u64,
        /// First byte that follows.
        to: u64,
    },
    /// It ended, and all it wrote until then was delivered. Nothing follows.
    Exited(Exit),
}

/// The way to a process's standard input, or its terminal.
pub struct ProcessInput {
    stream: Arc<Stream>,
}

/// How much [`Link::exec`] collects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecLimits {
    /// Of standard output. More is read, thrown away and reported as truncated.
    pub stdout_bytes_max: usize,
    /// Of standard error.
    pub stderr_bytes_max: usize,
}

/// What a command did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// How it ended.
    pub exit: Exit,
    /// Its name on the link, for what it left running.
    pub process: ProcessId,
    /// The beginning of what it wrote.
    pub stdout: Vec<u8>,
    /// The beginning of its errors.
    pub stderr: Vec<u8>,
    /// Whether it wrote more.
    pub stdout_truncated: bool,
    /// Whether it had more errors.
    pub stderr_truncated: bool,
}

impl Link {
    /// Starts a process and follows it. The specification's `attachment` is overruled.
    pub async fn start(&self, mut spec: ProcessSpec) -> Result<Process, CallError> {
        spec.attachment = Attachment::Attached;
        let input = spec.stdin == Stdin::Pipe || spec.terminal.is_some();
        let stream = self.stream(&Request::Process(ProcessRequest::Start(spec)))?;
        Process::begin(stream, input).await
    }

    /// Starts a process and lets it run.
    pub async fn start_detached(&self, mut spec: ProcessSpec) -> Result<Started, CallError> {
        spec.attachment = Attachment::Detached;
        match self.call(&Request::Process(ProcessRequest::Start(spec))).await? {
            Response::Started(started) => Ok(started),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Follows a process that was started earlier, by this session or another. Output is replayed from `from`; what the guest no
    /// longer holds is reported as a gap.
    pub async fn attach(&self, process: ProcessId, from: Offsets) -> Result<Process, CallError> {
        let stream = self.stream(&Request::Process(ProcessRequest::Attach { process, from }))?;
        Process::begin(stream, false).await
    }

    /// Runs a command to its end and collects what it writes. Returns when the command itself ends, even if something it left in
    /// the background still holds its output. Dropping the future leaves the command running: give it a timeout.
    pub async fn exec(
        &self,
        mut spec: ProcessSpec,
        stdin: &[u8],
        limits: ExecLimits,
    ) -> Result<Output, CallError> {
        if !stdin.is_empty() && spec.terminal.is_none() {
            spec.stdin = Stdin::Pipe;
        }
        let mut process = self.start(spec).await?;
        let input = process.take_input();
        let feed = async {
            if let Some(input) = &input
                && input.write(stdin).await?
            {
                input.close();
            }
            Ok::<(), CallError>(())
        };
        let (_, output) = tokio::try_join!(feed, process.collect(limits))?;
        Ok(output)
    }

    /// All processes the guest program knows: running, and some that ended.
    pub async fn processes(&self) -> Result<Vec<ProcessInfo>, CallError> {
        let stream = self.stream(&Request::Process(ProcessRequest::List))?;
        let mut all = Vec::new();
        loop {
            match stream.event().await? {
                Ok(Event::Processes(batch)) => all.extend(batch),
                Err(Response::Done) => return Ok(all),
                _ => return Err(LinkError::Unexpected.into()),
            }
            if all.len() > PROCESSES_MAX {
                return Err(LinkError::Protocol("process list without end").into());
            }
        }
    }

    /// State of one process.
    pub async fn process(&self, process: ProcessId) -> Result<ProcessInfo, CallError> {
        match self.call(&Request::Process(ProcessRequest::Status { process })).await? {
            Response::Process(info) => Ok(info),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Sets what the guest's processes get from now on where their callers say nothing. Kept on the guest's disk.
    pub async fn set_process_defaults(&self, defaults: ProcessDefaults) -> Result<(), CallError> {
        self.perform(&Request::Process(ProcessRequest::SetDefaults(defaults))).await
    }

    /// Sends a signal.
    pub async fn signal(&self, process: ProcessId, signal: i32, scope: SignalScope) -> Result<(), CallError> {
        self.perform(&Request::Process(ProcessRequest::Signal { process, signal, scope })).await
    }

    /// Changes the size of a process's terminal.
    pub async fn resize(&self, process: ProcessId, size: TerminalSize) -> Result<(), CallError> {
        self.perform(&Request::Process(ProcessRequest::Resize { process, size })).await
    }

    /// Writes to a process's standard input from outside its own stream; returns when the process's pipe has taken all of it.
    pub async fn input(&self, process: ProcessId, data: &[u8], end: InputEnd) -> Result<(), CallError> {
        let stream = self.stream(&Request::Process(ProcessRequest::Input { process, end }))?;
        if stream.send(data).await? {
            stream.end();
        }
        match stream.response().await? {
            Response::Done => Ok(()),
            _ => Err(LinkError::Unexpected.into()),
        }
    }
}

/// More than any guest keeps: running and ended ones.
const PROCESSES_MAX: usize = 16 * 1024;

impl Process {
    async fn begin(stream: Stream, input: bool) -> Result<Process, CallError> {
        match stream.event().await? {
            Ok(Event::Started(started)) => {
                Ok(Process { stream: Arc::new(stream), started, next: started.from, input })
            }
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Its name on the link.
    #[must_use]
    pub fn id(&self) -> ProcessId {
        self.started.process
    }

    /// Its pid in the guest.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.started.pid
    }

    /// The link it runs behind.
    #[must_use]
    pub fn link(&self) -> &Link {
        self.stream.link()
    }

    /// The way to its standard input: once, and only for a process started here with a pipe or a terminal.
    pub fn take_input(&mut self) -> Option<ProcessInput> {
        std::mem::take(&mut self.input).then(|| ProcessInput { stream: Arc::clone(&self.stream) })
    }

    /// What it did next. After [`ProcessEvent::Exited`] only errors follow. The future may be dropped without loss.
    pub async fn next(&mut self) -> Result<ProcessEvent, CallError> {
        match self.stream.item().await? {
            Item::Data(channel, data) => {
                let next = self.offset(channel);
                let offset = *next;
                *next = next.saturating_add(data.len() as u64);
                Ok(ProcessEvent::Output { channel, offset, data })
            }
            Item::Event(Event::Gap { channel, offset: to }, _) => {
                let from = std::mem::replace(self.offset(channel), to);
                Ok(ProcessEvent::Gap { channel, from, to })
            }
            Item::Done(outcome) => match outcome? {
                Response::Exited(exit) => Ok(ProcessEvent::Exited(exit)),
                _ => Err(LinkError::Unexpected.into()),
            },
            Item::Event(..) | Item::End => Err(LinkError::Unexpected.into()),
        }
    }

    /// Reads to the end, keeping what the limits allow.
    pub async fn collect(&mut self, limits: ExecLimits) -> Result<Output, CallError> {
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let (mut stdout_truncated, mut stderr_truncated) = (false, false);
        loop {
            let (kept, truncated, most, data) = match self.next().await? {
                ProcessEvent::Output { channel: Channel::Stdout, data, .. } => {
                    (&mut stdout, &mut stdout_truncated, limits.stdout_bytes_max, data)
                }
                ProcessEvent::Output { channel: Channel::Stderr, data, .. } => {
                    (&mut stderr, &mut stderr_truncated, limits.stderr_bytes_max, data)
                }
                ProcessEvent::Gap { .. } => continue,
                ProcessEvent::Exited(exit) => {
                    let process = self.id();
                    return Ok(Output { exit, process, stdout, stderr, stdout_truncated, stderr_truncated });
                }
            };
            let room = most.saturating_sub(kept.len()).min(data.len());
            *truncated |= room < data.len();
            kept.extend_from_slice(&data[..room]);
        }
    }

    fn offset(&mut self, channel: Channel) -> &mut u64 {
        match channel {
            Channel::Stdout => &mut self.next.stdout,
            Channel::Stderr => &mut self.next.stderr,
        }
    }
}

impl ProcessInput {
    /// Writes all of `data`, as fast as the process reads. `false`: the process has ended.
    pub async fn write(&self, data: &[u8]) -> Result<bool, CallError> {
        Ok(self.stream.send(data).await?)
    }

    /// Writes all of `data`; an ended process is an error.
    pub async fn write_all(&self, data: &[u8]) -> Result<(), CallError> {
        match self.write(data).await? {
            true => Ok(()),
            false => Err(crate::message::Failure::Process(ProcessFailure::StdinClosed).into()),
        }
    }

    /// Closes standard input after everything written so far. On a terminal this types the end-of-file character.
    pub fn close(&self) {
        self.stream.end();
    }
}
