//! What the suites in `tests/tests` share: nodes over data directories of their own, guests to talk to, counts of what is left.
//!
//! Everything is real: virtual machines, namespaces, file systems. Baking a template takes a minute, so each is made once and kept
//! between runs ([`baked`]); every lab is a data directory with a copy of those it names ([`lab`]). A process that ends in whatever way is
//! cleaned up after by a janitor that outlives it ([`leftovers`]).

pub mod api;
pub mod baked;
pub mod cache;
pub mod census;
pub mod collector;
pub mod command;
pub mod conformance;
pub mod engine;
pub mod form;
pub mod frail_store;
pub mod guest;
pub mod harm;
pub mod huge_pages;
pub mod lab;
pub mod leftovers;
pub mod node_process;
pub mod packed;
pub mod program;
pub mod published;
pub mod registry;
pub mod s3_server;
pub mod tls_front;
pub mod wait;

pub use api::{Api, ApiSettings, in_api};
pub use guest::Guest;
pub use lab::{Lab, LabSettings, NAME_SERVER, in_lab, run, run_alone, run_for};
