//! Builds of templates.

use std::collections::BTreeMap;
use std::io;

use contract::template::TemplateBuild;
use futures::stream::BoxStream;
use hyper::Method;

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;
use crate::events::Events;
use crate::http::{Ask, Bytes, upload_stream};
use crate::multipart::Form;

/// Whether nothing more happens to a build.
#[must_use]
pub fn build_is_over(build: &TemplateBuild) -> bool {
    matches!(build.status.as_str(), "done" | "failed")
}

/// Tells a context from a file of a context that has this name.
const CONTEXT_TYPE: &str = "application/x-tar";
const FILE_TYPE: &str = "application/octet-stream";

/// What a template is made from. Files are streamed.
pub enum BuildSource {
    /// A Dockerfile and its context as a tar archive.
    Dockerfile {
        /// Its text.
        text: String,
        /// The context.
        context: BoxStream<'static, io::Result<Bytes>>,
        /// Values for its `ARG`s.
        build_args: BTreeMap<String, String>,
        /// The stage that is wanted; the last when absent.
        target: Option<String>,
    },
    /// A container image that the server pulls.
    Image(String),
    /// A container image as an archive.
    Archive(BoxStream<'static, io::Result<Bytes>>),
    /// A root file system as a tar archive.
    Rootfs(BoxStream<'static, io::Result<Bytes>>),
}

/// A template to build.
pub struct BuildForm {
    /// Its name.
    pub name: String,
    /// Whether it may take the place of one that is there.
    pub replace: bool,
    /// Virtual CPUs of its machines.
    pub cpu: Option<u32>,
    /// Memory of its machines in MiB.
    pub memory_mb: Option<u32>,
    /// Size of its disk in MiB.
    pub size_mb: Option<u32>,
    /// What it is made from.
    pub source: BuildSource,
}

/// The log of a build, line by line.
pub struct BuildLog {
    events: Events,
}

impl BuildLog {
    /// The next line; nothing when the build is over.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn next(&mut self) -> Result<Option<String>, ClientError> {
        Ok(self.events.next().await?.filter(|event| event.name != "done").map(|event| event.data))
    }
}

impl Api {
    /// Sends what a template is made from and has it built.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn build_template(&self, request: BuildForm) -> Result<TemplateBuild, ClientError> {
        let mut form = Form::new();
        form.text("name", &request.name);
        if request.replace {
            form.text("replace", "true");
        }
        for (name, value) in
            [("cpu", request.cpu), ("memory_mb", request.memory_mb), ("size_mb", request.size_mb)]
        {
            if let Some(value) = value {
                form.text(name, &value.to_string());
            }
        }
        match request.source {
            BuildSource::Image(reference) => form.text("image_ref", &reference),
            BuildSource::Archive(content) => form.file("image", FILE_TYPE, content),
            BuildSource::Rootfs(content) => form.file("rootfs", FILE_TYPE, content),
            BuildSource::Dockerfile { text, context, build_args, target } => {
                form.text("dockerfile", &text);
                if !build_args.is_empty() {
                    let args = serde_json::to_string(&build_args);
                    form.text("build_args", &args.map_err(|error| self.http.protocol(error.to_string()))?);
                }
                if let Some(target) = target {
                    form.text("target", &target);
                }
                form.file("context", CONTEXT_TYPE, context);
            }
        }
        let content_type = form.content_type();
        let ask = Ask {
            method: Method::POST,
            path: "/v1/templates/build",
            accept: "application/json",
            content_type: Some(&content_type),
            headers: Vec::new(),
            body: upload_stream(form.finish()),
        };
        let answer = self.http.send(ask).await?;
        let bytes = self.http.whole(answer.into_body()).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.http.protocol(error.to_string()))
    }

    /// All builds, newest first.
    pub async fn builds(&self) -> Result<Vec<TemplateBuild>, ClientError> {
        self.get("/v1/templates/builds").await
    }

    /// One build.
    pub async fn build(&self, id: &str) -> Result<TemplateBuild, ClientError> {
        self.get(&format!("/v1/templates/builds/{}", encoded(id))).await
    }

    /// Ends a build.
    pub async fn cancel_build(&self, id: &str) -> Result<(), ClientError> {
        self.remove(&format!("/v1/templates/builds/{}", encoded(id))).await
    }

    /// Reads the log of a build: all of it, until the build is over.
    pub async fn follow_build(&self, id: &str) -> Result<BuildLog, ClientError> {
        let path = format!("/v1/templates/builds/{}/logs?follow=1", encoded(id));
        Ok(BuildLog { events: self.follow(Method::GET, &path, None::<&()>).await? })
    }

    /// Reads the log of a build as far as it is.
    pub async fn build_log(&self, id: &str) -> Result<BuildLog, ClientError> {
        let path = format!("/v1/templates/builds/{}/logs", encoded(id));
        Ok(BuildLog { events: self.follow(Method::GET, &path, None::<&()>).await? })
    }
}
