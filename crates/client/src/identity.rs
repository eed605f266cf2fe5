//! Who is calling, and with which keys; which server answers.

use contract::event::Audit;
use contract::identity::{CreateToken, CreatedToken, Me, PatchMe, Token};
use contract::operation::Version;

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;

impl Api {
    /// Who is calling.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn me(&self) -> Result<Me, ClientError> {
        self.get("/v1/me").await
    }

    /// Changes the workspace.
    pub async fn patch_me(&self, change: &PatchMe) -> Result<Me, ClientError> {
        self.patch("/v1/me", change).await
    }

    /// Which program answers.
    pub async fn version(&self) -> Result<Version, ClientError> {
        self.get("/v1/version").await
    }

    /// Requests that changed something, newest first: from a time on (RFC 3339, or seconds of Unix time), so many at most.
    pub async fn audit(&self, since: Option<&str>, limit: Option<u32>) -> Result<Audit, ClientError> {
        let since = since.map(|since| format!("since={}", encoded(since)));
        let limit = limit.map(|limit| format!("limit={limit}"));
        let query: Vec<String> = since.into_iter().chain(limit).collect();
        self.get(&format!("/v1/audit?{}", query.join("&"))).await
    }

    /// All keys.
    pub async fn tokens(&self) -> Result<Vec<Token>, ClientError> {
        self.get("/v1/me/tokens").await
    }

    /// Makes a key.
    pub async fn create_token(&self, request: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.post("/v1/me/tokens", request).await
    }

    /// Makes a key useless.
    pub async fn revoke_token(&self, prefix: &str) -> Result<(), ClientError> {
        self.remove(&format!("/v1/me/tokens/{}", encoded(prefix))).await
    }
}
