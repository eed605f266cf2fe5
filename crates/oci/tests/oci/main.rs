//! Images as a caller uses them: unpacked, imported, pulled from a real registry and from servers that misbehave. Needs root, because
//! files get owners.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod cage;
mod debian;
mod files;
mod hostile;
mod imports;
mod layers;
mod misbehaving;
mod registry;
mod server;
