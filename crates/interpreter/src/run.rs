//! One cell on its way through a kernel.
//!
//! ```text
//! Waiting ── begin mark ──► Running ── end marks ──► Over
//!    │                        │ deadline                ▲
//!    └ deadline: withdrawn    └► Interrupted, twice ── end marks, or killed after a grace
//! ```

use std::collections::VecDeque;
use std::time::Duration;

use guest_link::client::{CallError, Link, Process, ProcessEvent};
use guest_link::message::{
    Channel, ExitStatus, Failure, InputEnd, Offsets, Owner, Parents, ProcessFailure, ProcessId, RemoveScope,
    WriteMode, WriteSpec,
};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};

use crate::cell::{Cell, CellId};
use crate::context::{self, ContextHandle};
use crate::error::RunError;
use crate::kernel::{CELLS_DIRECTORY, known_path};
use crate::limits::{BEGIN_TIMEOUT, INTERRUPT_TIMEOUT, RECORD_BYTES_MAX, RunLimits, STEP_TIMEOUT};
use crate::output::{Bounded, TextDecoder};
use crate::record::Record;
use crate::report::{ContextState, Ending, RunEvent, RunResult};
use crate::wire::{Mark, Piece, Scanner};

/// A cell that runs. Dropping it abandons the cell, see [`Context::run`](crate::Context::run).
pub struct Run {
    link: Link,
    process: Process,
    id: CellId,
    timeout: Duration,
    stdout: ChannelState,
    stderr: ChannelState,
    phase: Phase,
    /// Understood, not yet given.
    ready: VecDeque<Ready>,
    _turn: OwnedSemaphorePermit,
}

/// What a kernel is asked to do with the file it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Run it as a cell.
    Run,
    /// Run it before anybody's cells, where they do not see its names.
    Preload,
    /// Become the kernel of a context with the settings in it.
    Adopt,
}

impl Verb {
    const fn word(self) -> &'static str {
        match self {
            Verb::Run => "run",
            Verb::Preload => "preload",
            Verb::Adopt => "adopt",
        }
    }
}

/// What stands between the scanner and the caller.
enum Ready {
    Event(RunEvent),
    /// A record to be fetched first.
    Fetch {
        offset: u64,
        length: u64,
    },
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    Waiting {
        until: Instant,
    },
    Running {
        since: Instant,
        until: Instant,
    },
    /// Interrupted once, and once more when `until` passes.
    Interrupted {
        since: Instant,
        until: Instant,
    },
    /// Interrupted for the last time; killed when `until` passes.
    Insisted {
        since: Instant,
        until: Instant,
    },
    Over,
}

impl Phase {
    fn until(self) -> Instant {
        match self {
            Phase::Waiting { until }
            | Phase::Running { until, .. }
            | Phase::Interrupted { until, .. }
            | Phase::Insisted { until, .. } => until,
            Phase::Over => Instant::now(),
        }
    }
}

struct ChannelState {
    scanner: Scanner,
    decoder: TextDecoder,
    began: bool,
    end: Option<(i32, u64)>,
}

impl ChannelState {
    fn new(id: &CellId) -> ChannelState {
        ChannelState { scanner: Scanner::new(id), decoder: TextDecoder::default(), began: false, end: None }
    }
}

impl Run {
    /// Hands the code to the kernel.
    pub(crate) async fn begin(
        link: &Link,
        handle: &ContextHandle,
        verb: Verb,
        cell: Cell,
        turn: OwnedSemaphorePermit,
    ) -> Result<Run, RunError> {
        let id = CellId::random().map_err(RunError::Random)?;
        let process = step(link.attach(handle.process, Offsets::NOW)).await?.map_err(gone)?;
        let mut file = link
            .write_file(WriteSpec {
                path: known_path(&format!("{CELLS_DIRECTORY}/{id}")),
                how: WriteMode::Replace,
                mode: Some(0o600),
                owner: handle.user.clone().map(Owner::User),
                parents: Parents::Create,
            })
            .map_err(RunError::Guest)?;
        step(async {
            file.write(cell.code.as_bytes()).await?;
            file.finish().await
        })
        .await?
        .map_err(RunError::Guest)?;
        // A line that begins with a newline ends whatever was left of a line before it.
        let line = format!("\n{} {id}\n", verb.word());
        let sent =
            timeout(STEP_TIMEOUT, link.input(handle.process, line.as_bytes(), InputEnd::KeepOpen)).await;
        let run = Run {
            link: link.clone(),
            process,
            timeout: cell.timeout,
            stdout: ChannelState::new(&id),
            stderr: ChannelState::new(&id),
            phase: Phase::Waiting { until: Instant::now() + cell.timeout.max(BEGIN_TIMEOUT) },
            ready: VecDeque::new(),
            id,
            _turn: turn,
        };
        match sent {
            Ok(Ok(())) => Ok(run),
            Ok(Err(error)) => {
                run.withdraw().await?;
                Err(gone(error))
            }
            // The pipe is full of lines that the kernel does not read.
            Err(_) => {
                run.withdraw().await?;
                Err(RunError::Busy)
            }
        }
    }

    /// The context's process.
    #[must_use]
    pub fn process(&self) -> ProcessId {
        self.process.id()
    }

    /// What the cell did next; `None` after [`RunEvent::Ended`].
    pub async fn next(&mut self) -> Result<Option<RunEvent>, RunError> {
        loop {
            match self.ready.front() {
                Some(Ready::Fetch { offset, length }) => {
                    let event = self.fetch(*offset, *length).await?;
                    self.ready.pop_front();
                    return Ok(Some(event));
                }
                Some(Ready::Event(_)) => {
                    if let Some(Ready::Event(event)) = self.ready.pop_front() {
                        return Ok(Some(event));
                    }
                }
                None => {}
            }
            if let Phase::Over = self.phase {
                return Ok(None);
            }
            let until = self.phase.until();
            // Asked for itself, since a cell that always has something to say would never be late otherwise.
            if Instant::now() >= until {
                self.late().await?;
                continue;
            }
            match timeout_at(until, self.process.next()).await {
                Ok(Ok(event)) => self.take(event)?,
                Ok(Err(error)) => return Err(gone(error)),
                Err(_) => {}
            }
        }
    }

    /// Everything the cell does until its end.
    pub async fn collect(mut self, limits: RunLimits) -> Result<RunResult, RunError> {
        let (mut stdout, mut stderr) = (Bounded::default(), Bounded::default());
        let (mut results, mut results_bytes, mut results_truncated) = (Vec::new(), 0, false);
        let mut raised = None;
        while let Some(event) = self.next().await? {
            match event {
                RunEvent::Stdout(text) => stdout.push(&text, limits.output_bytes_max),
                RunEvent::Stderr(text) => stderr.push(&text, limits.output_bytes_max),
                RunEvent::Error(error) => raised = Some(error),
                RunEvent::ResultLeftOut => results_truncated = true,
                RunEvent::Result(bundle) => {
                    let bytes = results_bytes + bundle.bytes();
                    if results.len() < limits.results_max && bytes <= limits.results_bytes_max {
                        results_bytes = bytes;
                        results.push(bundle);
                    } else {
                        results_truncated = true;
                    }
                }
                RunEvent::Ended { ending, exit, count, duration } => {
                    return Ok(RunResult {
                        stdout: stdout.text,
                        stderr: stderr.text,
                        stdout_truncated: stdout.truncated,
                        stderr_truncated: stderr.truncated,
                        exit,
                        error: raised,
                        results,
                        results_truncated,
                        ending,
                        count,
                        duration,
                    });
                }
            }
        }
        Err(RunError::Malformed { what: "a cell without end" })
    }

    fn take(&mut self, event: ProcessEvent) -> Result<(), RunError> {
        match event {
            ProcessEvent::Output { channel, data, .. } => {
                let state = match channel {
                    Channel::Stdout => &mut self.stdout,
                    Channel::Stderr => &mut self.stderr,
                };
                for piece in state.scanner.push(&data)? {
                    self.take_piece(channel, piece)?;
                }
                Ok(())
            }
            // Of before the cell: while somebody is attached nothing is lost.
            ProcessEvent::Gap { .. } => Ok(()),
            ProcessEvent::Exited(exit) => {
                for channel in [Channel::Stdout, Channel::Stderr] {
                    let state = self.channel(channel);
                    if state.began && state.end.is_none() {
                        let rest = state.scanner.finish();
                        let text = state.decoder.push(&rest) + &state.decoder.finish();
                        self.say(channel, text);
                    }
                }
                match self.phase {
                    Phase::Waiting { .. } => Err(RunError::Gone { status: Some(exit.status) }),
                    _ => {
                        self.end(Ending::Died { status: exit.status }, exit.status.shell_code(), 0);
                        Ok(())
                    }
                }
            }
        }
    }

    fn channel(&mut self, channel: Channel) -> &mut ChannelState {
        match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        }
    }

    fn take_piece(&mut self, channel: Channel, piece: Piece) -> Result<(), RunError> {
        let state = self.channel(channel);
        if state.end.is_some() {
            // Of after the cell: background programs go on writing.
            return Ok(());
        }
        match piece {
            Piece::Text(bytes) if state.began => {
                let text = state.decoder.push(&bytes);
                self.say(channel, text);
            }
            Piece::Text(_) => {}
            Piece::Mark(Mark::Begin) => {
                state.began = true;
                if let Phase::Waiting { .. } = self.phase {
                    let since = Instant::now();
                    self.phase = Phase::Running { since, until: since + self.timeout };
                }
            }
            Piece::Mark(_) if !state.began => {
                return Err(RunError::Malformed { what: "a mark before the beginning" });
            }
            Piece::Mark(Mark::Record(json)) => {
                let record =
                    Record::parse(&json).ok_or(RunError::Malformed { what: "a record that is none" })?;
                self.ready.push_back(Ready::Event(record.into()));
            }
            Piece::Mark(Mark::RecordAt { length, .. }) if length > RECORD_BYTES_MAX => {
                self.ready.push_back(Ready::Event(RunEvent::ResultLeftOut));
            }
            Piece::Mark(Mark::RecordAt { offset, length }) => {
                self.ready.push_back(Ready::Fetch { offset, length });
            }
            Piece::Mark(Mark::End { exit, count }) => {
                let rest = state.decoder.finish();
                state.end = Some((exit, count));
                self.say(channel, rest);
                if let (Some((exit, count)), Some(_)) = (self.stdout.end, self.stderr.end) {
                    let ending = match self.phase {
                        Phase::Interrupted { .. } | Phase::Insisted { .. } => {
                            Ending::TimedOut { timeout: self.timeout, context: ContextState::Kept }
                        }
                        _ => Ending::Finished,
                    };
                    self.end(ending, exit, count);
                }
            }
        }
        Ok(())
    }

    fn say(&mut self, channel: Channel, text: String) {
        if !text.is_empty() {
            self.ready.push_back(Ready::Event(match channel {
                Channel::Stdout => RunEvent::Stdout(text),
                Channel::Stderr => RunEvent::Stderr(text),
            }));
        }
    }

    fn end(&mut self, ending: Ending, exit: i32, count: u64) {
        let duration = match self.phase {
            Phase::Running { since, .. }
            | Phase::Interrupted { since, .. }
            | Phase::Insisted { since, .. } => since.elapsed(),
            Phase::Waiting { .. } | Phase::Over => Duration::ZERO,
        };
        self.phase = Phase::Over;
        self.ready.push_back(Ready::Event(RunEvent::Ended { ending, exit, count, duration }));
    }

    /// A deadline has passed.
    async fn late(&mut self) -> Result<(), RunError> {
        match self.phase {
            Phase::Waiting { .. } => {
                self.phase = Phase::Over;
                self.withdraw().await?;
                Err(RunError::Busy)
            }
            Phase::Running { since, .. } => {
                self.phase = Phase::Interrupted { since, until: Instant::now() + INTERRUPT_TIMEOUT };
                self.interrupt().await
            }
            Phase::Interrupted { since, .. } => {
                self.phase = Phase::Insisted { since, until: Instant::now() + INTERRUPT_TIMEOUT };
                self.interrupt().await
            }
            Phase::Insisted { .. } => {
                step(context::kill(&self.link, self.process.id())).await?.map_err(RunError::Guest)?;
                let ending = Ending::TimedOut { timeout: self.timeout, context: ContextState::Lost };
                self.end(ending, ExitStatus::Signal(9).shell_code(), 0);
                Ok(())
            }
            Phase::Over => Ok(()),
        }
    }

    async fn interrupt(&self) -> Result<(), RunError> {
        step(context::interrupt(&self.link, self.process.id())).await?.map_err(RunError::Guest)
    }

    /// Takes the code back from a kernel that has not begun with it. Without its file a cell is skipped.
    async fn withdraw(&self) -> Result<(), RunError> {
        let path = known_path(&format!("{CELLS_DIRECTORY}/{}", self.id));
        match step(self.link.remove(path, RemoveScope::Single)).await? {
            Ok(()) | Err(CallError::Guest(Failure::File(_))) => Ok(()),
            Err(error) => Err(RunError::Guest(error)),
        }
    }

    /// A record from the cell's file.
    async fn fetch(&self, offset: u64, length: u64) -> Result<RunEvent, RunError> {
        let bytes_max =
            usize::try_from(length).map_err(|_| RunError::Malformed { what: "a record too long" })?;
        let path = known_path(&format!("{CELLS_DIRECTORY}/{}.out", self.id));
        let read = step(async {
            let reader = self.link.read_file(path, offset, Some(length)).await?;
            reader.read_to_end(bytes_max).await
        });
        match read.await? {
            Ok(Some(json)) if json.len() as u64 == length => {
                let record =
                    Record::parse(&json).ok_or(RunError::Malformed { what: "a record that is none" })?;
                Ok(record.into())
            }
            Ok(_) | Err(CallError::Guest(Failure::File(_))) => {
                Err(RunError::Malformed { what: "a record that is not there" })
            }
            Err(error) => Err(RunError::Guest(error)),
        }
    }
}

impl From<Record> for RunEvent {
    fn from(record: Record) -> Self {
        match record {
            Record::Display(bundle) => RunEvent::Result(bundle),
            Record::Error(error) => RunEvent::Error(error),
        }
    }
}

/// One step of talking to the guest, which must not take for ever.
async fn step<T>(future: impl Future<Output = T>) -> Result<T, RunError> {
    timeout(STEP_TIMEOUT, future).await.map_err(|_| RunError::Silent)
}

/// What a failure to reach the process means.
fn gone(error: CallError) -> RunError {
    use ProcessFailure::{NotFound, NotRunning, StdinClosed};
    match error {
        CallError::Guest(Failure::Process(NotFound | NotRunning | StdinClosed)) => {
            RunError::Gone { status: None }
        }
        error => RunError::Guest(error),
    }
}
