//! The public wire types, one file per resource. The OpenAPI document is generated from here.
//!
//! Requests are strict: a field that nobody knows is refused by name, because a misspelt option that is ignored is worse than an
//! error. Fields that published clients send and this server has no use for are accepted; `null` means absent. In answers every field that a client reads as a number is a number, lists are never `null`.

pub mod error;
pub mod event;
pub mod exec;
pub mod file;
pub mod identity;
pub mod interpreter;
pub mod lifecycle;
pub mod operation;
pub mod port;
pub mod process;
pub mod sandbox;
pub mod snapshot;
pub mod template;
pub mod time;
pub mod tree;
pub mod volume;
