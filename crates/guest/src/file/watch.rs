//! Watches: inotify, made recursive by hand. What the kernel loses is reported as an overflow.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use guest_link::limits::{BATCH_ENTRIES_MAX, DATA_BYTES_MAX, DEPTH_MAX};
use guest_link::message::{Event, Failure, FileFailure, WatchEvent, WatchKind, WatchScope, WatchSpec};

use super::{Step, as_path, failure};
use crate::kernel::check;

/// Directories one watch covers. That there are more, or deeper ones, is reported: the caller must look for itself.
const DIRECTORIES_MAX: usize = 8192;

/// What one step reads from the kernel: at most about 64 events with long names.
const READ_BYTES: usize = 16 * 1024;

const MASK: u32 = libc::IN_CREATE
    | libc::IN_MODIFY
    | libc::IN_ATTRIB
    | libc::IN_DELETE
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF
    | libc::IN_ONLYDIR;

pub(crate) struct WatchTask {
    spec: WatchSpec,
    inotify: Option<File>,
    /// Watch descriptor → path relative to the root.
    directories: BTreeMap<i32, Vec<u8>>,
    root: i32,
}

impl WatchTask {
    pub(super) fn new(spec: WatchSpec) -> WatchTask {
        WatchTask { spec, inotify: None, directories: BTreeMap::new(), root: -1 }
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().map(AsFd::as_fd)
    }

    pub(super) fn step(&mut self) -> Result<Step, Failure> {
        let mut step = Step::default();
        let mut changes = Vec::new();
        let Some(inotify) = &self.inotify else {
            self.begin().map_err(|error| failure(&error))?;
            // What is there already is no change.
            self.descend(Vec::new(), &mut changes, Report::Nothing);
            step.events.push(Event::Watching);
            changes.retain(|change| matches!(change.kind, WatchKind::Overflow | WatchKind::TooMany));
            batches(changes, &mut step);
            return Ok(step);
        };
        let mut buffer = vec![0; READ_BYTES];
        match (&*inotify).read(&mut buffer) {
            Ok(count) => {
                if self.translate(&buffer[..count], &mut changes) == Fate::Gone {
                    step.outcome = Some(Err(Failure::File(FileFailure::WatchGone)));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(failure(&error)),
        }
        batches(changes, &mut step);
        Ok(step)
    }

    fn begin(&mut self) -> io::Result<()> {
        // SAFETY: no pointers.
        let raw = check(unsafe { libc::inotify_init1(libc::IN_CLOEXEC | libc::IN_NONBLOCK) })?;
        // SAFETY: fresh and owned by nobody else.
        self.inotify = Some(unsafe { File::from_raw_fd(raw) });
        self.root = self.add(Vec::new())?;
        Ok(())
    }

    /// Watches one directory below the root.
    fn add(&mut self, relative: Vec<u8>) -> io::Result<i32> {
        let path = self.path(&relative)?;
        let Some(inotify) = &self.inotify else { return Err(io::ErrorKind::NotFound.into()) };
        // Below the root, links are not followed.
        let mask = if relative.is_empty() { MASK } else { MASK | libc::IN_DONT_FOLLOW };
        // SAFETY: `path` is a C string that outlives the call.
        let watch = check(unsafe { libc::inotify_add_watch(inotify.as_raw_fd(), path.as_ptr(), mask) })?;
        self.directories.insert(watch, relative);
        Ok(watch)
    }

    fn path(&self, relative: &[u8]) -> io::Result<CString> {
        let path = as_path(&self.spec.path).join(std::ffi::OsStr::from_bytes(relative));
        CString::new(path.into_os_string().into_vec()).map_err(|_| io::ErrorKind::InvalidInput.into())
    }

    /// Watches everything below a directory. What appeared there before it was watched may have gone unreported, so it is told
    /// as created.
    fn descend(&mut self, relative: Vec<u8>, changes: &mut Vec<WatchEvent>, report: Report) {
        if self.spec.scope == WatchScope::Directory {
            return;
        }
        let mut waiting = vec![relative];
        while let Some(parent) = waiting.pop() {
            let path = as_path(&self.spec.path).join(std::ffi::OsStr::from_bytes(&parent));
            // It may be gone again.
            let Ok(items) = fs::read_dir(&path) else { continue };
            for item in items.flatten() {
                let directory = item.file_type().is_ok_and(|kind| kind.is_dir());
                let name = join(&parent, item.file_name().as_bytes());
                if report == Report::Created {
                    changes.push(WatchEvent { name: name.clone(), kind: WatchKind::Created, directory });
                }
                if !directory {
                    continue;
                }
                let deep = name.iter().filter(|byte| **byte == b'/').count() >= DEPTH_MAX as usize;
                if deep || self.directories.len() >= DIRECTORIES_MAX {
                    changes.push(about_all(WatchKind::TooMany));
                    return;
                }
                if let Err(error) = self.add(name.clone()) {
                    // A vanished directory needs no watch; anything else is a loss.
                    if error.kind() != io::ErrorKind::NotFound {
                        changes.push(about_all(refused(&error)));
                        return;
                    }
                    continue;
                }
                waiting.push(name);
            }
        }
    }

    fn translate(&mut self, mut bytes: &[u8], changes: &mut Vec<WatchEvent>) -> Fate {
        const HEAD: usize = 16;
        let mut fate = Fate::Lives;
        while let Some((head, rest)) = bytes.split_at_checked(HEAD) {
            let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (watch, mask, cookie, length) = (word(0) as i32, word(4), word(8), word(12) as usize);
            let Some((name, after)) = rest.split_at_checked(length) else { break };
            bytes = after;
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            if self.one(watch, mask, cookie, name, changes) == Fate::Gone {
                fate = Fate::Gone;
            }
        }
        fate
    }

    fn one(
        &mut self,
        watch: i32,
        mask: u32,
        cookie: u32,
        name: &[u8],
        changes: &mut Vec<WatchEvent>,
    ) -> Fate {
        if mask & libc::IN_Q_OVERFLOW != 0 {
            changes.push(about_all(WatchKind::Overflow));
            return Fate::Lives;
        }
        if mask & libc::IN_IGNORED != 0 {
            self.directories.remove(&watch);
            return if watch == self.root { Fate::Gone } else { Fate::Lives };
        }
        let Some(parent) = self.directories.get(&watch) else { return Fate::Lives };
        if mask & libc::IN_MOVE_SELF != 0 && watch == self.root {
            return Fate::Gone;
        }
        let kind = if mask & libc::IN_CREATE != 0 {
            WatchKind::Created
        } else if mask & libc::IN_MODIFY != 0 {
            WatchKind::Modified
        } else if mask & libc::IN_ATTRIB != 0 {
            WatchKind::Attributes
        } else if mask & libc::IN_DELETE != 0 {
            WatchKind::Removed
        } else if mask & libc::IN_MOVED_FROM != 0 {
            WatchKind::MovedFrom { cookie }
        } else if mask & libc::IN_MOVED_TO != 0 {
            WatchKind::MovedTo { cookie }
        } else {
            return Fate::Lives;
        };
        if name.is_empty() {
            // SnapshotMetadata a watched directory itself; its parent's watch tells the same.
            return Fate::Lives;
        }
        let name = join(parent, name);
        let directory = mask & libc::IN_ISDIR != 0;
        changes.push(WatchEvent { name: name.clone(), kind, directory });
        if directory && self.spec.scope == WatchScope::Recursive {
            match kind {
                WatchKind::Created | WatchKind::MovedTo { .. }
                    if self.directories.len() >= DIRECTORIES_MAX =>
                {
                    changes.push(about_all(WatchKind::TooMany));
                }
                WatchKind::Created | WatchKind::MovedTo { .. } => match self.add(name.clone()) {
                    Ok(_) if kind == WatchKind::Created => self.descend(name, changes, Report::Created),
                    Ok(_) => self.descend(name, changes, Report::Nothing),
                    // Gone again already.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => changes.push(about_all(refused(&error))),
                },
                WatchKind::MovedFrom { .. } => self.leave(&name),
                _ => {}
            }
        }
        Fate::Lives
    }

    /// Stops watching a directory that moved away, and those below it: their paths are no longer true.
    fn leave(&mut self, relative: &[u8]) {
        let below = join(relative, b"");
        let gone: Vec<i32> = self
            .directories
            .iter()
            .filter(|(_, path)| path.as_slice() == relative || path.starts_with(&below))
            .map(|(watch, _)| *watch)
            .collect();
        for watch in gone {
            self.directories.remove(&watch);
            if let Some(inotify) = &self.inotify {
                // SAFETY: no pointers. A watch that is gone already is refused, which is fine.
                unsafe { libc::inotify_rm_watch(inotify.as_raw_fd(), watch) };
            }
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Report {
    Created,
    Nothing,
}

/// Whether the watched directory still is where it was.
#[derive(PartialEq, Eq)]
enum Fate {
    Lives,
    Gone,
}

/// What is told when a directory cannot be watched: the kernel has a bound of its own on watches.
fn refused(error: &io::Error) -> WatchKind {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => WatchKind::TooMany,
        _ => WatchKind::Overflow,
    }
}

fn about_all(kind: WatchKind) -> WatchEvent {
    WatchEvent { name: Vec::new(), kind, directory: false }
}

fn join(parent: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = parent.to_vec();
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

/// Cuts changes into events that fit in a frame.
fn batches(changes: Vec<WatchEvent>, step: &mut Step) {
    let mut batch: Vec<WatchEvent> = Vec::new();
    let mut bytes = 0;
    for change in changes {
        if batch.len() == BATCH_ENTRIES_MAX || bytes > DATA_BYTES_MAX / 2 {
            step.events.push(Event::Changes(std::mem::take(&mut batch)));
            bytes = 0;
        }
        bytes += change.name.len() + 16;
        batch.push(change);
    }
    if !batch.is_empty() {
        step.events.push(Event::Changes(batch));
    }
}
