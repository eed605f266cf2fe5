//! HTTP: one file per resource, on top of the services in `control`.
//!
//! ```text
//! connection ─► host routing ({port}-{id}.…: preview) ─► request id, log, CORS ─► key, rate, audit ─► handler ─► Control
//! ```
//!
//! Handlers translate and nothing more. Every failed request answers the same flat object ([`contract::error::ErrorBody`]); what
//! operators need to know beyond it goes to the log under the same request id. There is no catch-all route.

mod access_log;
mod answer;
mod app;
mod arrival;
mod ascii_json;
mod audit;
mod auth;
mod body;
mod builds;
mod client_stream;
mod connections;
mod contexts;
mod docs;
mod events;
mod exec;
mod exec_socket;
mod extract;
mod file_watch;
mod files;
mod forks;
mod forward;
mod identity;
mod language_server;
mod lifecycle;
mod logs;
mod mcp;
mod metrics;
mod operations;
mod page;
mod ports;
mod preview;
mod preview_host;
mod processes;
mod proxy;
mod query;
mod request_id;
mod sandbox_filter;
mod sandboxes;
mod serve;
mod signed_file;
mod snapshots;
mod socket;
mod sse;
mod templates;
mod terminal;
mod tunnel;
mod utf8;
mod volumes;

pub use app::{openapi, router};
pub use operations::Build;
pub use serve::{ServerConfig, serve};
