//! Files of a sandbox.

use contract::file::{DirectoryListing, FileChange, FileEntry, FileWritten};
use hyper::Method;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;
use crate::http::{Ask, Bytes, Http, Upload, upload_bytes};

fn at(id: &str, what: &str) -> String {
    format!("/v1/sandboxes/{}/fs{what}", encoded(id))
}

/// A file on its way here.
pub struct Download {
    http: Http,
    body: Incoming,
    /// Its size, where that is known.
    pub size: Option<u64>,
}

/// What a link to a file is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkFor {
    /// Reading it.
    Read,
    /// Writing it.
    Write,
}

/// A link to a file that works without a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileLink {
    /// It.
    pub url: String,
    /// `GET` or `PUT`.
    pub method: String,
    /// The file.
    pub path: String,
    /// When it stops working (RFC 3339).
    pub expires_at: String,
}

impl Download {
    /// The next piece; nothing at its end.
    ///
    /// # Errors
    /// When the connection breaks.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        self.http.piece(&mut self.body).await
    }
}

impl Api {
    /// Reads a file.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached; so for all calls of this file.
    pub async fn read_file(&self, id: &str, path: &str) -> Result<Download, ClientError> {
        let path = format!("{}?path={}", at(id, ""), encoded(path));
        let ask = Ask {
            method: Method::GET,
            path: &path,
            accept: "application/octet-stream",
            content_type: None,
            headers: Vec::new(),
            body: upload_bytes(Vec::new()),
        };
        let answer = self.http.send(ask).await?;
        let size = answer.headers().get("x-file-size").and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Download { http: self.http.clone(), body: answer.into_body(), size })
    }

    /// Writes a file, as a whole or not at all.
    pub async fn write_file(&self, id: &str, path: &str, body: Upload) -> Result<FileWritten, ClientError> {
        let path = format!("{}?path={}", at(id, ""), encoded(path));
        let ask = Ask {
            method: Method::PUT,
            path: &path,
            accept: "application/json",
            content_type: Some("application/octet-stream"),
            headers: Vec::new(),
            body,
        };
        let answer = self.http.send(ask).await?;
        let bytes = self.http.whole(answer.into_body()).await?;
        serde_json::from_slice(&bytes).map_err(|error| self.http.protocol(error.to_string()))
    }

    /// Removes a file, or a directory with everything in it.
    pub async fn remove_file(&self, id: &str, path: &str) -> Result<(), ClientError> {
        self.remove(&format!("{}?path={}", at(id, ""), encoded(path))).await
    }

    /// What is in a directory.
    pub async fn list_directory(&self, id: &str, path: &str) -> Result<DirectoryListing, ClientError> {
        self.get(&format!("{}?path={}", at(id, "/dir"), encoded(path))).await
    }

    /// One file's metadata.
    pub async fn stat_file(&self, id: &str, path: &str) -> Result<FileEntry, ClientError> {
        self.get(&format!("{}?path={}", at(id, "/stat"), encoded(path))).await
    }

    /// Makes a directory, with its parents.
    pub async fn make_directory(&self, id: &str, path: &str) -> Result<(), ClientError> {
        self.change_file(id, "/mkdir", path, None, None).await
    }

    /// Moves a file or a directory.
    pub async fn move_file(&self, id: &str, path: &str, to: &str) -> Result<(), ClientError> {
        self.change_file(id, "/move", path, Some(to), None).await
    }

    /// Changes who may do what with a file; `mode` is octal.
    pub async fn set_mode(&self, id: &str, path: &str, mode: &str) -> Result<(), ClientError> {
        self.change_file(id, "/chmod", path, None, Some(mode)).await
    }

    /// Makes a link to a file that works without a key.
    pub async fn link_file(
        &self,
        id: &str,
        path: &str,
        operation: LinkFor,
        expires_in_seconds: Option<i64>,
    ) -> Result<FileLink, ClientError> {
        /// What is asked for.
        #[derive(Serialize)]
        struct Wanted<'a> {
            path: &'a str,
            operation: LinkFor,
            #[serde(skip_serializing_if = "Option::is_none")]
            expires_in_seconds: Option<i64>,
        }
        self.post(&at(id, "/sign"), &Wanted { path, operation, expires_in_seconds }).await
    }

    async fn change_file(
        &self,
        id: &str,
        verb: &str,
        path: &str,
        to: Option<&str>,
        mode: Option<&str>,
    ) -> Result<(), ClientError> {
        let (to, mode) = (to.map(str::to_owned), mode.map(str::to_owned));
        let change = FileChange { path: path.to_owned(), to, mode };
        self.tell(Method::POST, &at(id, verb), Some(&change)).await
    }
}
