//! What is there, and removing it.

use std::io;

use futures::StreamExt;
use object_store::ObjectStoreExt;
use object_store::path::Path;

use super::error::Failure;
use super::tries::{Deed, within};
use super::{BlobError, BlobKey, Blobs, Store};

/// Names listed, or removed, below one prefix. More are an error.
pub const LISTED_MAX: usize = 100_000;

/// Removals under way at a time.
const REMOVALS_AT_ONCE: usize = 8;

/// A blob that is there.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its name.
    pub key: BlobKey,
    /// Its bytes.
    pub length: u64,
}

impl Blobs {
    /// The blobs below a prefix, sorted. What lies there under names that are not [`BlobKey`]s is somebody else's and left out.
    pub async fn list(&self, prefix: &BlobKey) -> Result<Vec<Listed>, BlobError> {
        let ours = self.prefix.as_ref();
        let name = |path: &Path| {
            let path = path.as_ref().strip_prefix(ours)?;
            BlobKey::parse(path.strip_prefix('/').unwrap_or(path)).ok()
        };
        let found = self.paths(prefix).await?;
        let mut listed: Vec<Listed> = found
            .iter()
            .filter_map(|(path, length)| Some(Listed { key: name(path)?, length: *length }))
            .collect();
        listed.sort();
        Ok(listed)
    }

    /// Removes everything below a prefix. That nothing is there is fine. After an error some of it may be left, and it can be done again.
    pub async fn delete_prefix(&self, prefix: &BlobKey) -> Result<(), BlobError> {
        let idle = self.patience.idle_timeout;
        let paths = self.paths(prefix).await?;
        let mut removals = futures::stream::iter(paths)
            .map(|(path, _)| async move {
                let deed = Deed { action: "delete", key: path.as_ref() };
                self.trying(deed, || within(idle, self.store().delete(&path))).await
            })
            .buffer_unordered(REMOVALS_AT_ONCE);
        while let Some(removed) = removals.next().await {
            removed?;
        }
        if let Store::Directory { root, .. } = &self.store {
            // Uploads that were killed lie beside what they were to become, and are not listed.
            let folder = root.join(prefix.as_str());
            let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(folder)).await;
            match removed.map_err(io::Error::other).flatten() {
                Ok(()) => {}
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
                Err(error) => {
                    let source = super::Trouble::Store(error.to_string());
                    return Err(BlobError::Failed {
                        action: "delete",
                        key: prefix.to_string(),
                        tries: 1,
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    async fn paths(&self, prefix: &BlobKey) -> Result<Vec<(Path, u64)>, BlobError> {
        let idle = self.patience.idle_timeout;
        let below = self.path(prefix);
        let deed = Deed { action: "list", key: prefix.as_str() };
        let found = self
            .trying(deed, || async {
                let (mut found, mut entries) = (Vec::new(), self.store().list(Some(&below)));
                while let Some(entry) = within(idle, async { entries.next().await.transpose() }).await? {
                    if found.len() == LISTED_MAX {
                        let error = BlobError::TooMany { prefix: prefix.clone(), max: LISTED_MAX };
                        return Err(Failure::Final(error));
                    }
                    found.push((entry.location, entry.size));
                }
                Ok(found)
            })
            .await?;
        Ok(found.unwrap_or_default())
    }
}
