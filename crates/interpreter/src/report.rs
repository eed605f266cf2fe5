//! What became of a cell.

use std::time::Duration;

use guest_link::message::ExitStatus;

use crate::record::{Bundle, CellError};

/// What a running cell did next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunEvent {
    /// It wrote. Never splits a character.
    Stdout(String),
    /// It wrote an error.
    Stderr(String),
    /// It showed something, or its last expression has a value.
    Result(Bundle),
    /// It raised.
    Error(CellError),
    /// A result was too large to be given.
    ResultLeftOut,
    /// It is over. Nothing follows.
    Ended {
        /// How.
        ending: Ending,
        /// 0, or what went wrong as a number: 1 for an exception, a shell's exit code.
        exit: i32,
        /// How many cells this context has run, this one included; 0 when it is not known.
        count: u64,
        /// How long it ran.
        duration: Duration,
    },
}

/// How a cell came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, well or with an error.
    Finished,
    /// Its time was up and it was interrupted.
    TimedOut {
        /// How long it was given.
        timeout: Duration,
        /// Whether the context can go on.
        context: ContextState,
    },
    /// The context's process ended under it: killed, out of memory, or by the cell itself.
    Died {
        /// How.
        status: ExitStatus,
    },
}

/// What is left of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContextState {
    /// The next cell finds everything as it was.
    Kept,
    /// The process did not react and was killed; the context is over.
    Lost,
}

impl Ending {
    /// Whether the context can run another cell.
    #[must_use]
    pub const fn context(self) -> ContextState {
        match self {
            Ending::Finished | Ending::TimedOut { context: ContextState::Kept, .. } => ContextState::Kept,
            Ending::TimedOut { .. } | Ending::Died { .. } => ContextState::Lost,
        }
    }

    /// A sentence for callers; `None` when there is nothing to explain.
    #[must_use]
    pub fn sentence(self) -> Option<String> {
        match self {
            Ending::Finished => None,
            Ending::TimedOut { timeout, context } => {
                let after = format!("timeout: the cell ran longer than {} ms", timeout.as_millis());
                Some(match context {
                    ContextState::Kept => format!("{after} and was interrupted; the context keeps its state"),
                    ContextState::Lost => format!(
                        "{after} and did not stop when interrupted; the context was ended and its state is lost"
                    ),
                })
            }
            Ending::Died { status } => {
                let how = match status {
                    ExitStatus::Code(code) => format!("exited with code {code}"),
                    ExitStatus::Signal(signal) => format!("was killed by signal {signal}"),
                };
                Some(format!("the context's process {how} while the cell ran; its state is lost"))
            }
        }
    }
}

/// Everything a cell did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunResult {
    /// What it wrote, its beginning where that was too much.
    pub stdout: String,
    /// Its errors.
    pub stderr: String,
    /// Whether `stdout` is only the beginning.
    pub stdout_truncated: bool,
    /// Whether `stderr` is only the beginning.
    pub stderr_truncated: bool,
    /// 0, or what went wrong as a number.
    pub exit: i32,
    /// What it raised.
    pub error: Option<CellError>,
    /// What it showed, and the value of its last expression.
    pub results: Vec<Bundle>,
    /// Whether results are missing because they were too large or too many.
    pub results_truncated: bool,
    /// How it came to its end.
    pub ending: Ending,
    /// How many cells this context has run.
    pub count: u64,
    /// How long it ran.
    pub duration: Duration,
}
