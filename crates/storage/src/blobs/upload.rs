//! Putting blobs into the store.
//!
//! A small one is one request; a larger one is sent in parts that become a blob when all are there. A directory gets a file aside that is synced and
//! renamed. Nothing is ever there under the name but all of it. Of an upload that was killed, parts stay in the store: a directory loses
//! them with [`Blobs::delete_prefix`], a bucket with [`Blobs::give_up`] by who noted the upload, or when its owner has told it to abort
//! incomplete uploads after some days.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3;
use object_store::multipart::{MultipartStore, PartId};
use object_store::path::Path;
use object_store::{ObjectStoreExt, PutPayload};

use super::tries::{Deed, within};
use super::{BlobError, BlobKey, Blobs, Store};

/// Bytes of a part. A bucket takes 10,000 of them, which is more than the longest packed file has.
pub const PART_BYTES: u64 = 8 << 20;

/// Parts under way at a time.
const PARTS_AT_ONCE: usize = 4;

impl Blobs {
    /// Puts bytes there, in place of what has the name. For what is small; files go with [`Blobs::put_file`].
    pub async fn put(&self, key: &BlobKey, bytes: Vec<u8>) -> Result<(), BlobError> {
        let (path, limit) = (self.path(key), self.patience.deadline(bytes.len() as u64));
        let payload = PutPayload::from(bytes);
        let deed = Deed { action: "write", key: key.as_str() };
        let put = self.trying(deed, || within(limit, self.store().put(&path, payload.clone()))).await?;
        put.map(drop).ok_or_else(|| BlobError::NotFound { key: key.clone() })
    }

    /// Puts the bytes of a file there, in place of what has the name. The file must not change meanwhile.
    pub async fn put_file(&self, key: &BlobKey, file: File) -> Result<(), BlobError> {
        self.put_file_noting(key, file, |_| Ok(())).await
    }

    /// The same. An upload in parts to a bucket is given to `note` before the first of them goes: by that [`Blobs::give_up`] removes what a
    /// killed process leaves of it.
    pub async fn put_file_noting(
        &self,
        key: &BlobKey,
        file: File,
        note: impl FnOnce(&str) -> io::Result<()>,
    ) -> Result<(), BlobError> {
        let unreadable = |source: io::Error| BlobError::File { key: key.clone(), source };
        let length = file.metadata().map_err(unreadable)?.len();
        let source = Source { file: Arc::new(file), length };
        if length <= PART_BYTES {
            let bytes = source.part(0).await.map_err(unreadable)?;
            return self.put(key, bytes).await;
        }
        match &self.store {
            Store::Directory { .. } => self.put_aside(key, &source).await,
            Store::S3(store) => self.put_parts(store, key, &source, note).await,
        }
    }

    /// Removes the parts of an upload that was noted and never ended. One that is gone is fine.
    pub async fn give_up(&self, key: &BlobKey, upload: &str) -> Result<(), BlobError> {
        let Store::S3(store) = &self.store else { return Ok(()) };
        self.abort(store, key, &upload.to_owned()).await
    }

    async fn abort(&self, store: &AmazonS3, key: &BlobKey, upload: &String) -> Result<(), BlobError> {
        let (path, idle) = (self.path(key), self.patience.idle_timeout);
        let deed = Deed { action: "abort the upload of", key: key.as_str() };
        self.trying(deed, || within(idle, store.abort_multipart(&path, upload))).await.map(drop)
    }

    /// Into a directory: one part after the other, because that is as fast as a disk is.
    async fn put_aside(&self, key: &BlobKey, source: &Source) -> Result<(), BlobError> {
        let path = self.path(key);
        let limit = self.patience.deadline(PART_BYTES);
        // What is not completed is removed when it is dropped.
        let deed = Deed { action: "write", key: key.as_str() };
        let absent = || BlobError::NotFound { key: key.clone() };
        let start = || within(limit, self.store().put_multipart(&path));
        let mut upload = self.trying(deed, start).await?.ok_or_else(absent)?;
        for number in 0..source.parts() {
            let bytes = source.part(number).await;
            let bytes = bytes.map_err(|source| BlobError::File { key: key.clone(), source })?;
            self.once(deed, within(limit, upload.put_part(bytes.into())).await)?;
        }
        // Synced by then, so it may take as long as all of it.
        let limit = self.patience.deadline(source.length);
        self.once(deed, within(limit, upload.complete()).await)?;
        Ok(())
    }

    /// What can be done only once.
    fn once<T>(&self, deed: Deed<'_>, outcome: Result<T, super::error::Failure>) -> Result<T, BlobError> {
        use super::error::Failure;
        let Deed { action, key } = deed;
        outcome.map_err(|failure| match failure {
            Failure::Final(error) => error,
            Failure::Again(source) => BlobError::Failed { action, key: key.to_owned(), tries: 1, source },
            Failure::Never(source) => BlobError::Refused { action, key: key.to_owned(), source },
            Failure::Absent => {
                let source = super::Trouble::Store("it is not there".to_owned());
                BlobError::Failed { action, key: key.to_owned(), tries: 1, source }
            }
        })
    }

    async fn put_parts(
        &self,
        store: &AmazonS3,
        key: &BlobKey,
        source: &Source,
        note: impl FnOnce(&str) -> io::Result<()>,
    ) -> Result<(), BlobError> {
        let path = self.path(key);
        let idle = self.patience.idle_timeout;
        let deed = Deed { action: "write", key: key.as_str() };
        let absent = || BlobError::NotFound { key: key.clone() };
        let id = self.trying(deed, || within(idle, store.create_multipart(&path))).await?;
        let id = id.ok_or_else(absent)?;
        let (path, id) = (&path, &id);
        let completed = async {
            note(id).map_err(|source| BlobError::Note { key: key.clone(), source })?;
            let parts = futures::stream::iter(0..source.parts())
                .map(|number| async move {
                    let bytes = source.part(number).await;
                    let bytes = bytes.map_err(|source| BlobError::File { key: key.clone(), source })?;
                    let limit = self.patience.deadline(bytes.len() as u64);
                    let payload = PutPayload::from(bytes);
                    let send = || within(limit, store.put_part(path, id, number as usize, payload.clone()));
                    self.trying(deed, send).await?.ok_or_else(absent)
                })
                .buffered(PARTS_AT_ONCE)
                .try_collect::<Vec<PartId>>()
                .await?;
            self.complete(store, key, path, id, parts, source.length).await
        }
        .await;
        if completed.is_err() {
            // As well as may be: the store may be away, and then who noted the upload, or its owner's rule for incomplete ones, does it.
            if let Err(error) = self.abort(store, key, id).await {
                tracing::warn!(key = key.as_str(), %error, "parts of a failed upload are left in the store");
            }
        }
        completed
    }

    async fn complete(
        &self,
        store: &AmazonS3,
        key: &BlobKey,
        path: &Path,
        id: &String,
        parts: Vec<PartId>,
        length: u64,
    ) -> Result<(), BlobError> {
        let idle = self.patience.idle_timeout;
        let deed = Deed { action: "write", key: key.as_str() };
        let finish = || within(idle, store.complete_multipart(path, id, parts.clone()));
        if self.trying(deed, finish).await?.is_some() {
            return Ok(());
        }
        // No such upload: an earlier try may have completed it although its answer was lost.
        let found = self.trying(deed, || within(idle, store.head(path))).await?;
        match found {
            Some(found) if found.size == length => Ok(()),
            _ => Err(BlobError::NotFound { key: key.clone() }),
        }
    }
}

/// A file in parts.
struct Source {
    file: Arc<File>,
    length: u64,
}

impl Source {
    fn parts(&self) -> u64 {
        self.length.div_ceil(PART_BYTES)
    }

    async fn part(&self, number: u64) -> io::Result<Vec<u8>> {
        let file = Arc::clone(&self.file);
        let start = number * PART_BYTES;
        let length = PART_BYTES.min(self.length.saturating_sub(start)) as usize;
        let read = move || {
            let mut bytes = vec![0; length];
            file.read_exact_at(&mut bytes, start)?;
            Ok(bytes)
        };
        tokio::task::spawn_blocking(read).await.map_err(io::Error::other).flatten()
    }
}
