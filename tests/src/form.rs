//! Forms as clients send them, and as they should not.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::Value;

use crate::api::client::{Answer, Client, nothing};

const BOUNDARY: &str = "between-the-parts";

/// A multipart form.
#[derive(Debug, Clone, Default)]
pub struct Form {
    bytes: Vec<u8>,
}

impl Form {
    /// One with these fields.
    pub fn new(fields: &[(&str, &str)]) -> Self {
        fields.iter().fold(Self::default(), |form, (name, value)| form.field(name, value))
    }

    /// Adds a field that is no file.
    #[must_use]
    pub fn field(self, name: &str, value: &str) -> Self {
        self.part(&format!("name=\"{name}\""), "", value.as_bytes())
    }

    /// Adds a file.
    #[must_use]
    pub fn file(self, name: &str, content: &[u8]) -> Self {
        self.typed_file(name, "application/octet-stream", content)
    }

    /// Adds a file of a type.
    #[must_use]
    pub fn typed_file(self, name: &str, kind: &str, content: &[u8]) -> Self {
        let base = name.rsplit('/').next().unwrap_or(name);
        let kind = format!("Content-Type: {kind}\r\n");
        self.part(&format!("name=\"{name}\"; filename=\"{base}\""), &kind, content)
    }

    fn part(mut self, disposition: &str, more: &str, content: &[u8]) -> Self {
        let head = format!("--{BOUNDARY}\r\nContent-Disposition: form-data; {disposition}\r\n{more}\r\n");
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(content);
        self.bytes.extend_from_slice(b"\r\n");
        self
    }

    fn content_type() -> String {
        format!("multipart/form-data; boundary={BOUNDARY}")
    }

    fn whole(self) -> Vec<u8> {
        let mut bytes = self.bytes;
        bytes.extend_from_slice(format!("--{BOUNDARY}--\r\n").as_bytes());
        bytes
    }
}

impl Client {
    /// Asks for a build with a multipart form.
    pub async fn ask_build(&self, form: Form) -> Result<Answer> {
        self.bytes(Method::POST, "/v1/templates/build", &Form::content_type(), form.whole()).await
    }

    /// The same with a form that ends before its end.
    pub async fn ask_build_cut_off(&self, form: Form) -> Result<Answer> {
        self.bytes(Method::POST, "/v1/templates/build", &Form::content_type(), form.bytes).await
    }

    /// Starts a build; its id.
    pub async fn start_build(&self, form: Form) -> Result<String> {
        let build = self.ask_build(form).await?.expect(202)?.json()?;
        ensure!(build["status"] == "queued" && build["started_at"].is_string(), "{build}");
        Ok(build["id"].as_str().context("a build without id")?.to_owned())
    }

    /// A build.
    pub async fn build(&self, id: &str) -> Result<Value> {
        self.get(&format!("/v1/templates/builds/{id}")).await?.expect(200)?.json()
    }

    /// Waits until a build has ended.
    pub async fn ended_build(&self, id: &str, patience: Duration) -> Result<Value> {
        let followed = tokio::time::timeout(patience, self.followed_log(id)).await;
        followed.context("the build does not end")??;
        let build = self.build(id).await?;
        ensure!(build["status"] == "done" || build["status"] == "failed", "it has not ended: {build}");
        Ok(build)
    }

    /// A template from a form; the build must succeed.
    pub async fn built(&self, form: Form, patience: Duration) -> Result<Value> {
        let id = self.start_build(form).await?;
        let build = self.ended_build(&id, patience).await?;
        ensure!(build["status"] == "done", "{build}\n{}", self.build_log(&id).await?.join("\n"));
        ensure!(build["ended_at"].is_string() && build["bytes"].as_u64() > Some(0), "{build}");
        Ok(build)
    }

    /// The lines of a build's log so far; an error unless the stream ends as it should.
    pub async fn build_log(&self, id: &str) -> Result<Vec<String>> {
        let answer = self.get(&format!("/v1/templates/builds/{id}/logs")).await?.expect(200)?;
        ensure!(answer.header("content-type") == "text/event-stream; charset=utf-8", "{answer:?}");
        lines(&answer.text())
    }

    /// Follows a log to its end, however long that takes.
    pub async fn followed_log(&self, id: &str) -> Result<Vec<String>> {
        let path = format!("/v1/templates/builds/{id}/logs?follow=1");
        let response = self.send(Method::GET, &path, &[], nothing()).await?;
        ensure!(response.status() == 200, "{:?}", response.status());
        lines(&String::from_utf8(response.into_body().collect().await?.to_bytes().to_vec())?)
    }
}

/// Reads a log as strictly as the strictest client.
fn lines(stream: &str) -> Result<Vec<String>> {
    let rest = stream.strip_suffix("event: done\ndata: end\n\n");
    let rest = rest.with_context(|| format!("it does not end as it should: {stream:?}"))?;
    let events = rest.split("\n\n").filter(|event| !event.is_empty() && !event.starts_with(':'));
    events
        .map(|event| {
            let line = event.strip_prefix("data: ").with_context(|| format!("no line: {event:?}"))?;
            ensure!(!line.contains(['\n', '\r']), "more than a line: {event:?}");
            Ok(line.to_owned())
        })
        .collect()
}
