//! Snapshots that somebody keeps.

use domain::{SandboxId, SnapshotId, TenantId};
use rusqlite::{Connection, Row, params};

use super::column::{Bits, Checked, Json, JsonOrEmpty};
use super::query::{add, all, change, first};
use super::sandboxes::past;
use crate::{SnapshotRow, StoreError};

/// A `SELECT` of whole rows.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, tenant, sandbox, template, parent, size_bytes, cpus, memory_mib, created_ms, ",
            "ancestors FROM snapshots ",
            $rest
        )
    };
}

fn parse(row: &Row<'_>) -> rusqlite::Result<SnapshotRow> {
    Ok(SnapshotRow {
        id: row.get::<_, Checked<_>>(0)?.0,
        tenant: row.get::<_, Checked<_>>(1)?.0,
        sandbox: row.get::<_, Checked<_>>(2)?.0,
        template: row.get(3)?,
        parent: row.get::<_, Option<Checked<_>>>(4)?.map(|id| id.0),
        size_bytes: row.get::<_, Bits>(5)?.0,
        cpus: row.get(6)?,
        memory_mib: row.get(7)?,
        created_ms: row.get(8)?,
        ancestors: row.get::<_, JsonOrEmpty<_>>(9)?.0,
    })
}

pub(super) fn add_one(db: &Connection, row: &SnapshotRow) -> Result<(), StoreError> {
    let statement =
        "INSERT INTO snapshots (id, tenant, sandbox, template, parent, size_bytes, cpus, memory_mib,
            created_ms, ancestors)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
    let parameters = params![
        row.id.as_str(),
        row.tenant.as_str(),
        row.sandbox.as_str(),
        row.template,
        row.parent.as_ref().map(SnapshotId::as_str),
        Bits(row.size_bytes),
        row.cpus,
        row.memory_mib,
        row.created_ms,
        Json(&row.ancestors)
    ];
    add(db, statement, parameters, "a snapshot of that id")
}

pub(super) fn one(db: &Connection, id: &SnapshotId) -> Result<Option<SnapshotRow>, StoreError> {
    first(db, select!("WHERE id = ?1"), [id.as_str()], parse)
}

pub(super) fn of_tenant(db: &Connection, tenant: &TenantId) -> Result<Vec<SnapshotRow>, StoreError> {
    let query = select!("WHERE tenant = ?1 ORDER BY created_ms DESC, seq DESC");
    all(db, query, [tenant.as_str()], parse)
}

pub(super) fn of_sandbox(
    db: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
) -> Result<Vec<SnapshotRow>, StoreError> {
    let query = select!("WHERE tenant = ?1 AND sandbox = ?2 ORDER BY created_ms DESC, seq DESC");
    all(db, query, [tenant.as_str(), sandbox.as_str()], parse)
}

pub(super) fn beginning_with(
    db: &Connection,
    tenant: &TenantId,
    prefix: &str,
    limit: usize,
) -> Result<Vec<SnapshotRow>, StoreError> {
    let query = select!("WHERE +tenant = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT ?4");
    let parameters = params![tenant.as_str(), prefix, past(prefix), i64::try_from(limit).unwrap_or(i64::MAX)];
    all(db, query, parameters, parse)
}

pub(super) fn everybodys(db: &Connection) -> Result<Vec<SnapshotRow>, StoreError> {
    all(db, select!("ORDER BY created_ms DESC, seq DESC"), (), parse)
}

pub(super) fn remove(db: &Connection, id: &SnapshotId) -> Result<bool, StoreError> {
    change(db, "DELETE FROM snapshots WHERE id = ?1", [id.as_str()])
}
