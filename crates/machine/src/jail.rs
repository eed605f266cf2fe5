//! The jail around a machine process.
//!
//! A guest that breaks out of its virtual machine finds itself in a process with a user id of its own and no capabilities, alone
//! in its pid, mount, ipc, uts and network namespaces, on a read-only root that holds the engine's program, its libraries and
//! nothing else. Disks, taps and sockets come in as open descriptors; the one file it opens by
//! name besides its own program is its memory (and the kernel, when it boots), put into its root for it alone.

mod root;
mod spawn;

pub use root::{JailRoot, RootError};
pub use spawn::{Bind, BindMode, Jail, JailError, Spawned};
