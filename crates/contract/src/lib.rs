//! The public wire types, one file per resource. The OpenAPI document is generated from here.
//!
//! Requests are forgiving, because published clients differ: unknown fields are ignored, `null` means absent. Answers are strict:
//! every field that a client reads as a number is a number, lists are never `null`.

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
pub mod volume;
