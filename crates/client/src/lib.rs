//! The API from the other side: what the command line speaks to a server with.
//!
//! ```text
//! Api ─► one call per route, typed with the contract
//!  ├─► Events      server-sent events, one after the other
//!  ├─► exec        a command: output byte for byte, input, signals
//!  ├─► processes   commands that outlive their connection
//!  ├─► cells       code in a context, followed as it runs
//!  ├─► tunnel      a TCP connection to a port of a guest
//!  └─► terminal    a shell in a terminal
//! ```
//!
//! Knows nothing of configuration files, terminals or exit codes: those are the binary's. Keys go to the server they are for and
//! nowhere else: nothing is redirected. [`Fetcher`] follows redirects, and has no key: it fetches what is public.

mod address;
mod api;
mod builds;
mod cells;
mod contexts;
mod error;
mod events;
mod exec;
mod fetch;
mod file_watch;
mod files;
mod http;
mod identity;
mod mcp;
mod multipart;
mod preparing;
mod processes;
mod retry;
mod sandboxes;
mod snapshots;
mod socket;
mod templates;
mod terminal;
mod tls;
mod tunnel;
mod volumes;

pub use address::ServerAddress;
pub use api::{Api, ApiSettings, Waiting};
pub use builds::{BuildForm, BuildLog, BuildSource, build_is_over};
pub use cells::{Cell, CellEvent, CellOutput, CellRun, DEFAULT_CONTEXT};
pub use error::{ClientError, Refusal};
pub use events::{Event, Events};
pub use exec::{Command, CommandLine, ExecEvent, ExecInput, ExecOutput};
pub use fetch::{FetchError, Fetched, Fetcher};
pub use file_watch::{FileChanged, FileWatch, WatchEvent};
pub use files::{Download, FileLink, LinkFor};
pub use http::{Bytes, Upload, upload_bytes, upload_stream};
pub use processes::{ProcessEvent, ProcessOutput};
pub use terminal::{TerminalEvent, TerminalInput, TerminalOutput, TerminalSize};
pub use tunnel::{TunnelEvent, TunnelInput, TunnelOutput};
