//! What the guest program is asked when it is run as an ordinary process of its own guest: `/proc/1/exe tool`.
//!
//! Templates are built inside guests whose root file system may hold nothing at all, so the one program that is always there does
//! what a shell and its tools would. A request comes on standard input: its length (four bytes, least significant first), then
//! the message; what follows is for the command, if the request runs one. Trouble is told on standard error, in a sentence.

use serde::{Deserialize, Serialize};

use crate::message::{self, EntryKind};
use crate::path::GuestPath;

/// The program, as every process of a guest can name it.
pub const PROGRAM: &str = "/proc/1/exe";

/// Its first argument.
pub const ARGUMENT: &str = "tool";

/// Longest request. Longer ones are refused by both sides.
pub const REQUEST_BYTES_MAX: usize = 16 * 1024 * 1024;

/// Most names in one [`Found`].
pub const NAMES_MAX: usize = 100_000;

/// Longest [`Found`] as bytes.
pub const FOUND_BYTES_MAX: usize = 32 * 1024 * 1024;

/// What the tool exits with when it could not do its own part of a [`ToolRequest::Run`].
pub const EXIT_TOOL: u8 = 125;

/// What it exits with when the program may not be run, as shells do.
pub const EXIT_NOT_EXECUTABLE: u8 = 126;

/// What it exits with when there is no such program, as shells do.
pub const EXIT_NOT_FOUND: u8 = 127;

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToolRequest {
    /// Mount disks.
    Mount(Vec<DiskMount>),
    /// Copy files.
    Copy(CopyRequest),
    /// Make a directory and its parents; one that is there is fine.
    MakeDirectory {
        /// The path.
        path: GuestPath,
        /// Owner of every directory made, as `user`, `uid`, `user:group` or `uid:gid`; root when absent.
        owner: Option<String>,
    },
    /// Tell what is at a path → [`Found`] on standard output, nothing at all when nothing is there.
    Look(Place),
    /// Run a command.
    Run(RunRequest),
    /// Flush the file system mounted at a path and let nobody write it: then a line on standard output, and as before at the end of
    /// standard input, or after [`HOLD_SECONDS_MAX`].
    Hold(GuestPath),
}

/// A file system is not held longer than this: then the tool fails.
pub const HOLD_SECONDS_MAX: u32 = 120;

/// A disk to mount.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskMount {
    /// Its device.
    pub device: GuestPath,
    /// Where to.
    pub place: GuestPath,
    /// Whether it may be written.
    pub writable: bool,
}

/// A path below a directory that symbolic links in it cannot lead out of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The directory.
    pub root: GuestPath,
    /// The path as seen in there. All links are followed.
    pub path: GuestPath,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// What it is.
    pub kind: EntryKind,
    /// A directory's entries, sorted; links are not followed.
    pub names: Vec<(Vec<u8>, EntryKind)>,
}

/// Files to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyRequest {
    /// In this order.
    pub items: Vec<CopyFrom>,
    /// Who gets them, as `user`, `uid`, `user:group` or `uid:gid`; their own numbers when absent.
    pub owner: Option<String>,
    /// Permission bits of files and directories; their own when absent.
    pub mode: Option<u32>,
}

/// One thing to copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CopyFrom {
    /// From here.
    pub from: Place,
    /// To there. Missing parents are made.
    pub to: GuestPath,
    /// How much of it.
    pub what: CopyWhat,
}

/// How much of something is copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum CopyWhat {
    /// Everything in a directory, into a directory that may be there and have other things in it.
    Contents,
    /// The file itself, under exactly the name given. A directory is copied as its contents.
    Itself,
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRequest {
    /// The program, looked up on `PATH` unless it has a slash, and its arguments.
    pub argv: Vec<String>,
    /// All its variables, besides `PATH` and `HOME` where they are missing here.
    pub env: Vec<(String, String)>,
    /// Working directory; `/` when absent.
    pub cwd: Option<GuestPath>,
    /// Who runs it, as `user`, `uid`, `user:group` or `uid:gid`; root when absent.
    pub user: Option<String>,
    /// What is mounted for it, in this order.
    pub mounts: Vec<Mount>,
    /// Name servers for the time it runs, as the text of `/etc/resolv.conf`.
    pub resolver: Option<String>,
    /// A directory it does not see into.
    pub hidden: Option<GuestPath>,
}

/// Something mounted for a command only. A mount point that is missing is made, and removed afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mount {
    /// A file or directory.
    Bind {
        /// From here.
        from: Place,
        /// To there.
        to: GuestPath,
        /// Whether the command may write: it writes a copy in memory then, which is lost afterwards.
        writable: bool,
    },
    /// A directory that stays, with what the command writes into it.
    Kept {
        /// From here. Made when it is missing.
        from: Place,
        /// To there.
        to: GuestPath,
        /// Whether the command may write.
        writable: bool,
        /// Permission bits when it is made.
        mode: u32,
        /// Owner when it is made.
        uid: u32,
        /// Group when it is made.
        gid: u32,
    },
    /// An empty directory in memory.
    Tmpfs {
        /// Where.
        to: GuestPath,
        /// How much it may hold; half of the guest's memory when absent.
        bytes: Option<u64>,
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: u32,
        /// Group.
        gid: u32,
    },
    /// A file with these contents, in memory.
    Contents {
        /// Its contents.
        contents: Vec<u8>,
        /// Permission bits.
        mode: u32,
        /// Where.
        to: GuestPath,
    },
}

/// A request that is longer than [`REQUEST_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a request of {bytes} bytes is too long")]
pub struct TooLong {
    /// How long it is.
    pub bytes: usize,
}

impl ToolRequest {
    /// As the tool reads it.
    pub fn encode(&self) -> Result<Vec<u8>, TooLong> {
        let message = message::encode(self);
        let bytes = message.len();
        let length = u32::try_from(bytes).ok().filter(|_| (1..=REQUEST_BYTES_MAX).contains(&bytes));
        let mut request = length.ok_or(TooLong { bytes })?.to_le_bytes().to_vec();
        request.extend_from_slice(&message);
        Ok(request)
    }

    /// The length of the message that follows these first bytes; `None` when it is too long.
    #[must_use]
    pub fn length(first: [u8; 4]) -> Option<usize> {
        usize::try_from(u32::from_le_bytes(first)).ok().filter(|length| *length <= REQUEST_BYTES_MAX)
    }

    /// Reads a message.
    #[must_use]
    pub fn decode(message: &[u8]) -> Option<ToolRequest> {
        message::decode(message)
    }
}

impl Found {
    /// As the tool writes it.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        message::encode(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_back_and_long_ones_are_refused() {
        let path = |text: &str| GuestPath::parse(text).unwrap();
        let request = ToolRequest::MakeDirectory { path: path("/srv/a b"), owner: Some("1:2".into()) };
        let bytes = request.encode().unwrap();
        let (first, message) = bytes.split_first_chunk::<4>().unwrap();
        assert_eq!(ToolRequest::length(*first), Some(message.len()));
        assert_eq!(ToolRequest::decode(message), Some(request));
        assert_eq!(ToolRequest::decode(&message[1..]), None);
        assert_eq!(ToolRequest::length([0xff; 4]), None);
        let mount = Mount::Contents { contents: vec![0; REQUEST_BYTES_MAX], mode: 0, to: path("/x") };
        let run = RunRequest {
            argv: Vec::new(),
            env: Vec::new(),
            cwd: None,
            user: None,
            mounts: vec![mount],
            resolver: None,
            hidden: None,
        };
        assert!(ToolRequest::Run(run).encode().is_err());
    }
}
