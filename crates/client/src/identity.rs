//! Who is calling, and with which keys; which server answers.

use contract::identity::{CreateToken, CreatedToken, Me, Token};
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

    /// Which program answers.
    pub async fn version(&self) -> Result<Version, ClientError> {
        self.get("/v1/version").await
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
