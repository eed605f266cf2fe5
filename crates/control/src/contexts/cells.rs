//! Cells: run to their end, or followed as they run. A cell goes on to its end, or its deadline, even when the caller goes away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use contract::error::Partial;
use contract::interpreter::{CellAnswer, CellExit, RunCell};
use interpreter::{
    Bundle, Cell, CellError, Context, ContextState, Ending, RunError, RunEvent, RunResult, limits::RunLimits,
};
use store::ReplRow;
use tokio::sync::mpsc;
use tracing::Instrument;

use super::{DEFAULT, language, timed_out, timeout};
use crate::access::InUse;
use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;
use crate::partial::partial;

/// Events that wait for a reader; then the cell's output waits in the guest.
const EVENTS_WAITING_MAX: usize = 16;
/// How long a reader may leave them unread. Then it is given up and the cell goes on without it: nothing else would keep to the
/// cell's deadline.
const READER_TIMEOUT: Duration = Duration::from_secs(30);

/// What a cell that is followed did next.
#[derive(Debug)]
pub enum CellEvent {
    /// It wrote. Never splits a character.
    Stdout(String),
    /// It wrote to standard error.
    Stderr(String),
    /// It showed something: one value by MIME types.
    Result(BTreeMap<String, String>),
    /// It is over. Nothing follows.
    Exit(CellExit),
    /// It was interrupted, or could not be run. Nothing follows.
    Failed(ControlError),
}

/// A cell that runs. Dropping this stops nothing but the following.
pub struct CellStream {
    events: mpsc::Receiver<CellEvent>,
}

impl CellStream {
    /// What it did next; none when nothing follows.
    pub async fn next(&mut self) -> Option<CellEvent> {
        self.events.recv().await
    }
}

/// A cell that is about to run, in a context that is there.
struct Turn {
    control: Control,
    sandbox: InUse,
    row: ReplRow,
    context: Arc<Context>,
    cell: Cell,
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// How a cell ended that was not interrupted.
fn exit(
    context_id: String,
    ending: Ending,
    code: i32,
    raised: Option<CellError>,
    duration: Duration,
) -> CellExit {
    let error = raised.map(|error| error.traceback).or_else(|| ending.sentence());
    let code = if error.is_some() && code == 0 { 1 } else { code };
    CellExit { exit: code, exit_code: code, error, duration_ms: milliseconds(duration), context_id }
}

/// That a cell was interrupted.
fn interrupted(ending: Ending) -> Option<ControlError> {
    match ending {
        Ending::TimedOut { .. } => Some(timed_out(ending.sentence().unwrap_or_default())),
        Ending::Finished | Ending::Died { .. } => None,
    }
}

fn answer(context_id: String, result: RunResult) -> Result<CellAnswer, ControlError> {
    let results: Vec<BTreeMap<String, String>> =
        result.results.into_iter().map(|Bundle { data, .. }| data).collect();
    if let Some(error) = interrupted(result.ending) {
        let truncated = result.stdout_truncated || result.stderr_truncated;
        let written =
            Partial { results: Some(results), ..partial(&result.stdout, &result.stderr, truncated) };
        return Err(error.partial(written));
    }
    let exit = exit(context_id, result.ending, result.exit, result.error, result.duration);
    Ok(CellAnswer {
        stdout: result.stdout,
        stderr: result.stderr,
        exit: exit.exit,
        exit_code: exit.exit_code,
        error: exit.error,
        results,
        duration_ms: exit.duration_ms,
        context_id: exit.context_id,
    })
}

impl Turn {
    /// Writes down that the cell was run, or that its context is over.
    async fn ran(&self, lost: bool) -> Result<(), ControlError> {
        let (sandbox, id) = (&self.row.sandbox, self.row.id.as_str());
        let changing = self.control.open_contexts().changing(sandbox);
        let _changing = changing.lock().await;
        let store = self.control.store();
        let known = store.repl(sandbox, id).await?;
        // A default context may have been made anew since, by another cell that found it lost.
        let Some(mut row) = known.filter(|known| known.handle == self.row.handle) else { return Ok(()) };
        if lost {
            self.control.open_contexts().forget(sandbox, id);
            store.remove_repl(sandbox, id).await?;
        } else {
            row.cells += 1;
            store.change_repl(row).await?;
        }
        Ok(())
    }

    /// An error of the kernel as the caller is told of it.
    fn failed(&self, error: RunError) -> ControlError {
        let gone = matches!(error, RunError::Gone { .. });
        let told = ControlError::from(error);
        if gone && self.row.id.starts_with(DEFAULT) {
            return told.hint("the default context is made anew when code is run the next time");
        }
        told
    }

    async fn collect(self) -> Result<CellAnswer, ControlError> {
        let outcome = self.context.run(&self.sandbox.link, self.cell.clone()).await;
        let lost = match &outcome {
            Ok(result) => result.ending.context() == ContextState::Lost,
            Err(error) => matches!(error, RunError::Gone { .. }),
        };
        self.ran(lost).await?;
        match outcome {
            Ok(result) => answer(self.row.id.clone(), result),
            Err(error) => Err(self.failed(error)),
        }
    }

    async fn follow(self, events: mpsc::Sender<CellEvent>) {
        let mut reader = Reader(Some(events));
        let outcome = self.tell(&mut reader).await;
        let lost = match &outcome {
            Ok((ending, _)) => ending.context() == ContextState::Lost,
            Err(error) => matches!(error, RunError::Gone { .. }),
        };
        let written = self.ran(lost).await;
        let last = match (outcome, written) {
            (_, Err(error)) => CellEvent::Failed(error),
            (Err(error), _) => CellEvent::Failed(self.failed(error)),
            (Ok((ending, exit)), _) => interrupted(ending).map_or(CellEvent::Exit(exit), CellEvent::Failed),
        };
        reader.send(last).await;
    }

    /// Runs the cell and tells all it does but its end.
    async fn tell(&self, reader: &mut Reader) -> Result<(Ending, CellExit), RunError> {
        let mut run = self.context.begin(&self.sandbox.link, self.cell.clone()).await?;
        let (mut raised, mut results, mut results_bytes) = (None, 0, 0);
        while let Some(event) = run.next().await? {
            match event {
                RunEvent::Stdout(text) => reader.send(CellEvent::Stdout(text)).await,
                RunEvent::Stderr(text) => reader.send(CellEvent::Stderr(text)).await,
                RunEvent::Result(bundle) => {
                    let limits = RunLimits::USUAL;
                    results += 1;
                    results_bytes += bundle.bytes();
                    if results <= limits.results_max && results_bytes <= limits.results_bytes_max {
                        reader.send(CellEvent::Result(bundle.data)).await;
                    }
                }
                RunEvent::ResultLeftOut => {}
                RunEvent::Error(error) => raised = Some(error),
                RunEvent::Ended { ending, exit: code, duration, .. } => {
                    return Ok((ending, exit(self.row.id.clone(), ending, code, raised, duration)));
                }
            }
        }
        Err(RunError::Malformed { what: "a cell without end" })
    }
}

/// Who follows a cell, until it is gone.
struct Reader(Option<mpsc::Sender<CellEvent>>);

impl Reader {
    async fn send(&mut self, event: CellEvent) {
        if let Some(events) = &self.0
            && events.send_timeout(event, READER_TIMEOUT).await.is_err()
        {
            self.0 = None;
        }
    }
}

impl Control {
    /// Gets a context ready for a cell, in a sandbox that is woken for it.
    async fn turn(
        &self,
        caller: &Caller,
        id: &str,
        context: &str,
        request: RunCell,
    ) -> Result<Turn, ControlError> {
        let timeout = timeout(request.timeout_ms)?;
        let language = match context {
            DEFAULT => Some(language(request.language.as_deref())?),
            _ if request.language.is_some() => {
                let message =
                    "language is only for the context `default`; any other has the one it was made with";
                return Err(ControlError::invalid(message));
            }
            _ => None,
        };
        let sandbox = self.enter(caller, id).await?;
        let (control, context) = (self.clone(), context.to_owned());
        self.finish(async move {
            let row = match language {
                Some(language) => control.default_context(&sandbox, language).await?,
                None => control.context(&sandbox.row, &context).await?,
            };
            let context = control.open_contexts().find(&row)?;
            let cell = Cell::new(request.code).with_timeout(timeout);
            Ok(Turn { control, sandbox, row, context, cell })
        })
        .await
    }

    /// Runs a cell and collects what it does. `default` names the sandbox's default context of the request's language.
    pub async fn run_cell(
        &self,
        caller: &Caller,
        id: &str,
        context: &str,
        request: RunCell,
    ) -> Result<CellAnswer, ControlError> {
        let turn = self.turn(caller, id, context, request).await?;
        self.finish(turn.collect()).await
    }

    /// Runs a cell and tells what it does as it does it.
    pub async fn stream_cell(
        &self,
        caller: &Caller,
        id: &str,
        context: &str,
        request: RunCell,
    ) -> Result<CellStream, ControlError> {
        let turn = self.turn(caller, id, context, request).await?;
        let (sender, events) = mpsc::channel(EVENTS_WAITING_MAX);
        self.tasks().spawn(turn.follow(sender).in_current_span());
        Ok(CellStream { events })
    }
}
