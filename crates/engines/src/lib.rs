//! Opens the engine of a host: finds out what works there, chooses, and starts what was chosen.
//!
//! The one place that knows every engine by name. [`Settings`] come in; a [`host::EngineChoice`] and a [`machine::Engine`] come out.
//! All of it blocks: call it from a thread that may.

mod config;
mod error;
mod settings;

pub use config::EngineConfig;
pub use error::OpenError;
pub use settings::{Opened, Settings};
