//! Files in a workshop.

use std::time::Duration;

use guest_link::GuestPath;
use guest_link::message::{EntryKind, decode};
use guest_link::tool::{CopyFrom, CopyRequest, CopyWhat, Found, ToolRequest};

use super::{SMALL_TIMEOUT, Workshop, tool};
use crate::error::NodeError;

/// Something to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyItem {
    /// From here. Links in the whole path are followed, inside the disk where it lies in an attached one.
    pub from: GuestPath,
    /// To there. Missing parents are made, owned by root.
    pub to: GuestPath,
    /// How much of it.
    pub what: CopyWhat,
}

/// How things are copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopySettings {
    /// Who gets them, as `user`, `uid`, `user:group` or `uid:gid` of the guest; their own numbers when absent.
    pub owner: Option<String>,
    /// Permission bits of files and directories; their own when absent.
    pub mode: Option<u32>,
    /// How long it may take.
    pub timeout: Duration,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entries {
    /// What it is, links followed.
    pub kind: EntryKind,
    /// What is in it, sorted by name, if it is a directory.
    pub names: Vec<Listed>,
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: Vec<u8>,
    /// What it is, links not followed.
    pub kind: EntryKind,
}

impl Workshop {
    /// What is at a path; `None` when nothing is. Links in it are followed, inside the disk where it lies in an attached one.
    pub async fn look(&self, path: &GuestPath) -> Result<Option<Entries>, NodeError> {
        const WHAT: &str = "look at a path";
        let answer = self.tool(WHAT, &ToolRequest::Look(tool::place(path)), SMALL_TIMEOUT).await?;
        if answer.is_empty() {
            return Ok(None);
        }
        let malformed = || NodeError::Tool { what: WHAT, said: "the answer could not be read".to_owned() };
        let Found { kind, names } = decode(&answer).ok_or_else(malformed)?;
        let names = names.into_iter().map(|(name, kind)| Listed { name, kind }).collect();
        Ok(Some(Entries { kind, names }))
    }

    /// Copies inside the guest. What is in directories is merged, files are replaced; modes, times, links, hard links among what
    /// is copied at once, and extended attributes are kept.
    pub async fn copy(&self, items: &[CopyItem], settings: &CopySettings) -> Result<(), NodeError> {
        let items = items.iter().map(|item| CopyFrom {
            from: tool::place(&item.from),
            to: item.to.clone(),
            what: item.what,
        });
        let (owner, mode) = (settings.owner.clone(), settings.mode);
        let request = ToolRequest::Copy(CopyRequest { items: items.collect(), owner, mode });
        self.tool("copy files", &request, settings.timeout).await.map(drop)
    }

    /// Makes a directory and its missing parents, owned by a user of the guest; one that is there is fine.
    pub async fn make_directory(&self, path: &str, user: &str) -> Result<(), NodeError> {
        const WHAT: &str = "make a directory";
        let path = GuestPath::parse(path)
            .map_err(|error| NodeError::Tool { what: WHAT, said: error.to_string() })?;
        let owner = Some(user.to_owned()).filter(|user| !user.is_empty());
        let request = ToolRequest::MakeDirectory { path, owner };
        self.tool(WHAT, &request, SMALL_TIMEOUT).await.map(drop)
    }
}
