//! The jail around a machine process.
//!
//! A guest that breaks out of its virtual machine finds itself in a process with a user id of its own and no capabilities, alone
//! in its pid, mount, ipc, uts and network namespaces, on a read-only root that holds the engine's program, its libraries and
//! nothing else. Disks, taps and sockets come in as open descriptors; the one file it opens by
//! name besides its own program is its memory (and the kernel, when it boots), put into its root for it alone.
//!
//! A program that cannot be handed descriptors gets its files by name, the few device nodes it opens, a small directory in memory
//! that it may write, and the network namespace of its tap.

mod own;
mod root;
mod spawn;

pub use own::{DeviceNode, Room};
pub use root::{JailRoot, RootContent, RootError};
pub use spawn::{Bind, BindMode, Jail, JailError, Spawned};
