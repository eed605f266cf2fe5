//! Changes of files as they happen.

use hyper::Method;
use serde::{Deserialize, Serialize};

use crate::address::encoded;
use crate::api::Api;
use crate::error::ClientError;
use crate::events::Events;

/// A change of a file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileChanged {
    /// Its absolute path.
    pub path: String,
    /// `created`, `changed`, `removed` or `moved`.
    pub kind: String,
    /// Whether it is a directory.
    #[serde(default)]
    pub is_dir: bool,
    /// Where it went, when it moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

/// What is told of watched files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent {
    /// From now on changes are told.
    Ready,
    /// Something changed.
    Changed(FileChanged),
    /// More changed than could be told.
    Overflow,
}

/// Where changes come from. Dropping it ends the watch.
pub struct FileWatch {
    events: Events,
}

impl Api {
    /// Watches a file or directory, perhaps with everything below it.
    ///
    /// # Errors
    /// When the server refuses or cannot be reached.
    pub async fn watch_files(&self, id: &str, path: &str, recursive: bool) -> Result<FileWatch, ClientError> {
        let path =
            format!("/v1/sandboxes/{}/fs/watch?path={}&recursive={recursive}", encoded(id), encoded(path));
        Ok(FileWatch { events: self.follow(Method::GET, &path, None::<&()>).await? })
    }
}

impl FileWatch {
    /// What comes next; nothing when the server ends the watch.
    ///
    /// # Errors
    /// When files cannot be watched any more, or the connection breaks.
    pub async fn next(&mut self) -> Result<Option<WatchEvent>, ClientError> {
        while let Some(event) = self.events.next().await? {
            if let Some(event) = read(&event.name, &event.data)? {
                return Ok(Some(event));
            }
        }
        Ok(None)
    }
}

fn read(name: &str, data: &str) -> Result<Option<WatchEvent>, ClientError> {
    /// Why a watch ended.
    #[derive(Deserialize)]
    struct Said {
        error: String,
        #[serde(default)]
        code: String,
        hint: Option<String>,
    }
    Ok(match name {
        "ready" => Some(WatchEvent::Ready),
        "overflow" => Some(WatchEvent::Overflow),
        "change" => serde_json::from_str(data).ok().map(WatchEvent::Changed),
        "error" => {
            if let Ok(said) = serde_json::from_str::<Said>(data) {
                return Err(ClientError::said_with_code(&said.error, &said.code, said.hint.as_deref()));
            }
            None
        }
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_read() {
        assert_eq!(read("ready", "{}").unwrap(), Some(WatchEvent::Ready));
        let moved = read("change", r#"{"path": "/a", "kind": "moved", "is_dir": true, "to": "/b"}"#).unwrap();
        let (path, kind, to) = ("/a".to_owned(), "moved".to_owned(), Some("/b".to_owned()));
        assert_eq!(moved, Some(WatchEvent::Changed(FileChanged { path, kind, is_dir: true, to })));
        assert!(read("error", r#"{"error": "it is gone", "code": "not_found"}"#).is_err());
    }
}
