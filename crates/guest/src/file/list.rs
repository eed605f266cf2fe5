//! Directory listings: depth first, sorted by name, in batches.

use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use guest_link::limits::{BATCH_ENTRIES_MAX, DATA_BYTES_MAX, DEPTH_MAX, DIRECTORY_ENTRIES_MAX};
use guest_link::message::{Entry, EntryKind, Event, Failure, FileFailure, ListSpec, Response};

use super::{Step, as_path, entry, failure};
use crate::process::account::Names;

pub(crate) struct ListTask {
    spec: ListSpec,
    names: Option<Names>,
    /// Directories being walked, the deepest last: path relative to the root, and names still to do, last first.
    levels: Vec<(Vec<u8>, Vec<Vec<u8>>)>,
    sent: u64,
    truncated: bool,
}

impl ListTask {
    pub(super) fn new(spec: ListSpec) -> ListTask {
        ListTask { spec, names: None, levels: Vec::new(), sent: 0, truncated: false }
    }

    pub(super) fn step(&mut self) -> Result<Step, Failure> {
        let root = as_path(&self.spec.path).to_path_buf();
        let names = match self.names.take() {
            Some(names) => names,
            None => {
                if !fs::metadata(&root).map_err(|error| failure(&error))?.is_dir() {
                    return Err(Failure::File(FileFailure::NotDirectory));
                }
                self.enter(&root, Vec::new()).map_err(|error| failure(&error))?;
                Names::load()
            }
        };
        let mut batch: Vec<Entry> = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_ENTRIES_MAX && bytes < DATA_BYTES_MAX / 2 {
            let Some(entry) = self.next(&root, &names) else { break };
            // A generous guess of the encoded size; a path is at most 4 KiB, twice that with its link.
            bytes += entry.name.len() + 128;
            bytes += entry
                .link
                .as_ref()
                .map_or(0, |link| link.text.len() + link.target.as_ref().map_or(0, Vec::len));
            batch.push(entry);
        }
        self.names = Some(names);
        self.sent += batch.len() as u64;
        let mut step = Step::default();
        if batch.is_empty() {
            step.outcome = Some(Ok(Response::Listed { entries: self.sent, truncated: self.truncated }));
        } else {
            step.events.push(Event::Entries(batch));
        }
        Ok(step)
    }

    fn next(&mut self, root: &Path, names: &Names) -> Option<Entry> {
        loop {
            let (parent, waiting) = self.levels.last_mut()?;
            let Some(name) = waiting.pop() else {
                self.levels.pop();
                continue;
            };
            let mut relative = parent.clone();
            if !relative.is_empty() {
                relative.push(b'/');
            }
            relative.extend_from_slice(&name);
            let path = root.join(std::ffi::OsStr::from_bytes(&relative));
            // What vanished meanwhile is no longer part of the listing.
            let Ok(metadata) = fs::symlink_metadata(&path) else { continue };
            let entry = entry::describe(relative.clone(), &path, &metadata, names);
            let depth = self.levels.len() as u32;
            if entry.kind == EntryKind::Directory && depth < self.spec.depth.min(DEPTH_MAX) {
                // A directory that cannot be read is listed without its contents.
                let _ = self.enter(&path, relative);
            }
            return Some(entry);
        }
    }

    fn enter(&mut self, path: &PathBuf, relative: Vec<u8>) -> std::io::Result<()> {
        let mut found: Vec<Vec<u8>> = Vec::new();
        for item in fs::read_dir(path)? {
            if found.len() == DIRECTORY_ENTRIES_MAX {
                self.truncated = true;
                break;
            }
            found.push(item?.file_name().into_vec());
        }
        found.sort_unstable_by(|a, b| b.cmp(a));
        self.levels.push((relative, found));
        Ok(())
    }
}
