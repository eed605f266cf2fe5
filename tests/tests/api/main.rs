//! The service through HTTP, with real machines. Most tests share one server; each has sandboxes of its own.

mod exec;
mod lifecycle;
mod processes;

/// A path below a sandbox's.
fn at(id: &str, rest: &str) -> String {
    format!("/v1/sandboxes/{id}{rest}")
}
