//! Chunks of packed files, kept on this host for all machines together.
//!
//! A chunk is fetched once, whoever asks for it and however many do at the same time, and kept as a file named by its digest. What was used
//! least recently goes when all together are over the limit. No byte is given that is not the one that was packed: chunks are verified
//! when they come, and again when they are first read after a start; a damaged file is dropped and fetched again. A full disk makes
//! the cache smaller and fails nobody.

mod flight;
mod ledger;
mod source;
mod whole;

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::SystemTime;

use memory::stream::{CHUNK_BYTES, ChunkSource, Digest, Index};

use crate::blobs::{BlobKey, Blobs};
use crate::durable::{Durability, write_file};
use flight::Flights;
use ledger::Ledger;
use source::CachedSource;
pub use whole::{FetchFileError, fetch_file};

/// Chunks that are also kept in memory, because a machine that has asked for one page of a chunk soon asks for another.
const RECENT_BYTES_MAX: usize = 64 << 20;
const RECENT_CHUNKS_MAX: usize = 64;

/// The chunks of one host.
#[derive(Debug)]
pub struct ChunkCache {
    directory: PathBuf,
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The files.
    ledger: Ledger,
    /// Chunks in memory, the one used last at the end.
    recent: Vec<(Digest, Arc<Vec<u8>>)>,
    flights: Flights,
    counts: CacheCounts,
    /// A write has failed, and none has gone well since.
    cannot_write: bool,
}

/// Where chunks came from since the cache was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheCounts {
    /// From memory.
    pub memory: u64,
    /// From a file.
    pub disk: u64,
    /// From the store.
    pub fetched: u64,
    /// Files that were damaged and dropped.
    pub damaged: u64,
    /// Chunks that could not be kept.
    pub not_kept: u64,
}

/// Why a cache could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("could not use `{path}` for chunks")]
pub struct OpenCacheError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl ChunkCache {
    /// Opens a cache, for one process at a time, and finds again what an earlier one kept. With `bytes_max` 0 nothing is kept on disk.
    pub fn open(directory: &Path, bytes_max: u64) -> Result<Arc<ChunkCache>, OpenCacheError> {
        let wrong = |source: io::Error| OpenCacheError { path: directory.to_owned(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(wrong)?;
        let ledger = found(directory).map_err(wrong)?;
        let state = Mutex::new(State { ledger, ..State::default() });
        let cache = ChunkCache { directory: directory.to_owned(), bytes_max, state };
        cache.shrink();
        Ok(Arc::new(cache))
    }

    /// The chunks of one blob, by way of this cache.
    pub fn source(self: &Arc<Self>, blobs: Arc<Blobs>, key: BlobKey, index: Index) -> Arc<dyn ChunkSource> {
        Arc::new(CachedSource { cache: Arc::clone(self), blobs, key, index })
    }

    /// Bytes of all files.
    pub fn bytes_used(&self) -> u64 {
        self.state().ledger.bytes()
    }

    /// Where chunks came from so far.
    pub fn counts(&self) -> CacheCounts {
        self.state().counts
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn path(&self, digest: Digest) -> PathBuf {
        self.directory.join(digest.to_string())
    }

    /// A chunk from its file, verified unless it was before. Blocks.
    fn read(&self, digest: Digest, length: u64) -> Option<Arc<Vec<u8>>> {
        let (kept, verified) = self.state().ledger.look(digest)?;
        if kept != length {
            // Then the index is wrong, and the store will say so.
            return None;
        }
        match read_file(&self.path(digest), length) {
            Ok(bytes) if verified || Digest::of(&bytes) == digest => {
                let mut state = self.state();
                state.ledger.used(digest);
                state.counts.disk += 1;
                Some(Arc::new(bytes))
            }
            outcome => {
                let mut state = self.state();
                state.ledger.remove(digest);
                if outcome.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
                    return None;
                }
                state.counts.damaged += 1;
                drop(state);
                tracing::warn!(chunk = %digest, "a kept chunk is damaged and will be fetched again");
                self.unlink(digest);
                None
            }
        }
    }

    /// Keeps a verified chunk as a file, if that is possible. Blocks.
    fn keep(&self, digest: Digest, bytes: &[u8]) {
        let length = bytes.len() as u64;
        if length > self.bytes_max {
            return;
        }
        let path = self.path(digest);
        let written = write_file(&path, bytes, Durability::Unsynced);
        if written.is_ok() {
            drop(File::open(&path).map(|file| note_used(&file)));
        }
        let mut state = self.state();
        match written {
            Ok(()) => {
                state.ledger.insert(digest, length);
                state.cannot_write = false;
                drop(state);
                self.shrink();
            }
            Err(error) => {
                state.counts.not_kept += 1;
                // Said once, not for each of thousands.
                if !std::mem::replace(&mut state.cannot_write, true) {
                    tracing::warn!(directory = %self.directory.display(), %error, "chunks cannot be kept, and are fetched each time");
                }
            }
        }
    }

    /// Removes what was used least recently until the rest is within the limit.
    fn shrink(&self) {
        loop {
            let mut state = self.state();
            if state.ledger.bytes() <= self.bytes_max {
                return;
            }
            let Some(digest) = state.ledger.oldest() else { return };
            state.ledger.remove(digest);
            drop(state);
            self.unlink(digest);
        }
    }

    /// Whoever has the file open goes on reading it.
    fn unlink(&self, digest: Digest) {
        let path = self.path(digest);
        if let Err(error) = std::fs::remove_file(&path)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %path.display(), %error, "a kept chunk cannot be removed");
        }
    }
}

impl State {
    fn recall(&mut self, digest: Digest, length: u64) -> Option<Arc<Vec<u8>>> {
        let at =
            self.recent.iter().position(|(known, bytes)| *known == digest && bytes.len() as u64 == length)?;
        let found = self.recent.remove(at);
        let bytes = Arc::clone(&found.1);
        self.recent.push(found);
        self.counts.memory += 1;
        self.ledger.used(digest);
        Some(bytes)
    }

    fn remember(&mut self, digest: Digest, bytes: &Arc<Vec<u8>>) {
        self.recent.retain(|(known, _)| *known != digest);
        self.recent.push((digest, Arc::clone(bytes)));
        let mut total: usize = self.recent.iter().map(|(_, bytes)| bytes.len()).sum();
        let mut gone = 0;
        while total > RECENT_BYTES_MAX || self.recent.len() - gone > RECENT_CHUNKS_MAX {
            total -= self.recent[gone].1.len();
            gone += 1;
        }
        self.recent.drain(..gone);
    }
}

/// What lies in the directory, the least recently used first. Files that were being written are removed, what is not ours is left alone.
fn found(directory: &Path) -> io::Result<Ledger> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let Some(name) = name.to_str() else { continue };
        if name.starts_with('.') && name.ends_with(".tmp") {
            std::fs::remove_file(entry.path())?;
        } else if let Some(digest) = Digest::parse(name) {
            let metadata = entry.metadata()?;
            if metadata.is_file() {
                files.push((metadata.modified()?, digest, metadata.len()));
            }
        }
    }
    files.sort();
    let mut ledger = Ledger::default();
    for (_, digest, length) in files {
        ledger.insert_unverified(digest, length);
    }
    Ok(ledger)
}

/// Notes in a file that it was used now, for the next time the cache is opened. Always by the same clock: the one by which file systems
/// stamp what is written lags some milliseconds behind, which would make a new chunk older than one read just before.
fn note_used(file: &File) {
    // Only the order of removals depends on it.
    drop(file.set_modified(SystemTime::now()));
}

/// A file of this length, which is noted as used.
fn read_file(path: &Path, length: u64) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let mut bytes = Vec::with_capacity(length.min(CHUNK_BYTES) as usize);
    (&file).take(length + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    note_used(&file);
    Ok(bytes)
}

#[cfg(test)]
mod tests;
