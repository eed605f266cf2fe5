//! Volumes.

use contract::volume::{CreateVolume, PatchVolume, Volume};

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;

impl Api {
    /// All volumes.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn volumes(&self) -> Result<Vec<Volume>, ClientError> {
        self.get("/v1/volumes").await
    }

    /// One volume.
    pub async fn volume(&self, name: &str) -> Result<Volume, ClientError> {
        self.get(&format!("/v1/volumes/{}", encoded(name))).await
    }

    /// Makes a volume.
    pub async fn create_volume(&self, request: &CreateVolume) -> Result<Volume, ClientError> {
        self.post("/v1/volumes", request).await
    }

    /// Changes a volume.
    pub async fn patch_volume(&self, name: &str, change: &PatchVolume) -> Result<Volume, ClientError> {
        self.patch(&format!("/v1/volumes/{}", encoded(name)), change).await
    }

    /// Deletes a volume.
    pub async fn delete_volume(&self, name: &str) -> Result<(), ClientError> {
        self.remove(&format!("/v1/volumes/{}", encoded(name))).await
    }
}
