//! Sandboxes: made, looked at, changed, put to sleep, forked, deleted.

use contract::event::Events as SandboxEvents;
use contract::lifecycle::{Lifecycle, PatchLifecycle, StartRequest, StatusAnswer};
use contract::port::{AddPort, CreatePreview, Port, Preview};
use contract::sandbox::{CreateSandbox, DeletedSandboxes, PatchSandbox, Sandbox, SandboxFilter};
use contract::snapshot::{ForkAnswer, ForkRequest, PromoteAnswer, PromoteRequest, Snapshot};
use contract::tree::SandboxTree;
use hyper::Method;
use serde_json::Value;

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;
use crate::events::Events;
use crate::http::{Ask, upload_bytes};

fn at(id: &str) -> String {
    format!("/v1/sandboxes/{}", encoded(id))
}

impl Api {
    /// Makes a sandbox, waiting while there is no room for it.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn create_sandbox(&self, request: &CreateSandbox) -> Result<Sandbox, ClientError> {
        self.make("/v1/sandboxes", request.template.as_deref(), request).await
    }

    /// All sandboxes, newest first.
    pub async fn sandboxes(&self) -> Result<Vec<Sandbox>, ClientError> {
        self.get("/v1/sandboxes").await
    }

    /// Sandboxes that fit, newest first.
    pub async fn list_sandboxes(&self, filter: &SandboxFilter) -> Result<Vec<Sandbox>, ClientError> {
        self.get(&format!("/v1/sandboxes{}", query(filter))).await
    }

    /// Deletes all sandboxes that fit. A filter that limits nothing is refused.
    pub async fn delete_sandboxes(&self, filter: &SandboxFilter) -> Result<DeletedSandboxes, ClientError> {
        self.call(Method::DELETE, &format!("/v1/sandboxes{}", query(filter)), None::<&()>).await
    }

    /// Deletes every sandbox.
    pub async fn delete_all_sandboxes(&self) -> Result<DeletedSandboxes, ClientError> {
        self.call(Method::DELETE, "/v1/sandboxes?all=true", None::<&()>).await
    }

    /// Where a sandbox comes from, and all that comes from the same.
    pub async fn tree(&self, id: &str) -> Result<SandboxTree, ClientError> {
        self.get(&format!("{}/tree", at(id))).await
    }

    /// One sandbox.
    pub async fn sandbox(&self, id: &str) -> Result<Sandbox, ClientError> {
        self.get(&at(id)).await
    }

    /// Changes name, metadata, variables or network.
    pub async fn patch_sandbox(&self, id: &str, change: &PatchSandbox) -> Result<Sandbox, ClientError> {
        self.patch(&at(id), change).await
    }

    /// Deletes a sandbox.
    pub async fn delete_sandbox(&self, id: &str) -> Result<(), ClientError> {
        self.remove(&at(id)).await
    }

    /// Stops its CPUs.
    pub async fn pause(&self, id: &str) -> Result<(), ClientError> {
        self.tell(Method::POST, &format!("{}/pause", at(id)), None::<&()>).await
    }

    /// Lets it go on.
    pub async fn resume(&self, id: &str) -> Result<(), ClientError> {
        self.tell(Method::POST, &format!("{}/resume", at(id)), None::<&()>).await
    }

    /// Puts it to sleep.
    pub async fn hibernate(&self, id: &str) -> Result<StatusAnswer, ClientError> {
        self.post(&format!("{}/hibernate", at(id)), &empty()).await
    }

    /// Wakes it.
    pub async fn wake(&self, id: &str) -> Result<StatusAnswer, ClientError> {
        self.post(&format!("{}/wake", at(id)), &empty()).await
    }

    /// Boots it from its disk: what was in its memory is lost.
    pub async fn start_cold(&self, id: &str) -> Result<StatusAnswer, ClientError> {
        self.post(&format!("{}/start", at(id)), &StartRequest { cold: Some(true) }).await
    }

    /// How long it may idle.
    pub async fn lifecycle(&self, id: &str) -> Result<Lifecycle, ClientError> {
        self.get(&format!("{}/lifecycle", at(id))).await
    }

    /// Changes how long it may idle.
    pub async fn patch_lifecycle(&self, id: &str, change: &PatchLifecycle) -> Result<Lifecycle, ClientError> {
        self.patch(&format!("{}/lifecycle", at(id)), change).await
    }

    /// Keeps this instant of it.
    pub async fn snapshot(&self, id: &str) -> Result<Snapshot, ClientError> {
        self.post(&format!("{}/snapshots", at(id)), &empty()).await
    }

    /// Makes children that go on from this instant of it.
    pub async fn fork(&self, id: &str, request: &ForkRequest) -> Result<ForkAnswer, ClientError> {
        self.make(&format!("{}/fork", at(id)), None, request).await
    }

    /// Makes a tree of children.
    pub async fn fork_tree(&self, id: &str, request: &ForkRequest) -> Result<ForkAnswer, ClientError> {
        self.make(&format!("{}/fork-tree", at(id)), None, request).await
    }

    /// Keeps one child of a tree.
    pub async fn promote(&self, id: &str, request: &PromoteRequest) -> Result<PromoteAnswer, ClientError> {
        self.post(&format!("{}/promote", at(id)), request).await
    }

    /// Its ports.
    pub async fn ports(&self, id: &str) -> Result<Vec<Port>, ClientError> {
        self.get(&format!("{}/ports", at(id))).await
    }

    /// Names a port of it.
    pub async fn add_port(&self, id: &str, port: &AddPort) -> Result<Port, ClientError> {
        self.post(&format!("{}/ports", at(id)), port).await
    }

    /// Makes a link to a port that works without a key.
    pub async fn preview(&self, id: &str, request: &CreatePreview) -> Result<Preview, ClientError> {
        self.post(&format!("{}/preview-token", at(id)), request).await
    }

    /// What happened to it.
    pub async fn sandbox_events(&self, id: &str, tail: u32) -> Result<SandboxEvents, ClientError> {
        self.get(&format!("{}/events?tail={tail}", at(id))).await
    }

    /// What its machine costs and its guest sees.
    pub async fn sandbox_metrics(&self, id: &str) -> Result<Value, ClientError> {
        self.get(&format!("{}/metrics", at(id))).await
    }

    /// What its console said so far.
    pub async fn logs(&self, id: &str, tail: Option<u32>) -> Result<Vec<u8>, ClientError> {
        let tail = tail.map(|tail| format!("&tail={tail}")).unwrap_or_default();
        let path = format!("{}/logs?follow=false{tail}", at(id));
        let ask = Ask {
            method: Method::GET,
            path: &path,
            accept: "text/plain",
            content_type: None,
            headers: Vec::new(),
            body: upload_bytes(Vec::new()),
        };
        let answer = self.http.send(ask).await?;
        self.http.whole(answer.into_body()).await
    }

    /// Follows its console: events `line` with `{"line"}`.
    pub async fn follow_logs(&self, id: &str, tail: Option<u32>) -> Result<Events, ClientError> {
        let tail = tail.map(|tail| format!("&tail={tail}")).unwrap_or_default();
        self.follow(Method::GET, &format!("{}/logs?follow=true{tail}", at(id)), None::<&()>).await
    }
}

fn query(filter: &SandboxFilter) -> String {
    let pairs: Vec<_> =
        filter.query().into_iter().map(|(key, value)| format!("{key}={}", encoded(&value))).collect();
    if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) }
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

#[cfg(test)]
mod tests {
    use contract::sandbox::SandboxStatus;

    use super::*;

    #[test]
    fn filters_are_encoded() {
        assert_eq!(query(&SandboxFilter::default()), "");
        let filter = SandboxFilter {
            status: vec![SandboxStatus::Running],
            metadata: vec![("task".to_owned(), Some("a&b".to_owned())), ("owner".to_owned(), None)],
            root: Some("web".to_owned()),
            ..SandboxFilter::default()
        };
        assert_eq!(query(&filter), "?status=running&metadata=task%3Da%26b&metadata=owner&root=web");
    }
}
