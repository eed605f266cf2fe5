//! Files from the host's side.

use std::future::poll_fn;

use super::state::Item;
use super::stream::Stream;
use super::{CallError, Link, LinkError};
use crate::message::{
    Entry, Event, FileRequest, Links, ListSpec, Owner, Parents, RemoveScope, Request, Response, WatchEvent,
    WatchSpec, WriteSpec,
};
use crate::path::GuestPath;

/// A file being read. Dropping it stops.
pub struct FileReader {
    stream: Stream,
    entry: Entry,
    done: bool,
}

/// A file being written. Dropping it without [`FileWriter::finish`] aborts.
pub struct FileWriter {
    stream: Stream,
}

/// A directory being listed. Dropping it stops.
pub struct DirectoryList {
    stream: Stream,
    truncated: Option<bool>,
}

/// A watch. Dropping it ends it.
pub struct Watch {
    stream: Stream,
}

impl Link {
    /// Metadata of a path.
    pub async fn stat(&self, path: GuestPath, links: Links) -> Result<Entry, CallError> {
        match self.call(&Request::File(FileRequest::Stat { path, links })).await? {
            Response::Entry(entry) => Ok(entry),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Opens a file for reading, from `offset`, at most `length` bytes.
    pub async fn read_file(
        &self,
        path: GuestPath,
        offset: u64,
        length: Option<u64>,
    ) -> Result<FileReader, CallError> {
        let stream = self.stream(&Request::File(FileRequest::Read { path, offset, length }))?;
        match stream.event().await? {
            Ok(Event::Opened(entry)) => Ok(FileReader { stream, entry, done: false }),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Opens a file for writing. Failures show when data is written or at [`FileWriter::finish`].
    pub fn write_file(&self, spec: WriteSpec) -> Result<FileWriter, CallError> {
        Ok(FileWriter { stream: self.stream(&Request::File(FileRequest::Write(spec)))? })
    }

    /// Lists a directory.
    pub fn list_directory(&self, spec: ListSpec) -> Result<DirectoryList, CallError> {
        Ok(DirectoryList { stream: self.stream(&Request::File(FileRequest::List(spec)))?, truncated: None })
    }

    /// Makes a directory.
    pub async fn make_directory(
        &self,
        path: GuestPath,
        parents: Parents,
        mode: Option<u32>,
        owner: Option<Owner>,
    ) -> Result<(), CallError> {
        self.perform(&Request::File(FileRequest::MakeDirectory { path, parents, mode, owner })).await
    }

    /// Removes a file or a directory.
    pub async fn remove(&self, path: GuestPath, scope: RemoveScope) -> Result<(), CallError> {
        self.perform(&Request::File(FileRequest::Remove { path, scope })).await
    }

    /// Moves a file or a directory.
    pub async fn rename(&self, from: GuestPath, to: GuestPath, parents: Parents) -> Result<(), CallError> {
        self.perform(&Request::File(FileRequest::Rename { from, to, parents })).await
    }

    /// Changes permission bits.
    pub async fn set_mode(&self, path: GuestPath, mode: u32) -> Result<(), CallError> {
        self.perform(&Request::File(FileRequest::SetMode { path, mode })).await
    }

    /// Changes owner and group.
    pub async fn set_owner(&self, path: GuestPath, owner: Owner, links: Links) -> Result<(), CallError> {
        self.perform(&Request::File(FileRequest::SetOwner { path, owner, links })).await
    }

    /// Text of a symbolic link.
    pub async fn read_link(&self, path: GuestPath) -> Result<Vec<u8>, CallError> {
        match self.call(&Request::File(FileRequest::ReadLink { path })).await? {
            Response::Link(text) => Ok(text),
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Watches a directory; every change after the return is reported.
    pub async fn watch(&self, spec: WatchSpec) -> Result<Watch, CallError> {
        let stream = self.stream(&Request::File(FileRequest::Watch(spec)))?;
        match stream.event().await? {
            Ok(Event::Watching) => Ok(Watch { stream }),
            _ => Err(LinkError::Unexpected.into()),
        }
    }
}

impl FileReader {
    /// The file's metadata when it was opened.
    #[must_use]
    pub fn entry(&self) -> &Entry {
        &self.entry
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>, CallError> {
        if self.done {
            return Ok(None);
        }
        let piece = poll_fn(|context| self.stream.poll_data(context)).await?;
        self.done = piece.is_none();
        Ok(piece)
    }

    /// Everything that is left, which must not exceed `bytes_max`; `None` when it does.
    pub async fn read_to_end(mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, CallError> {
        let mut all = Vec::new();
        while let Some(piece) = self.next().await? {
            if all.len() + piece.len() > bytes_max {
                return Ok(None);
            }
            all.extend_from_slice(&piece);
        }
        Ok(Some(all))
    }
}

impl FileWriter {
    /// Writes all of `data`, as fast as the guest's disk takes it.
    pub async fn write(&mut self, data: &[u8]) -> Result<(), CallError> {
        if self.stream.send(data).await? {
            return Ok(());
        }
        // The guest ended the stream early: its reason is waiting.
        match self.stream.response().await {
            Err(error) => Err(error),
            Ok(_) => Err(LinkError::Unexpected.into()),
        }
    }

    /// Completes the upload; returns how many bytes the file took.
    pub async fn finish(self) -> Result<u64, CallError> {
        self.stream.end();
        match self.stream.response().await? {
            Response::Transferred { bytes } => Ok(bytes),
            _ => Err(LinkError::Unexpected.into()),
        }
    }
}

impl DirectoryList {
    /// The next batch of entries; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<Entry>>, CallError> {
        if self.truncated.is_some() {
            return Ok(None);
        }
        match self.stream.event().await? {
            Ok(Event::Entries(batch)) => Ok(Some(batch)),
            Err(Response::Listed { truncated, .. }) => {
                self.truncated = Some(truncated);
                Ok(None)
            }
            _ => Err(LinkError::Unexpected.into()),
        }
    }

    /// Whether entries were left out; known at the end.
    #[must_use]
    pub fn truncated(&self) -> bool {
        self.truncated == Some(true)
    }

    /// All entries, which must not be more than `entries_max`; the rest is left out.
    pub async fn collect(mut self, entries_max: usize) -> Result<(Vec<Entry>, bool), CallError> {
        let mut all = Vec::new();
        while let Some(batch) = self.next().await? {
            all.extend(batch);
            if all.len() > entries_max {
                all.truncate(entries_max);
                return Ok((all, true));
            }
        }
        let truncated = self.truncated();
        Ok((all, truncated))
    }
}

impl Watch {
    /// The next changes. An error when the directory itself is gone.
    pub async fn next(&mut self) -> Result<Vec<WatchEvent>, CallError> {
        match self.stream.item().await? {
            Item::Event(Event::Changes(changes), _) => Ok(changes),
            Item::Done(Err(failure)) => Err(failure.into()),
            _ => Err(LinkError::Unexpected.into()),
        }
    }
}
