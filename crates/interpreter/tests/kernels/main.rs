//! Kernels run by the programs of this host, without a guest: fast, and for versions that no template has.
//!
//! A language that the host lacks is skipped, loudly.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod bash;
mod driver;
mod node;
mod python;
