//! A tree of files to copy from: what a builder tells of a context, a stage or an image.

use std::collections::{BTreeMap, BTreeSet};

use crate::ignore::IgnoreFile;
use crate::path;

/// Links followed before a path is given up as a loop.
const LINKS_MAX: usize = 40;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link and what it says.
    Link(String),
    /// Anything else: a device, a pipe, a socket.
    Other,
}

/// A tree of files. Paths have no leading slash; the root is the empty path.
pub trait Tree {
    /// What is at `path`, which has no links in it except perhaps itself. `None` when there is nothing.
    fn entry(&self, path: &str) -> Option<Entry>;

    /// Names in the directory `path`, sorted.
    fn children(&self, path: &str) -> Vec<String>;
}

/// Where `wanted` leads and what is there, links followed. Links never lead out of the tree.
pub(crate) fn follow(tree: &dyn Tree, wanted: &str) -> Option<(String, Entry)> {
    let mut ahead: Vec<String> = wanted.split('/').rev().map(str::to_owned).collect();
    let mut at = String::new();
    let mut entry = Entry::Directory;
    let mut links = 0;
    while let Some(part) = ahead.pop() {
        match part.as_str() {
            "" | "." => continue,
            ".." => {
                at.truncate(at.rfind('/').unwrap_or(0));
                entry = Entry::Directory;
                continue;
            }
            _ if entry != Entry::Directory => return None,
            _ => {}
        }
        let next = path::join(&at, &part);
        match tree.entry(&next)? {
            Entry::Link(target) => {
                links += 1;
                if links > LINKS_MAX {
                    return None;
                }
                if target.starts_with('/') {
                    at.clear();
                }
                ahead.extend(target.split('/').rev().map(str::to_owned));
            }
            other => {
                at = next;
                entry = other;
            }
        }
    }
    Some((at, entry))
}

/// A path that cannot be in a listing: absolute, with `..` in it, below a file, or there already as something else.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{path}` cannot be the path of a file here")]
pub struct BadPath {
    /// As it was given.
    pub path: String,
}

/// A tree as a list of paths, such as that of a context.
#[derive(Debug, Clone, Default)]
pub struct Listing {
    entries: BTreeMap<String, Entry>,
    children: BTreeMap<String, BTreeSet<String>>,
}

impl Listing {
    /// An empty tree.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an entry, and the directories above it.
    pub fn insert(&mut self, path: &str, entry: Entry) -> Result<(), BadPath> {
        let bad = || BadPath { path: path.to_owned() };
        let mut below = String::new();
        let parts: Vec<&str> = path.split('/').filter(|part| *part != ".").collect();
        if parts.is_empty() {
            // The root is there already, and it is a directory.
            return if entry == Entry::Directory { Ok(()) } else { Err(bad()) };
        }
        for (at, part) in parts.iter().enumerate() {
            if part.is_empty() || *part == ".." || part.contains('\0') {
                return Err(bad());
            }
            let here = path::join(&below, part);
            let wanted = if at + 1 == parts.len() { &entry } else { &Entry::Directory };
            match self.entries.get(&here) {
                Some(known) if known == wanted => {}
                Some(_) => return Err(bad()),
                None => {
                    self.entries.insert(here.clone(), wanted.clone());
                    self.children.entry(below).or_default().insert((*part).to_owned());
                }
            }
            below = here;
        }
        Ok(())
    }

    /// The same without what `ignore` leaves out. A directory stays while anything in it does.
    pub fn without(&self, ignore: &IgnoreFile) -> Self {
        let mut kept = Self::default();
        for (path, entry) in &self.entries {
            if !ignore.ignores(path) {
                // Nothing can be in the way: the paths come from one tree.
                let _ = kept.insert(path, entry.clone());
            }
        }
        kept
    }

    /// All paths with what is there, sorted.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.entries.iter().map(|(path, entry)| (path.as_str(), entry))
    }
}

impl Tree for Listing {
    fn entry(&self, path: &str) -> Option<Entry> {
        if path.is_empty() { Some(Entry::Directory) } else { self.entries.get(path).cloned() }
    }

    fn children(&self, path: &str) -> Vec<String> {
        self.children.get(path).into_iter().flatten().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(entries: &[(&str, Entry)]) -> Listing {
        let mut listing = Listing::new();
        for (path, entry) in entries {
            listing.insert(path, entry.clone()).unwrap();
        }
        listing
    }

    fn link(target: &str) -> Entry {
        Entry::Link(target.to_owned())
    }

    #[test]
    fn paths_that_leave_the_tree_are_refused() {
        let mut listing = listing(&[("a/b", Entry::File)]);
        for path in ["/etc/passwd", "../x", "a/../../x", "", ".", "./.", "a//c", "a/b/c", "a", "x\0"] {
            assert!(listing.insert(path, Entry::File).is_err(), "{path}");
        }
        assert!(listing.insert("./a/c", Entry::File).is_ok());
    }

    #[test]
    fn links_stay_inside() {
        let listing = listing(&[
            ("usr/bin/tool", Entry::File),
            ("bin", link("usr/bin")),
            ("abs", link("/usr/bin/tool")),
            ("up", link("../../../usr")),
            ("loop", link("loop")),
            ("dead", link("nowhere")),
        ]);
        for (path, expected) in [
            ("bin/tool", Some("usr/bin/tool")),
            ("abs", Some("usr/bin/tool")),
            ("up/bin", Some("usr/bin")),
            ("bin/..", Some("usr")),
            ("loop", None),
            ("dead", None),
            ("abs/x", None),
            ("", Some("")),
        ] {
            assert_eq!(follow(&listing, path).map(|(path, _)| path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn a_directory_stays_while_anything_in_it_does() {
        let all = listing(&[("a/keep", Entry::File), ("a/drop", Entry::File), ("b/drop", Entry::File)]);
        let kept = all.without(&IgnoreFile::parse("*\n!a/keep").unwrap());
        assert_eq!(kept.iter().map(|(path, _)| path).collect::<Vec<_>>(), ["a", "a/keep"]);
    }
}
