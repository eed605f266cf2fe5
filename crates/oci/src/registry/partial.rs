//! The part of a blob that has come. One pull at a time adds to it, in whichever process: it is locked, and others wait until the blob
//! is there. What a pull leaves behind the next one goes on with.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::io::{AsyncSeekExt, AsyncWriteExt};

use super::blocking::blocking;
use super::error::PullError;
use crate::digest::Digester;
use crate::layout::{Layout, LayoutError, host};
use crate::manifest::Descriptor;

/// How often it is looked whether somebody else is done with a blob.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// A blob on its way, ours alone.
pub(super) struct Partial {
    layout: Layout,
    path: PathBuf,
    file: tokio::fs::File,
    digester: Digester,
}

impl Partial {
    /// Takes charge of a blob; nothing when it is there, perhaps because somebody else has just brought it.
    pub(super) async fn claim(layout: &Layout, blob: &Descriptor) -> Result<Option<Self>, PullError> {
        let path = layout.partial_path(&blob.digest);
        loop {
            if layout.has(blob) {
                return Ok(None);
            }
            let opened = File::options().read(true).write(true).create(true).truncate(false).open(&path);
            let file = opened.map_err(host("open", &path))?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    continue;
                }
                Err(errno) => return Err(host("lock", &path)(errno.into()).into()),
            }
            // Whoever had it before may have moved it into its place, or swept it away: then this is no longer the file of that name.
            let ours = file.metadata().map_err(host("look at", &path))?;
            if !std::fs::symlink_metadata(&path).is_ok_and(|named| named.ino() == ours.ino()) {
                continue;
            }
            if layout.has(blob) {
                std::fs::remove_file(&path).map_err(host("remove", &path))?;
                return Ok(None);
            }
            if ours.len() > blob.size {
                file.set_len(0).map_err(host("write", &path))?;
            }
            let summed = blocking(move || sum(&file).map(|digester| (file, digester))).await;
            let (file, digester) = summed.and_then(|summed| summed).map_err(host("read", &path))?;
            let file = tokio::fs::File::from_std(file);
            return Ok(Some(Self { layout: layout.clone(), path, file, digester }));
        }
    }

    /// How much has come.
    pub(super) fn bytes(&self) -> u64 {
        self.digester.bytes()
    }

    pub(super) fn is(&self, blob: &Descriptor) -> bool {
        self.bytes() == blob.size && self.digester.finish() == blob.digest
    }

    pub(super) async fn add(&mut self, piece: &[u8]) -> Result<(), PullError> {
        self.file.write_all(piece).await.map_err(host("write", &self.path))?;
        self.digester.update(piece);
        Ok(())
    }

    /// Throws away what has come.
    pub(super) async fn restart(&mut self) -> Result<(), PullError> {
        let failed = |source| LayoutError::Host { doing: "write", path: self.path.clone(), source };
        self.file.flush().await.map_err(failed)?;
        self.file.set_len(0).await.map_err(failed)?;
        self.file.rewind().await.map_err(failed)?;
        self.digester = Digester::default();
        Ok(())
    }

    /// Puts the whole blob in its place.
    pub(super) async fn finish(mut self, blob: &Descriptor) -> Result<(), PullError> {
        self.file.flush().await.map_err(host("write", &self.path))?;
        let file = self.file.into_std().await;
        let (layout, path, blob) = (self.layout, self.path, blob.clone());
        let root = layout.root().to_owned();
        Ok(blocking(move || layout.adopt(&file, &path, &blob)).await.map_err(host("work in", &root))??)
    }
}

fn sum(mut file: &File) -> std::io::Result<Digester> {
    let mut digester = Digester::default();
    let mut buffer = vec![0; 1 << 17];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digester),
            count => digester.update(&buffer[..count]),
        }
    }
}
