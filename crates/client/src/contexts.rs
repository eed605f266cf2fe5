//! Code: once, or in a context that keeps its state.

use contract::interpreter::{Context, CreateContext, RunOnce, RunOnceAnswer};

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;

fn at(id: &str) -> String {
    format!("/v1/sandboxes/{}/repl", encoded(id))
}

impl Api {
    /// Runs code once.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn run_once(&self, id: &str, request: &RunOnce) -> Result<RunOnceAnswer, ClientError> {
        self.post(&at(id), request).await
    }

    /// Contexts that run.
    pub async fn contexts(&self, id: &str) -> Result<Vec<Context>, ClientError> {
        self.get(&format!("{}/sessions", at(id))).await
    }

    /// Makes a context.
    pub async fn create_context(&self, id: &str, request: &CreateContext) -> Result<Context, ClientError> {
        self.post(&format!("{}/sessions", at(id)), request).await
    }

    /// Ends a context.
    pub async fn delete_context(&self, id: &str, context: &str) -> Result<(), ClientError> {
        self.remove(&format!("{}/sessions/{}", at(id), encoded(context))).await
    }
}
