//! Files of a sandbox.

use contract::file::{DirectoryListing, FileChange, FileEntry, FileWritten};
use hyper::Method;
use hyper::body::Incoming;

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
