//! Choosing files on a disk that only a guest has mounted: what is not known yet is noted, asked for, and the choice made again.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use dockerfile::{CopyStep, Destination, Entry, SelectError, Selection, Tree};
use guest_link::GuestPath;
use guest_link::message::EntryKind;
use node::{NodeError, Workshop};

/// How often a choice is made again before it is given up. A path needs as many as it has parts and links in it.
const ROUNDS_MAX: usize = 10_000;

/// Why files could not be chosen.
#[derive(Debug)]
pub(crate) enum ChooseError {
    Select(SelectError),
    Node(NodeError),
    /// Links upon links.
    TooDeep,
}

/// What a step copies from the disk mounted at `root` in the guest, when `there` is at its destination.
pub(crate) async fn choose(
    workshop: &Workshop,
    root: &GuestPath,
    step: &CopyStep,
    there: Destination,
) -> Result<Selection, ChooseError> {
    let mut known = Known::default();
    for _ in 0..ROUNDS_MAX {
        let outcome = step.select(&known, there);
        let missing = std::mem::take(&mut *known.missing.borrow_mut());
        if missing.is_empty() {
            return outcome.map_err(ChooseError::Select);
        }
        for wanted in missing {
            known.ask(workshop, root, wanted).await?;
        }
    }
    Err(ChooseError::TooDeep)
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Missing {
    Directory(String),
    Link(String),
}

/// What the guest has told so far.
#[derive(Default)]
struct Known {
    directories: BTreeMap<String, BTreeMap<String, EntryKind>>,
    links: BTreeMap<String, Option<String>>,
    missing: RefCell<BTreeSet<Missing>>,
}

impl Known {
    async fn ask(
        &mut self,
        workshop: &Workshop,
        root: &GuestPath,
        wanted: Missing,
    ) -> Result<(), ChooseError> {
        match wanted {
            Missing::Directory(path) => {
                let found = match below(root, &path) {
                    Some(place) => workshop.look(&place).await.map_err(ChooseError::Node)?,
                    None => None,
                };
                // Names that are not UTF-8 cannot be written in a Dockerfile; they come along with their directory.
                let names = found.into_iter().flat_map(|found| found.names);
                let names =
                    names.filter_map(|listed| Some((String::from_utf8(listed.name).ok()?, listed.kind)));
                self.directories.insert(path, names.collect());
            }
            Missing::Link(path) => {
                let target = match below(root, &path) {
                    Some(place) => workshop.link().read_link(place).await.ok(),
                    None => None,
                };
                self.links.insert(path, target.and_then(|target| String::from_utf8(target).ok()));
            }
        }
        Ok(())
    }
}

/// `path` of a tree that begins at `root`.
pub(crate) fn below(root: &GuestPath, path: &str) -> Option<GuestPath> {
    let mut bytes = root.as_bytes().to_vec();
    if !path.is_empty() {
        bytes.push(b'/');
        bytes.extend_from_slice(path.trim_start_matches('/').as_bytes());
    }
    GuestPath::parse(bytes).ok()
}

impl Tree for Known {
    fn entry(&self, path: &str) -> Option<Entry> {
        let (parent, name) = match path.rsplit_once('/') {
            Some(split) => split,
            None if path.is_empty() => return Some(Entry::Directory),
            None => ("", path),
        };
        let Some(names) = self.directories.get(parent) else {
            self.missing.borrow_mut().insert(Missing::Directory(parent.to_owned()));
            return None;
        };
        match names.get(name)? {
            EntryKind::File => Some(Entry::File),
            EntryKind::Directory => Some(Entry::Directory),
            EntryKind::SymbolicLink => match self.links.get(path) {
                Some(Some(target)) => Some(Entry::Link(target.clone())),
                Some(None) => Some(Entry::Other),
                None => {
                    self.missing.borrow_mut().insert(Missing::Link(path.to_owned()));
                    None
                }
            },
            _ => Some(Entry::Other),
        }
    }

    fn children(&self, path: &str) -> Vec<String> {
        match self.directories.get(path) {
            Some(names) => names.keys().cloned().collect(),
            None => {
                self.missing.borrow_mut().insert(Missing::Directory(path.to_owned()));
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_asked_for() {
        let mut known = Known::default();
        assert_eq!(known.entry("usr/bin"), None);
        assert_eq!(known.missing.take(), BTreeSet::from([Missing::Directory("usr".to_owned())]));
        let names =
            BTreeMap::from([("bin".to_owned(), EntryKind::SymbolicLink), ("f".to_owned(), EntryKind::File)]);
        known.directories.insert("usr".to_owned(), names);
        assert_eq!(known.entry("usr/bin"), None);
        assert_eq!(known.missing.take(), BTreeSet::from([Missing::Link("usr/bin".to_owned())]));
        known.links.insert("usr/bin".to_owned(), Some("sbin".to_owned()));
        assert_eq!(known.entry("usr/bin"), Some(Entry::Link("sbin".to_owned())));
        assert_eq!((known.entry("usr/f"), known.entry("usr/no")), (Some(Entry::File), None));
        assert_eq!(known.children("usr"), ["bin", "f"]);
        assert!(known.missing.take().is_empty());
    }
}
