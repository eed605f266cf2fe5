//! Kernels run by the programs of this host, without a guest: fast, and for versions that no template has.
//!
//! A language that the host lacks is skipped, loudly.

mod bash;
mod driver;
mod node;
mod python;
