//! Messages and framing between a node and the program inside a guest.
//!
//! One byte stream (a virtio-serial port, later a vsock connection) carries many concurrent streams. A *session* starts with
//! the host's `Hello` and lasts until the next one; inside it the host opens a *stream* per request, and the guest answers on
//! that stream with events, data and one final result.
//!
//! ```text
//! bytes ──► frame (length, kind, stream, session tag) ──► message (postcard) ──► client (host) | agent (guest)
//! ```
//!
//! Everything that arrives is treated as hostile on both sides: lengths are checked before anything is stored, and each limit
//! is a constant in [`limits`].

pub mod frame;
pub mod limits;
pub mod message;
pub mod path;
pub mod session;
pub mod tool;

#[cfg(feature = "client")]
pub mod client;

pub use path::{GuestPath, WRITTEN_ASIDE};
