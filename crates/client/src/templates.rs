//! Templates.

use contract::template::Template;
use serde_json::Value;

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;

impl Api {
    /// Templates that may be used.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn templates(&self) -> Result<Vec<Template>, ClientError> {
        self.get("/v1/templates").await
    }

    /// One template.
    pub async fn template(&self, name: &str) -> Result<Template, ClientError> {
        self.get(&format!("/v1/templates/{}", encoded(name))).await
    }

    /// Has a template made ready ahead of its first use.
    pub async fn prepare_template(&self, name: &str) -> Result<Template, ClientError> {
        self.post(&format!("/v1/templates/{}/prepare", encoded(name)), &Value::Object(Default::default()))
            .await
    }

    /// Deletes a template.
    pub async fn delete_template(&self, name: &str) -> Result<(), ClientError> {
        self.remove(&format!("/v1/templates/{}", encoded(name))).await
    }
}
