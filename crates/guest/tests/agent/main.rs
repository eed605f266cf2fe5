//! The agent as an ordinary process on a socket pair, driven through the real client.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod connections;
mod files;
mod harness;
mod link;
mod processes;
mod services;
