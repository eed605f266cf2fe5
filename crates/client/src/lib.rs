//! The API from the other side: what the command line speaks to a server with.
//!
//! ```text
//! Api ─► one call per route, typed with the contract
//!  ├─► Events      server-sent events, one after the other
//!  ├─► exec        a command: output byte for byte, input, signals
//!  ├─► processes   commands that outlive their connection
//!  └─► terminal    a shell in a terminal
//! ```
//!
//! Knows nothing of configuration files, terminals or exit codes: those are the binary's. Keys go to the server they are for and
//! nowhere else: nothing is redirected. [`Fetcher`] follows redirects, and has no key: it fetches what is public.

mod address;
mod api;
mod builds;
mod contexts;
mod error;
mod events;
mod exec;
mod fetch;
mod files;
mod http;
mod identity;
mod mcp;
mod multipart;
mod processes;
mod retry;
mod sandboxes;
mod snapshots;
mod socket;
mod templates;
mod terminal;
mod tls;
mod volumes;

pub use address::ServerAddress;
pub use api::{Api, ApiSettings, Waiting};
pub use builds::{BuildForm, BuildLog, BuildSource, build_is_over};
pub use error::{ClientError, Refusal};
pub use events::{Event, Events};
pub use exec::{Command, CommandLine, ExecEvent, ExecInput, ExecOutput};
pub use fetch::{FetchError, Fetched, Fetcher};
pub use files::Download;
pub use http::{Bytes, Upload, upload_bytes, upload_stream};
pub use processes::{ProcessEvent, ProcessOutput};
pub use terminal::{TerminalEvent, TerminalInput, TerminalOutput, TerminalSize};
