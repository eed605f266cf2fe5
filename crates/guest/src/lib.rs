//! The program that is PID 1 in every guest: it boots the machine and then serves the host over the guest link.
//!
//! One thread runs an event loop and never blocks; a few workers do what may ([`agent`]). Nothing runs while nothing happens: no
//! timer ticks in an idle guest. The same agent serves any byte stream, so tests run it as an ordinary process.

#![allow(unsafe_code, reason = "PID 1 talks to the kernel; each block says why it is sound")]

pub mod agent;
pub mod boot;
mod connection;
mod file;
mod identity;
mod kernel;
mod poll;
mod process;
mod system;
pub mod tool;
mod workers;
