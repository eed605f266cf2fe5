//! Code contexts: Python, JavaScript, TypeScript and Bash that keep their state from one cell to the next, below HTTP.
//!
//! A *context* is an ordinary process of the guest, running a *kernel*: a program of ours that is carried in this crate and put
//! into the guest at first use, so that every template with the language has contexts. Because it is a process of the guest,
//! its state survives hibernation and snapshots and is inherited by forks; because the guest link names processes by an id that
//! holds across sessions, a context is found again from its [`ContextHandle`] after a restart of the server.
//!
//! ```text
//! Context ── code file, then "run <cell>" on stdin ──► kernel ──► user's code
//!    ▲                                                   │ fd 1, fd 2: the user's own output, untouched
//!    └── output, with short marks of this cell in it ◄───┘ large results: a file, named by a mark
//! ```
//!
//! The user's output does not pass through the kernel, so a program that writes while the interpreter is stuck is still heard,
//! and a slow reader slows only the writer. What belongs to a cell is told by marks that carry the cell's random id
//! (`kernels/README.md` has the protocol): a late answer of a cell that timed out names another id and is nobody's.
//!
//! Everything a guest says is taken as hostile: bounds are in [`limits`], and what cannot be understood is an error.

pub mod limits;

mod cell;
mod context;
mod error;
mod kernel;
mod language;
mod lsp;
mod once;
mod output;
mod record;
mod report;
mod run;
mod warm;
pub mod wire;

pub use cell::{Cell, CellId};
pub use context::{Context, ContextHandle, ContextSpec};
pub use error::{RunError, StartError};
pub use kernel::Kernel;
pub use language::{Language, ParseLanguageError, languages};
pub use lsp::{LanguageServer, ServerError, language_servers, start_server};
pub use once::{OnceError, OnceLanguage, OnceResult, once_languages, run_once};
pub use record::{Bundle, CellError};
pub use report::{ContextState, Ending, RunEvent, RunResult};
pub use run::Run;
pub use warm::{WarmError, leave_warm};
