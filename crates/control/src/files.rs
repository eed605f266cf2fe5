//! Files of sandboxes.

use contract::file::{DirectoryListing, FileChange, FileEntry};
use guest_link::GuestPath;
use guest_link::client::{FileReader, FileWriter};
use guest_link::message::{Entry, EntryKind, Links, ListSpec, Parents, RemoveScope, WriteMode, WriteSpec};

use crate::access::InUse;
use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;
use crate::exec::guest_path;

/// Entries of one listing; more are left out and said to be.
const ENTRIES_MAX: usize = 200_000;

pub(crate) fn path_of(text: &str) -> Result<GuestPath, ControlError> {
    if text.is_empty() {
        return Err(ControlError::invalid("path is missing: give an absolute path in the sandbox"));
    }
    guest_path(text)
}

/// As `ls -l` shows it.
fn mode_text(kind: EntryKind, mode: u32) -> String {
    let first = match kind {
        EntryKind::File => '-',
        EntryKind::Directory => 'd',
        EntryKind::SymbolicLink => 'l',
        EntryKind::Pipe => 'p',
        EntryKind::Socket => 's',
        EntryKind::CharacterDevice => 'c',
        EntryKind::BlockDevice => 'b',
    };
    let bits = "rwxrwxrwx".chars().enumerate();
    let bits = bits.map(|(index, letter)| if mode & (0o400 >> index) != 0 { letter } else { '-' });
    std::iter::once(first).chain(bits).collect()
}

fn view(entry: Entry, directory: Option<&str>, path: Option<&str>) -> FileEntry {
    let name = String::from_utf8_lossy(&entry.name).into_owned();
    let path = match (directory, path) {
        (Some(directory), _) => format!("{}/{name}", directory.trim_end_matches('/')),
        (None, Some(path)) => path.to_owned(),
        (None, None) => name.clone(),
    };
    let target = entry.link.as_ref();
    let is_dir = entry.kind == EntryKind::Directory
        || target.is_some_and(|link| link.kind == Some(EntryKind::Directory));
    FileEntry {
        path,
        is_dir,
        size: entry.size,
        mode: mode_text(entry.kind, entry.mode),
        mtime: entry.modified_ns.div_euclid(1_000_000_000),
        link_target: target.map(|link| String::from_utf8_lossy(&link.text).into_owned()),
        name,
    }
}

pub(crate) async fn open_reader(
    sandbox: InUse,
    path: GuestPath,
) -> Result<(InUse, FileReader), ControlError> {
    let reader = sandbox.link.read_file(path, 0, None).await?;
    Ok((sandbox, reader))
}

pub(crate) fn open_writer(sandbox: InUse, path: GuestPath) -> Result<(InUse, FileWriter), ControlError> {
    let spec = WriteSpec { path, how: WriteMode::Replace, mode: None, owner: None, parents: Parents::Create };
    let writer = sandbox.link.write_file(spec)?;
    Ok((sandbox, writer))
}

impl Control {
    /// Opens a file for reading. It is a file by the time this returns.
    pub async fn read_file(
        &self,
        caller: &Caller,
        id: &str,
        path: &str,
    ) -> Result<(InUse, FileReader), ControlError> {
        let path = path_of(path)?;
        open_reader(self.enter_to_look(caller, id).await?, path).await
    }

    /// Opens a file for writing. Nothing is replaced before the writer is finished.
    pub async fn write_file(
        &self,
        caller: &Caller,
        id: &str,
        path: &str,
    ) -> Result<(InUse, FileWriter), ControlError> {
        let path = path_of(path)?;
        open_writer(self.enter(caller, id).await?, path)
    }

    /// What is in a directory.
    pub async fn list_directory(
        &self,
        caller: &Caller,
        id: &str,
        path: &str,
    ) -> Result<DirectoryListing, ControlError> {
        let text = if path.is_empty() { "/" } else { path };
        let path = path_of(text)?;
        let sandbox = self.enter_to_look(caller, id).await?;
        let listing = sandbox.link.list_directory(ListSpec { path, depth: 1 })?;
        let (entries, truncated) = listing.collect(ENTRIES_MAX).await?;
        let entries = entries.into_iter().map(|entry| view(entry, Some(text), None)).collect();
        Ok(DirectoryListing { path: text.to_owned(), entries, truncated })
    }

    /// One file's metadata.
    pub async fn stat(&self, caller: &Caller, id: &str, path: &str) -> Result<FileEntry, ControlError> {
        let guest_path = path_of(path)?;
        let sandbox = self.enter_to_look(caller, id).await?;
        Ok(view(sandbox.link.stat(guest_path, Links::Follow).await?, None, Some(path)))
    }

    /// Removes a file or a directory with everything in it.
    pub async fn remove_file(&self, caller: &Caller, id: &str, path: &str) -> Result<(), ControlError> {
        let path = path_of(path)?;
        let sandbox = self.enter(caller, id).await?;
        Ok(sandbox.link.remove(path, RemoveScope::Recursive).await?)
    }

    /// Makes a directory, with its parents.
    pub async fn make_directory(
        &self,
        caller: &Caller,
        id: &str,
        change: FileChange,
    ) -> Result<(), ControlError> {
        let path = path_of(&change.path)?;
        let mode = change.mode.as_deref().map(octal).transpose()?;
        let sandbox = self.enter(caller, id).await?;
        Ok(sandbox.link.make_directory(path, Parents::Create, mode, None).await?)
    }

    /// Moves a file or a directory.
    pub async fn move_file(&self, caller: &Caller, id: &str, change: FileChange) -> Result<(), ControlError> {
        let from = path_of(&change.path)?;
        let to = path_of(change.to.as_deref().unwrap_or_default())?;
        let sandbox = self.enter(caller, id).await?;
        Ok(sandbox.link.rename(from, to, Parents::Create).await?)
    }

    /// Changes who may do what with a file.
    pub async fn set_mode(&self, caller: &Caller, id: &str, change: FileChange) -> Result<(), ControlError> {
        let path = path_of(&change.path)?;
        let mode = octal(change.mode.as_deref().unwrap_or_default())?;
        let sandbox = self.enter(caller, id).await?;
        Ok(sandbox.link.set_mode(path, mode).await?)
    }
}

fn octal(text: &str) -> Result<u32, ControlError> {
    let mode = u32::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777);
    mode.ok_or_else(|| ControlError::invalid("mode must be octal, such as `0755`"))
}
