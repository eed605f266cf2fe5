//! The MCP servers: messages of a client, passed on as they are.

use hyper::Method;
use serde_json::Value;

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;

impl Api {
    /// Sends one JSON-RPC message to the workspace's MCP server, or to that of one sandbox; its answer, if it has one.
    ///
    /// # Errors
    /// When the server refuses the message as such or cannot be reached.
    pub async fn mcp(&self, sandbox: Option<&str>, message: &Value) -> Result<Option<Value>, ClientError> {
        let path = match sandbox {
            None => "/v1/mcp".to_owned(),
            Some(id) => format!("/v1/sandboxes/{}/mcp", encoded(id)),
        };
        let bytes = self.read(Method::POST, &path, Some(message)).await?;
        if bytes.is_empty() {
            return Ok(None);
        }
        serde_json::from_slice(&bytes).map(Some).map_err(|error| self.http.protocol(error.to_string()))
    }
}
