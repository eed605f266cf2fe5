//! A context: a kernel's process in a guest, and whose turn it is in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use guest_link::GuestPath;
use guest_link::client::{CallError, Link};
use guest_link::message::{Failure, ProcessFailure, ProcessId, ProcessSpec, SignalScope, Stdin, User};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::cell::Cell;
use crate::error::{RunError, StartError};
use crate::kernel::{CELLS_DIRECTORY, Kernel};
use crate::language::Language;
use crate::limits::{CODE_BYTES_MAX, QUEUE_MAX, STEP_TIMEOUT};
use crate::report::RunResult;
use crate::run::{Run, Verb};
use crate::warm;

const SIGINT: i32 = 2;
const SIGKILL: i32 = 9;

/// What to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextSpec {
    /// The language.
    pub language: Language,
    /// Variables on top of the guest's usual ones.
    pub env: Vec<(String, String)>,
    /// Working directory; the user's home when absent.
    pub cwd: Option<GuestPath>,
    /// Who runs it; root when absent.
    pub user: Option<User>,
}

impl ContextSpec {
    /// As root, at home, with the usual variables.
    #[must_use]
    pub const fn new(language: Language) -> ContextSpec {
        ContextSpec { language, env: Vec::new(), cwd: None, user: None }
    }
}

/// What is needed to find a context again: in the same sandbox, in a fork of it, after hibernation or a restart of the server.
/// To be kept by the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextHandle {
    /// The kernel's process.
    pub process: ProcessId,
    /// Its language.
    pub language: Language,
    /// Who runs it.
    pub user: Option<User>,
}

/// A context. One cell runs at a time; others wait in order. Dropping it leaves the process running.
///
/// There should be one `Context` per handle and sandbox, since the turns are kept here; with two, cells still never mix, but
/// one may be told that the context is busy.
#[derive(Debug)]
pub struct Context {
    handle: ContextHandle,
    turn: Arc<Semaphore>,
    waiting: AtomicUsize,
}

impl Context {
    /// Starts a kernel, or takes over the one that its template left running. Returns as soon as its process runs; the first
    /// cell waits until it is ready.
    pub async fn start(link: &Link, spec: ContextSpec) -> Result<Context, StartError> {
        if let Some(context) = warm::adopt(link, &spec).await {
            return Ok(context);
        }
        Context::start_fresh(link, spec).await
    }

    /// Starts a kernel, whatever the template left running.
    pub(crate) async fn start_fresh(link: &Link, spec: ContextSpec) -> Result<Context, StartError> {
        match timeout(STEP_TIMEOUT, Context::start_unbounded(link, spec)).await {
            Ok(result) => result,
            Err(_) => Err(StartError::Silent),
        }
    }

    async fn start_unbounded(link: &Link, spec: ContextSpec) -> Result<Context, StartError> {
        let ContextSpec { language, env, cwd, user } = spec;
        let kernel = Kernel::of(language);
        let file = kernel.install(link).await.map_err(|source| StartError::Install { language, source })?;
        for program in language.programs() {
            let mut process = ProcessSpec::argv(kernel.command(program, &file, CELLS_DIRECTORY));
            process.env.clone_from(&env);
            process.cwd.clone_from(&cwd);
            // Whoever a template's image runs its processes by: kernels are root's unless somebody else is asked for.
            process.user = Some(user.clone().unwrap_or(User::ROOT));
            process.stdin = Stdin::Pipe;
            process.tag = Some(format!("repl-{language}"));
            match link.start_detached(process).await {
                Ok(started) => {
                    return Ok(Context::attach(ContextHandle { process: started.process, language, user }));
                }
                Err(CallError::Guest(Failure::Process(ProcessFailure::ProgramNotFound))) => {}
                Err(source) => return Err(StartError::Spawn { language, source }),
            }
        }
        let program = language.programs().first().copied().unwrap_or_default();
        Err(StartError::LanguageMissing { language, program })
    }

    /// A context that was started before. Does not ask the guest; see [`Context::alive`].
    #[must_use]
    pub fn attach(handle: ContextHandle) -> Context {
        Context { handle, turn: Arc::new(Semaphore::new(1)), waiting: AtomicUsize::new(0) }
    }

    /// What to keep.
    #[must_use]
    pub const fn handle(&self) -> &ContextHandle {
        &self.handle
    }

    /// Its language.
    #[must_use]
    pub const fn language(&self) -> Language {
        self.handle.language
    }

    /// Runs a cell and collects what it does. Whoever drops the future abandons the cell: it goes on without a deadline and
    /// keeps the context busy. Run it on a task of its own where callers may leave.
    pub async fn run(&self, link: &Link, cell: Cell) -> Result<RunResult, RunError> {
        let limits = cell.limits;
        self.begin(link, cell).await?.collect(limits).await
    }

    /// Runs a cell and gives what it does as it comes. The cell's deadline is kept while [`Run::next`] is awaited.
    pub async fn begin(&self, link: &Link, cell: Cell) -> Result<Run, RunError> {
        if cell.code.len() > CODE_BYTES_MAX {
            return Err(RunError::CodeTooLong { bytes: cell.code.len() });
        }
        self.ask(link, Verb::Run, cell).await
    }

    /// Asks the kernel for something, when it is its turn.
    pub(crate) async fn ask(&self, link: &Link, verb: Verb, cell: Cell) -> Result<Run, RunError> {
        let turn = self.take_turn().await?;
        Run::begin(link, &self.handle, verb, cell, turn).await
    }

    async fn take_turn(&self) -> Result<OwnedSemaphorePermit, RunError> {
        if let Ok(turn) = Arc::clone(&self.turn).try_acquire_owned() {
            return Ok(turn);
        }
        let _waiting = Waiting::enter(&self.waiting).ok_or(RunError::QueueFull)?;
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        Ok(turn.expect("the semaphore of a context is never closed"))
    }

    /// Interrupts what runs, as Ctrl-C does: the kernel and the programs it started. Nothing happens when nothing runs.
    pub async fn interrupt(&self, link: &Link) -> Result<(), CallError> {
        link.signal(self.handle.process, SIGINT, SignalScope::Group).await
    }

    /// Ends the context and the programs it started. A context that has ended is fine.
    pub async fn close(&self, link: &Link) -> Result<(), CallError> {
        kill(link, self.handle.process).await
    }

    /// Whether its process runs.
    pub async fn alive(&self, link: &Link) -> Result<bool, CallError> {
        match link.process(self.handle.process).await {
            Ok(info) => Ok(info.exit.is_none()),
            Err(CallError::Guest(Failure::Process(ProcessFailure::NotFound))) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Interrupts a process group.
pub(crate) async fn interrupt(link: &Link, process: ProcessId) -> Result<(), CallError> {
    over_is_fine(link.signal(process, SIGINT, SignalScope::Group).await)
}

/// Kills a process group.
pub(crate) async fn kill(link: &Link, process: ProcessId) -> Result<(), CallError> {
    over_is_fine(link.signal(process, SIGKILL, SignalScope::Group).await)
}

fn over_is_fine(result: Result<(), CallError>) -> Result<(), CallError> {
    use ProcessFailure::{NotFound, NotRunning};
    match result {
        Err(CallError::Guest(Failure::Process(NotFound | NotRunning))) => Ok(()),
        other => other,
    }
}

/// A place among those who wait, given back when dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn enter(count: &'a AtomicUsize) -> Option<Waiting<'a>> {
        let place = Waiting(count);
        (count.fetch_add(1, Ordering::Relaxed) < QUEUE_MAX).then_some(place)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded_and_places_come_back() {
        let count = AtomicUsize::new(0);
        let places: Vec<_> = (0..QUEUE_MAX).map(|_| Waiting::enter(&count).unwrap()).collect();
        assert!(Waiting::enter(&count).is_none());
        drop(places);
        assert!(Waiting::enter(&count).is_some());
    }

    #[test]
    fn a_handle_survives_being_written_down() {
        let handle = ContextHandle { process: ProcessId(7), language: Language::TypeScript, user: None };
        let text = serde_json::to_string(&handle).unwrap();
        assert_eq!(text, r#"{"process":7,"language":"typescript","user":null}"#);
        assert_eq!(serde_json::from_str::<ContextHandle>(&text).unwrap(), handle);
    }
}
