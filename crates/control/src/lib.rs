//! Services on top of a node: tenants and their keys, sandboxes and their lives, snapshots, forks, volumes, previews.
//!
//! [`Control`] is what every face of the product (HTTP, MCP, later others) calls. It checks who asks, writes down what is wanted
//! before it is done, does it on the node, and answers with wire types. A caller who goes away does not stop what it asked for:
//! whatever makes or removes things runs to its end in a task of its own.
//!
//! ```text
//! server ─► Control ─► Store   (who owns what, what was asked for)
//!                 └──► Node    (what machines do)
//! ```

mod access;
mod activity;
mod audit;
mod authenticate;
mod builds;
mod caller;
mod clock;
mod config;
mod connection_process;
mod console;
mod contexts;
mod control;
mod create;
mod error;
mod events;
mod exec;
mod files;
mod filter;
mod fork;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod host_process;
mod lifecycle;
mod lineage;
mod lookup;
mod measure;
mod mount;
mod names;
mod network_hint;
mod operation;
mod operator;
mod partial;
mod ports;
mod preview;
mod process;
mod process_output;
mod rate;
mod reaper;
mod recovery;
mod sandboxes;
mod signed_file;
mod snapshots;
mod templates;
mod terminal;
mod tokens;
mod view;
mod volumes;
mod watch;

pub use access::InUse;
pub use builds::{LogLines, Upload};
pub use caller::Caller;
pub use config::{BuildConfig, ControlConfig};
pub use connection_process::{ConnectionProcess, OnDisconnect, Resizer};
pub use contexts::{CellEvent, CellStream};
pub use control::{Control, OpenError};
pub use error::{ControlError, Kind};
pub use events::EventStream;
pub use exec::{EXEC_OUTPUT_BYTES_MAX, ExecStream, InputSource, exec_failure};
pub use measure::Measurements;
pub use network_hint::NetworkHint;
pub use operator::{NetworkDefault, OperatorRequest, QuotaChange, Tenant, operate};
pub use partial::PartialOutput;
pub use preview::{PreviewGrant, PreviewTarget};
pub use process_output::{OutputPiece, ProcessOutput};
pub use signed_file::FileGrant;
pub use templates::catalogue_names;
pub use terminal::ShellRequest;
pub use tokens::check_bootstrap_key;
pub use watch::{FileWatch, Watched};
