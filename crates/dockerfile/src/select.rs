//! Which files a `COPY` copies, and where to.
//!
//! A directory gives what is in it, not itself. A file goes into the destination when that ends with `/` or is a directory already,
//! and otherwise becomes it. A pattern that finds nothing is no error, a plain path is.

use sha2::{Digest, Sha256};

use crate::cache::Hashing;
use crate::glob::{Glob, is_pattern};
use crate::path;
use crate::plan::CopyStep;
use crate::tree::{Entry, Tree, follow};

/// What is at the destination of a copy before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Destination {
    /// Nothing.
    Absent,
    /// A directory, or a link to one.
    Directory,
    /// Anything else.
    File,
}

/// Why files cannot be copied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SelectError {
    /// It may exist and be left out by `.dockerignore`.
    #[error("`{path}` is not there; check the path, and .dockerignore")]
    NotFound {
        /// The source.
        path: String,
    },
    /// More than one file, and a destination that is none.
    #[error("{count} files would be copied, and `{destination}` is not a directory; end it with `/`")]
    NeedsDirectory {
        /// How many.
        count: usize,
        /// Where to.
        destination: String,
    },
    /// A directory is wanted where a file is.
    #[error("`{destination}` is a file, not a directory")]
    NotADirectory {
        /// Where to.
        destination: String,
    },
    /// A device, a pipe or a socket.
    #[error("`{path}` is neither a file nor a directory")]
    Special {
        /// The source.
        path: String,
    },
}

/// What a step copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// In the order of the sources; patterns in the order of names. Inline files are not among them.
    pub files: Vec<Selected>,
    /// Where the step's inline files go, in their order.
    pub inline_targets: Vec<String>,
    /// Patterns that found nothing.
    pub unmatched: Vec<String>,
}

/// Something to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selected {
    /// Its path in the tree, links followed.
    pub path: String,
    /// Whether it is a directory, whose contents are copied with links as they are. Otherwise it is a file.
    pub is_directory: bool,
    /// Absolute: the path that the file gets, or the directory that the contents go to.
    pub target: String,
    /// Where an archive is unpacked to, when the step does that and this is one.
    pub unpack_to: Option<String>,
}

impl CopyStep {
    /// Finds what to copy from `tree`, the step's origin, when `there` is what is at its destination.
    pub fn select(&self, tree: &dyn Tree, there: Destination) -> Result<Selection, SelectError> {
        let mut found = Vec::new();
        let mut unmatched = Vec::new();
        for source in &self.sources {
            let before = found.len();
            if is_pattern(source) {
                expand(tree, source, &mut found);
            } else {
                found.push(source.clone());
            }
            if found.len() == before {
                unmatched.push(source.clone());
            }
        }
        let into = self.destination.ends_with('/') || there == Destination::Directory;
        let count = found.len() + self.inline.len();
        if count > 1 && !into {
            return Err(SelectError::NeedsDirectory { count, destination: self.destination.clone() });
        }
        let bare = match self.destination.trim_end_matches('/') {
            "" => "/",
            bare => bare,
        };
        let not_a_directory = || SelectError::NotADirectory { destination: bare.to_owned() };
        if into && there == Destination::File {
            return Err(not_a_directory());
        }
        let target = |name: &str| if into { path::join(bare, name) } else { bare.to_owned() };
        let mut files = Vec::new();
        for named in found {
            let (path, entry) =
                follow(tree, &named).ok_or_else(|| SelectError::NotFound { path: named.clone() })?;
            files.push(match entry {
                Entry::Directory if there == Destination::File => return Err(not_a_directory()),
                Entry::Directory => {
                    Selected { path, is_directory: true, target: bare.to_owned(), unpack_to: None }
                }
                Entry::File => {
                    let unpack_to = self.extracts.then(|| bare.to_owned());
                    Selected { path, is_directory: false, target: target(path::name(&named)), unpack_to }
                }
                Entry::Link(_) | Entry::Other => return Err(SelectError::Special { path: named }),
            });
        }
        let inline_targets = self.inline.iter().map(|file| target(&file.name)).collect();
        Ok(Selection { files, inline_targets, unmatched })
    }
}

impl Selection {
    /// A digest of everything that is copied: names, kinds, links, and `digest_of` each file, which should cover its content and mode.
    pub fn digest<E>(
        &self,
        tree: &dyn Tree,
        mut digest_of: impl FnMut(&str) -> Result<String, E>,
    ) -> Result<String, E> {
        let mut hash = Sha256::new();
        for file in &self.files {
            hash.text(&file.target);
            let mut pending = vec![(file.path.clone(), String::new())];
            while let Some((path, below)) = pending.pop() {
                hash.text(&below);
                match tree.entry(&path) {
                    Some(Entry::Directory) => {
                        hash.text("directory");
                        hash.text(&digest_of(&path)?);
                        let children = tree.children(&path).into_iter().rev();
                        pending.extend(
                            children.map(|name| (path::join(&path, &name), path::join(&below, &name))),
                        );
                    }
                    Some(Entry::Link(target)) => {
                        hash.text("link");
                        hash.text(&target);
                    }
                    Some(Entry::File) => {
                        hash.text("file");
                        hash.text(&digest_of(&path)?);
                    }
                    Some(Entry::Other) | None => hash.text("other"),
                }
            }
        }
        Ok(crate::cache::hex(&hash.finalize()))
    }
}

/// Adds the paths that `pattern` finds, in order. Links on the way are followed only in the part before the first pattern.
fn expand(tree: &dyn Tree, pattern: &str, found: &mut Vec<String>) {
    let parts: Vec<&str> = pattern.split('/').collect();
    let plain = parts.iter().take_while(|part| !is_pattern(part)).count();
    let Some((start, Entry::Directory)) = follow(tree, &parts[..plain].join("/")) else { return };
    let globs: Vec<Glob> = parts[plain..].iter().filter_map(|part| Glob::parse(part).ok()).collect();
    if globs.len() == parts.len() - plain {
        descend(tree, &start, &globs, found);
    }
}

fn descend(tree: &dyn Tree, directory: &str, globs: &[Glob], found: &mut Vec<String>) {
    let Some((glob, rest)) = globs.split_first() else { return };
    for name in tree.children(directory).into_iter().filter(|name| glob.matches(name)) {
        let path = path::join(directory, &name);
        if rest.is_empty() {
            found.push(path);
        } else if tree.entry(&path) == Some(Entry::Directory) {
            descend(tree, &path, rest, found);
        }
    }
}
