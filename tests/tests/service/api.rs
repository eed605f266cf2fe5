//! The service through HTTP, with real machines. Most tests share one server; each has sandboxes of its own.

mod code;
mod document;
mod exec;
mod files;
mod foreign;
mod forks;
mod hostile;
mod keys;
mod lifecycle;
mod limits;
mod networks;
mod observation;
mod ports;
mod processes;
mod secrets;
mod sizes;
mod snapshots;
mod volumes;

/// A path below a sandbox's.
fn at(id: &str, rest: &str) -> String {
    format!("/v1/sandboxes/{id}{rest}")
}
