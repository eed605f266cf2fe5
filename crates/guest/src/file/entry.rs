//! Metadata.

use std::fs::{self, FileType, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use guest_link::message::{Entry, EntryKind, Links, SymbolicLink};

use crate::process::account::Names;

/// Metadata of one path.
pub(super) fn stat(path: &Path, links: Links) -> io::Result<Entry> {
    let metadata = match links {
        Links::Follow => fs::metadata(path)?,
        Links::Keep => fs::symlink_metadata(path)?,
    };
    let name = path.file_name().map_or(&b"/"[..], OsStrExt::as_bytes).to_vec();
    Ok(describe(name, path, &metadata, &Names::load()))
}

/// Puts metadata in words. `path` is only looked at to resolve a symbolic link.
pub(super) fn describe(name: Vec<u8>, path: &Path, metadata: &Metadata, names: &Names) -> Entry {
    let kind = kind(metadata.file_type());
    let nanoseconds = |seconds: i64, rest: i64| seconds.saturating_mul(1_000_000_000).saturating_add(rest);
    Entry {
        name,
        kind,
        size: metadata.size(),
        mode: metadata.mode() & 0o7777,
        uid: metadata.uid(),
        gid: metadata.gid(),
        user: names.user(metadata.uid()),
        group: names.group(metadata.gid()),
        modified_ns: nanoseconds(metadata.mtime(), metadata.mtime_nsec()),
        accessed_ns: nanoseconds(metadata.atime(), metadata.atime_nsec()),
        changed_ns: nanoseconds(metadata.ctime(), metadata.ctime_nsec()),
        inode: metadata.ino(),
        links: metadata.nlink(),
        link: (kind == EntryKind::SymbolicLink).then(|| link(path)),
    }
}

fn link(path: &Path) -> SymbolicLink {
    let text = fs::read_link(path).map(|text| text.as_os_str().as_bytes().to_vec()).unwrap_or_default();
    // A link that dangles or loops has no target, which is not an error of the listing.
    let target = fs::canonicalize(path).ok();
    let metadata = target.as_ref().and_then(|target| fs::metadata(target).ok());
    SymbolicLink {
        text,
        kind: metadata.as_ref().map(|metadata| kind(metadata.file_type())),
        mode: metadata.map(|metadata| metadata.mode() & 0o7777),
        target: target.map(|target| target.as_os_str().as_bytes().to_vec()),
    }
}

/// What a file is.
pub(crate) fn kind(kind: FileType) -> EntryKind {
    if kind.is_dir() {
        EntryKind::Directory
    } else if kind.is_symlink() {
        EntryKind::SymbolicLink
    } else if kind.is_fifo() {
        EntryKind::Pipe
    } else if kind.is_socket() {
        EntryKind::Socket
    } else if kind.is_char_device() {
        EntryKind::CharacterDevice
    } else if kind.is_block_device() {
        EntryKind::BlockDevice
    } else {
        EntryKind::File
    }
}
