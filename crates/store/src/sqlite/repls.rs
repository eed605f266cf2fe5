//! REPL contexts of sandboxes.

use domain::SandboxId;
use rusqlite::{Connection, Row, params};

use super::column::{Bits, Checked};
use super::query::{add, all, change, first};
use crate::{ReplRow, StoreError};

fn parse(row: &Row<'_>) -> rusqlite::Result<ReplRow> {
    Ok(ReplRow {
        id: row.get(0)?,
        sandbox: row.get::<_, Checked<_>>(1)?.0,
        language: row.get(2)?,
        handle: row.get(3)?,
        cells: row.get::<_, Bits>(4)?.0,
        created_ms: row.get(5)?,
    })
}

pub(super) fn add_one(db: &Connection, row: &ReplRow) -> Result<(), StoreError> {
    let statement = "INSERT INTO repls (id, sandbox, language, handle, cells, created_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let parameters =
        params![row.id, row.sandbox.as_str(), row.language, row.handle, Bits(row.cells), row.created_ms];
    add(db, statement, parameters, "a REPL context of that id")
}

pub(super) fn of_sandbox(db: &Connection, sandbox: &SandboxId) -> Result<Vec<ReplRow>, StoreError> {
    let query = "SELECT id, sandbox, language, handle, cells, created_ms FROM repls
        WHERE sandbox = ?1 ORDER BY created_ms DESC, seq DESC";
    all(db, query, [sandbox.as_str()], parse)
}

pub(super) fn one(db: &Connection, sandbox: &SandboxId, id: &str) -> Result<Option<ReplRow>, StoreError> {
    let query = "SELECT id, sandbox, language, handle, cells, created_ms FROM repls
        WHERE sandbox = ?1 AND id = ?2";
    first(db, query, [sandbox.as_str(), id], parse)
}

pub(super) fn change_one(db: &Connection, row: &ReplRow) -> Result<bool, StoreError> {
    let statement = "UPDATE repls SET handle = ?3, cells = ?4 WHERE sandbox = ?1 AND id = ?2";
    change(db, statement, params![row.sandbox.as_str(), row.id, row.handle, Bits(row.cells)])
}

pub(super) fn remove(db: &Connection, sandbox: &SandboxId, id: &str) -> Result<bool, StoreError> {
    change(db, "DELETE FROM repls WHERE sandbox = ?1 AND id = ?2", [sandbox.as_str(), id])
}
