//! Snapshots.

use contract::snapshot::{Snapshot, Snapshots};

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;

impl Api {
    /// All snapshots, or those of one sandbox; newest first.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn snapshots(&self, sandbox: Option<&str>) -> Result<Vec<Snapshot>, ClientError> {
        let query = sandbox.map(|id| format!("?sandbox_id={}", encoded(id))).unwrap_or_default();
        let answer: Snapshots = self.get(&format!("/v1/snapshots{query}")).await?;
        Ok(answer.snapshots)
    }

    /// One snapshot.
    pub async fn snapshot_of_id(&self, id: &str) -> Result<Snapshot, ClientError> {
        self.get(&format!("/v1/snapshots/{}", encoded(id))).await
    }

    /// Deletes a snapshot.
    pub async fn delete_snapshot(&self, id: &str) -> Result<(), ClientError> {
        self.remove(&format!("/v1/snapshots/{}", encoded(id))).await
    }
}
