//! Files of the guest. Paths are bytes; what a listing names can always be named back.

use serde::{Deserialize, Serialize};

use super::process::User;
use crate::path::GuestPath;

/// What to do with files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// Metadata of one path → `Response::Entry`.
    Stat {
        /// The path.
        path: GuestPath,
        /// What a symbolic link at the end of it means.
        links: Links,
    },
    /// Contents → `Event::Opened`, data, `Response::Transferred`.
    Read {
        /// The path.
        path: GuestPath,
        /// First byte.
        offset: u64,
        /// How many bytes at most; all when absent.
        length: Option<u64>,
    },
    /// New contents: data from the host, then its `End` → `Response::Transferred`. Without the `End` nothing is replaced.
    Write(WriteSpec),
    /// A directory's entries → `Event::Entries` batches, `Response::Listed`.
    List(ListSpec),
    /// A new directory.
    MakeDirectory {
        /// The path.
        path: GuestPath,
        /// Whether missing parents are made. With parents, an existing directory still is an error.
        parents: Parents,
        /// Permission bits; 0755 when absent.
        mode: Option<u32>,
        /// Owner of every directory made; root when absent.
        owner: Option<Owner>,
    },
    /// Remove a file, a symbolic link or a directory.
    Remove {
        /// The path.
        path: GuestPath,
        /// Whether a directory goes with everything below it.
        scope: RemoveScope,
    },
    /// Move within one file system.
    Rename {
        /// From here.
        from: GuestPath,
        /// To there, replacing a file that is there.
        to: GuestPath,
        /// Whether missing parents of `to` are made.
        parents: Parents,
    },
    /// Change permission bits.
    SetMode {
        /// The path.
        path: GuestPath,
        /// The bits, at most 0o7777.
        mode: u32,
    },
    /// Change owner and group.
    SetOwner {
        /// The path.
        path: GuestPath,
        /// The new owner.
        owner: Owner,
        /// What a symbolic link at the end of it means.
        links: Links,
    },
    /// Text of a symbolic link → `Response::Link`.
    ReadLink {
        /// The path.
        path: GuestPath,
    },
    /// Changes below a directory → `Event::Watching`, then `Event::Changes` batches until cancelled.
    Watch(WatchSpec),
}

/// What a symbolic link at the end of a path means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Links {
    /// What it points to.
    Follow,
    /// The link itself.
    Keep,
}

/// Whether missing parent directories are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parents {
    /// Yes.
    Create,
    /// No: their absence is an error.
    Require,
}

/// How much a removal takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum RemoveScope {
    /// A file, or an empty directory.
    Single,
    /// A directory and everything below it; symbolic links are not followed.
    Recursive,
}

/// Who owns a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Owner {
    /// A user of the guest, with that user's own group.
    User(User),
    /// These ids.
    Ids {
        /// User.
        uid: u32,
        /// Group.
        gid: u32,
    },
}

/// An upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteSpec {
    /// Where to. A symbolic link is written through.
    pub path: GuestPath,
    /// How.
    pub how: WriteMode,
    /// Permission bits; when absent those of the file that is there, or 0644.
    pub mode: Option<u32>,
    /// Owner of the file and of parents made for it; when absent that of the file that is there, or root.
    pub owner: Option<Owner>,
    /// Whether missing parents are made.
    pub parents: Parents,
}

/// How an upload meets what is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteMode {
    /// Written aside and renamed: readers see the old file or the whole new one, and an aborted upload leaves no trace.
    /// Device files and files of `/proc` and `/sys` are written in place.
    Replace,
    /// Truncated and written in place.
    Truncate,
    /// Added at the end.
    Append,
    /// Written over what is at this offset.
    At {
        /// The offset.
        offset: u64,
    },
}

/// A directory listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListSpec {
    /// The directory; a symbolic link to one is followed.
    pub path: GuestPath,
    /// 1: its entries only. Entries come depth first, sorted by name; links below are not followed.
    pub depth: u32,
}

/// Metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// In a listing the path relative to the listed directory, otherwise the last component.
    pub name: Vec<u8>,
    /// What it is.
    pub kind: EntryKind,
    /// Bytes.
    pub size: u64,
    /// Permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Owner's name, when it has one.
    pub user: Option<String>,
    /// Group's name, when it has one.
    pub group: Option<String>,
    /// Last change of contents, nanoseconds of Unix time.
    pub modified_ns: i64,
    /// Last access.
    pub accessed_ns: i64,
    /// Last change of metadata.
    pub changed_ns: i64,
    /// Inode number.
    pub inode: u64,
    /// Hard links.
    pub links: u64,
    /// For a symbolic link: where it leads.
    pub link: Option<SymbolicLink>,
}

/// Where a symbolic link leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SymbolicLink {
    /// Its text.
    pub text: Vec<u8>,
    /// Absolute path of what it finally points to; absent when it dangles.
    pub target: Option<Vec<u8>>,
    /// What that is.
    pub kind: Option<EntryKind>,
    /// Permission bits of that.
    pub mode: Option<u32>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum EntryKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    SymbolicLink,
    /// A named pipe.
    Pipe,
    /// A socket.
    Socket,
    /// A character device.
    CharacterDevice,
    /// A block device.
    BlockDevice,
}

/// A watch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchSpec {
    /// The directory.
    pub path: GuestPath,
    /// How deep.
    pub scope: WatchScope,
}

/// How deep a watch looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchScope {
    /// The directory's own entries.
    Directory,
    /// Everything below it, directories made later included.
    Recursive,
}

/// A change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WatchEvent {
    /// Path relative to the watched directory; empty when the event is about the watch as a whole.
    pub name: Vec<u8>,
    /// What happened.
    pub kind: WatchKind,
    /// Whether it happened to a directory.
    pub directory: bool,
}

/// What happened to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WatchKind {
    /// It appeared.
    Created,
    /// Its contents changed.
    Modified,
    /// Its metadata changed.
    Attributes,
    /// It is gone.
    Removed,
    /// It moved away from this name.
    MovedFrom {
        /// The same in the matching `MovedTo`, if that lies in the watch too.
        cookie: u32,
    },
    /// It moved to this name.
    MovedTo {
        /// The same in the matching `MovedFrom`, if that lies in the watch too.
        cookie: u32,
    },
    /// The guest could not keep up: changes were lost and the caller should look for itself.
    Overflow,
    /// There are more directories than a watch covers, or they lie too deep: changes in those beyond are not reported.
    TooMany,
}
