//! The disk from which a build's machines read what the host gives them: files of the context, archives that `ADD` unpacked, and files
//! that stand in the Dockerfile itself.
//!
//! ```text
//! /files/<path>           of the context, where they were
//! /archives/<number>/…    what was in an archive
//! /inline/<step>/<name>
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, FileTimes};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use dockerfile::{Entry, InlineFile, Tree};
use image::{DiskSize, Journal, TreeDisk};
use oci::{Limits, Policy, SpecialFiles, Unpacker};
use storage::clone::clone_open_file;

use super::{Context, bad, mode};
use crate::error::BuildError;
use crate::staging::Staging;

const MIB: u64 = 1 << 20;
/// What a file or directory may take besides its content.
const ENTRY_BYTES: u64 = 1024;
/// Room for the file system itself, and the least that one can have.
const ROOM_BYTES: u64 = 64 * MIB;
const DISK_BYTES_MIN: u64 = 256 * MIB;
const TREE: &str = "context";
const DISK: &str = "context.ext4";

/// What machines of a build need of the host.
#[derive(Debug, Clone, Default)]
pub(crate) struct Supply {
    /// Paths of the context; directories with all that is in them.
    pub(crate) paths: BTreeSet<String>,
    /// Files of the context to unpack if they are archives.
    pub(crate) archives: BTreeSet<String>,
    /// Files that stand in the Dockerfile, by a number for each step.
    pub(crate) inline: BTreeMap<usize, Vec<InlineFile>>,
}

impl Supply {
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.archives.is_empty() && self.inline.is_empty()
    }
}

/// A disk with a supply on it.
pub(crate) struct ContextDisk {
    pub(crate) file: PathBuf,
    /// Numbers of those files that were archives.
    pub(crate) archives: BTreeMap<String, usize>,
    /// Its directory goes with it.
    _staging: Staging,
}

/// Where the disk has a file of the context.
pub(crate) fn files_place(path: &str) -> String {
    if path.is_empty() { "/files".to_owned() } else { format!("/files/{path}") }
}

/// Where the disk has what was in an archive.
pub(crate) fn archive_place(number: usize) -> String {
    format!("/archives/{number}")
}

/// Where the disk has a file that stands in the Dockerfile.
pub(crate) fn inline_place(step: usize, name: &str) -> String {
    format!("/inline/{step}/{name}")
}

impl ContextDisk {
    /// Makes the disk. Files that are only wanted unpacked are not on it as they are.
    pub(crate) async fn make(
        context: std::sync::Arc<Context>,
        supply: Supply,
        disk_mib: u64,
        staging: Staging,
    ) -> Result<Self, BuildError> {
        let (archives, usage) = staging
            .blocking(move |folder| {
                let mut writing = Writing {
                    context: &context,
                    root: folder.join(TREE),
                    usage: Usage::default(),
                    archives: BTreeMap::new(),
                };
                writing.all(&supply, disk_mib)?;
                Ok((writing.archives, writing.usage))
            })
            .await?;
        let needed = usage.bytes + usage.bytes / 16 + usage.entries * ENTRY_BYTES + ROOM_BYTES;
        let size = DiskSize::from_bytes(needed.max(DISK_BYTES_MIN).next_multiple_of(MIB));
        let file = staging.path().join(DISK);
        let disk = TreeDisk {
            root: &staging.path().join(TREE),
            file: &file,
            size: size.map_err(BuildError::Size)?,
            identity: "context",
            files: usage.entries,
            journal: Journal::None,
        };
        disk.write().await.map_err(BuildError::image)?;
        staging
            .blocking(|folder| {
                let removed = fs::remove_dir_all(folder.join(TREE));
                removed.map_err(BuildError::host("remove a copy of the context"))
            })
            .await?;
        Ok(Self { file, archives, _staging: staging })
    }
}

#[derive(Default)]
struct Usage {
    bytes: u64,
    entries: u64,
}

/// Puts a supply into a directory of our own.
struct Writing<'a> {
    context: &'a Context,
    root: PathBuf,
    usage: Usage,
    archives: BTreeMap<String, usize>,
}

impl Writing<'_> {
    fn all(&mut self, supply: &Supply, disk_mib: u64) -> Result<(), BuildError> {
        let failed = BuildError::host("copy the context");
        make_directory(&self.root).map_err(failed)?;
        make_directory(&self.root.join("files")).map_err(failed)?;
        let mut paths = supply.paths.clone();
        for path in &supply.archives {
            match self.context.is_archive(path)? {
                true => self.unpack(path, disk_mib)?,
                false => drop(paths.insert(path.clone())),
            }
        }
        for path in &paths {
            self.copy(path)?;
        }
        for (step, files) in &supply.inline {
            for file in files {
                let to = self.root.join(inline_place(*step, &file.name).trim_start_matches('/'));
                fs::create_dir_all(to.parent().unwrap_or(&self.root)).map_err(failed)?;
                fs::write(&to, &file.content).map_err(failed)?;
                fs::set_permissions(&to, fs::Permissions::from_mode(0o644)).map_err(failed)?;
                self.count(file.content.len() as u64);
            }
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.usage.entries += 1;
        self.usage.bytes += bytes.next_multiple_of(4096);
    }

    fn unpack(&mut self, path: &str, disk_mib: u64) -> Result<(), BuildError> {
        let number = self.archives.len();
        let to = self.root.join(archive_place(number).trim_start_matches('/'));
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&to)
            .map_err(BuildError::host("copy the context"))?;
        let policy = Policy {
            limits: Limits::for_disk(disk_mib),
            special_files: SpecialFiles::Skip,
            ..Policy::default()
        };
        let failed = |error| BuildError::unpack(error, disk_mib);
        let mut unpacker = Unpacker::new(&to, policy).map_err(failed)?;
        let (file, _) = self.context.open(path)?;
        unpacker.tarball(&format!("`{path}`"), file).map_err(failed)?;
        let unpacked = unpacker.unpacked();
        self.usage.entries += unpacked.entries;
        self.usage.bytes += unpacked.file_bytes + unpacked.entries * 4096;
        self.archives.insert(path.to_owned(), number);
        Ok(())
    }

    /// Copies what is at `path` of the context, and the directories above it.
    fn copy(&mut self, path: &str) -> Result<(), BuildError> {
        let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        let above: Vec<&str> = parents.collect();
        for directory in &above {
            self.one(directory)?;
        }
        let mut directories = Vec::new();
        let mut pending = vec![path.to_owned()];
        while let Some(path) = pending.pop() {
            if self.context.cancelled.is_cancelled() {
                return Err(BuildError::Cancelled);
            }
            if !path.is_empty() {
                self.one(&path)?;
            }
            if self.context.listing.entry(&path) == Some(Entry::Directory) {
                let join = |name: String| if path.is_empty() { name } else { format!("{path}/{name}") };
                pending.extend(self.context.listing.children(&path).into_iter().map(join));
                directories.push(path);
            }
        }
        // Once nothing is put into them any more.
        for directory in directories.iter().rev().map(String::as_str).chain(above.into_iter().rev()) {
            self.settle(directory).map_err(BuildError::host("copy the context"))?;
        }
        Ok(())
    }

    fn place(&self, path: &str) -> PathBuf {
        self.root.join(files_place(path).trim_start_matches('/'))
    }

    /// Copies a file or link, or makes a directory. What is there already was copied before.
    fn one(&mut self, path: &str) -> Result<(), BuildError> {
        let failed = BuildError::host("copy the context");
        let to = self.place(path);
        if fs::symlink_metadata(&to).is_ok() {
            return Ok(());
        }
        match self.context.listing.entry(path) {
            Some(Entry::Directory) => {
                make_directory(&to).map_err(failed)?;
                self.count(0);
            }
            Some(Entry::Link(target)) => {
                symlink(&target, &to).map_err(failed)?;
                self.count(0);
            }
            Some(Entry::File) => {
                let (file, about) = self.context.open(path)?;
                let (copy, _) = clone_open_file(&file, &to, mode(&about)).map_err(BuildError::clone)?;
                copy.set_times(FileTimes::new().set_modified(about.modified().map_err(failed)?))
                    .map_err(failed)?;
                self.count(about.len());
            }
            // Cannot be copied; whoever names it is told so.
            Some(Entry::Other) => {}
            None => return Err(bad(format!("`{path}` is not there"))),
        }
        Ok(())
    }

    /// Gives a directory the mode and time of the one it is a copy of.
    fn settle(&self, path: &str) -> io::Result<()> {
        let about = fs::symlink_metadata(self.context.root.join(path))?;
        let directory = fs::File::open(self.place(path))?;
        directory.set_permissions(fs::Permissions::from_mode(mode(&about)))?;
        directory.set_times(FileTimes::new().set_modified(about.modified()?))
    }
}

/// Makes a directory with the usual mode, whatever the mask.
fn make_directory(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().mode(0o755).create(path)
}
