//! Finding what a caller names: by id, by name, or by the beginning of an id.
//!
//! Done here once, so that every face of the product takes the same. The exact id comes first and costs one read, as almost every
//! request has it.

use domain::{SandboxId, SnapshotId};
use store::{SandboxRow, SnapshotRow};

use crate::caller::Caller;
use crate::control::Control;
use crate::error::ControlError;
use crate::names;

/// Shortest beginning of an id that is looked for.
const PREFIX_LENGTH_MIN: usize = 4;
/// How many candidates are named when a beginning fits several.
const CANDIDATES_MAX: usize = 8;

/// The only one of those found; an error that names them when there are several.
fn only<T>(
    mut found: Vec<T>,
    text: &str,
    what: &str,
    id: impl Fn(&T) -> &str,
) -> Result<Option<T>, ControlError> {
    if found.len() < 2 {
        return Ok(found.pop());
    }
    let more = if found.len() > CANDIDATES_MAX { ", and more" } else { "" };
    let candidates: Vec<_> = found.iter().take(CANDIDATES_MAX).map(id).collect();
    let message = format!("{} fits several {what}; give more of the id", names::shown(text));
    Err(ControlError::conflict(message).hint(format!("they are {}{more}", candidates.join(", "))))
}

impl Control {
    /// The row of a sandbox that is the caller's. Anybody else's is not there.
    pub(crate) async fn row(&self, caller: &Caller, text: &str) -> Result<SandboxRow, ControlError> {
        let id = SandboxId::parse(text).ok();
        if let Some(id) = &id
            && let Some(row) = self.store().sandbox(id).await?
            && row.tenant == caller.tenant
        {
            return Ok(row);
        }
        let mut found = None;
        if names::is_sandbox_name(text) {
            found = self.store().sandbox_named(&caller.tenant, text).await?;
        }
        if found.is_none() && id.is_some() && text.len() >= PREFIX_LENGTH_MIN {
            let rows =
                self.store().sandboxes_beginning_with(&caller.tenant, text, CANDIDATES_MAX + 1).await?;
            found = only(rows, text, "sandboxes", |row| row.id.as_str())?;
        }
        let row = found.ok_or_else(|| names::no_sandbox(text))?;
        caller.note_resolved(&row.id);
        Ok(row)
    }

    /// The row of a snapshot that is the caller's.
    pub(crate) async fn snapshot_row(
        &self,
        caller: &Caller,
        text: &str,
    ) -> Result<SnapshotRow, ControlError> {
        let id = SnapshotId::parse(text).map_err(|_| names::no_snapshot(text))?;
        if let Some(row) = self.store().snapshot(&id).await?
            && row.tenant == caller.tenant
        {
            return Ok(row);
        }
        if text.len() < PREFIX_LENGTH_MIN {
            return Err(names::no_snapshot(text));
        }
        let rows = self.store().snapshots_beginning_with(&caller.tenant, text, CANDIDATES_MAX + 1).await?;
        only(rows, text, "snapshots", |row| row.id.as_str())?.ok_or_else(|| names::no_snapshot(text))
    }

    /// The id of a sandbox that may be gone: whatever names one that exists, or any id.
    pub(crate) async fn id_of(&self, caller: &Caller, text: &str) -> Result<SandboxId, ControlError> {
        match self.row(caller, text).await {
            Ok(row) => Ok(row.id),
            Err(error) if error.kind == crate::error::Kind::NotFound => {
                SandboxId::parse(text).map_err(|_| names::no_sandbox(text))
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_candidates_are_named() {
        fn check<'a>(found: &[&'a str]) -> Result<Option<&'a str>, ControlError> {
            only(found.to_vec(), "abcd", "sandboxes", |id| id)
        }
        assert_eq!(check(&[]).unwrap(), None);
        assert_eq!(check(&["abcd1"]).unwrap(), Some("abcd1"));
        let error = check(&["abcd1", "abcd2"]).unwrap_err();
        assert_eq!(error.kind, crate::error::Kind::Conflict);
        assert_eq!(error.hint.as_deref(), Some("they are abcd1, abcd2"));
        let many = vec!["abcd1"; CANDIDATES_MAX + 1];
        assert!(check(&many).unwrap_err().hint.is_some_and(|hint| hint.ends_with(", and more")));
    }
}
