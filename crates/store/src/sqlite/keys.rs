//! The one key that signs preview links.

use rusqlite::Connection;

use super::query::{change, first};
use crate::{PreviewKey, StoreError};

/// The key that is kept; `fresh` becomes it when there is none.
pub(super) fn preview_key(db: &Connection, fresh: &PreviewKey) -> Result<PreviewKey, StoreError> {
    change(db, "INSERT INTO preview_key (one, key) VALUES (1, ?1) ON CONFLICT DO NOTHING", [fresh.0])?;
    let kept = first(db, "SELECT key FROM preview_key WHERE one = 1", (), |row| row.get(0).map(PreviewKey))?;
    kept.ok_or_else(|| StoreError::Corrupt { what: "the preview key is gone".to_owned() })
}
