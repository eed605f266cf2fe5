//! Templates of tenants' own.

use domain::TenantId;
use rusqlite::{Connection, Row, params};

use super::builds;
use super::column::{Bits, Checked};
use super::query::{add, all, change, first};
use crate::{Published, StoreError, TemplateRow};

/// A `SELECT` of whole rows.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT build, tenant, name, disk_mib, cpus, memory_mib, config, digest, bytes, image_ref, created_ms
            FROM templates ",
            $rest
        )
    };
}

fn parse(row: &Row<'_>) -> rusqlite::Result<TemplateRow> {
    Ok(TemplateRow {
        build: row.get::<_, Checked<_>>(0)?.0,
        tenant: row.get::<_, Checked<_>>(1)?.0,
        name: row.get(2)?,
        disk_mib: row.get(3)?,
        cpus: row.get(4)?,
        memory_mib: row.get(5)?,
        config: row.get(6)?,
        digest: row.get(7)?,
        bytes: row.get::<_, Bits>(8)?.0,
        image_ref: row.get(9)?,
        created_ms: row.get(10)?,
    })
}

pub(super) fn publish(db: &Connection, row: &TemplateRow) -> Result<Published, StoreError> {
    if !builds::finish(db, &row.build, row.bytes, row.created_ms)? {
        return Ok(Published::Ended);
    }
    let previous = remove(db, &row.tenant, &row.name)?;
    let statement =
        "INSERT INTO templates (build, tenant, name, disk_mib, cpus, memory_mib, config, digest, bytes,
            image_ref, created_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let parameters = params![
        row.build.as_str(),
        row.tenant.as_str(),
        row.name,
        row.disk_mib,
        row.cpus,
        row.memory_mib,
        row.config,
        row.digest,
        Bits(row.bytes),
        row.image_ref,
        row.created_ms
    ];
    add(db, statement, parameters, "a template of that build")?;
    Ok(Published::Yes(previous))
}

pub(super) fn one(db: &Connection, tenant: &TenantId, name: &str) -> Result<Option<TemplateRow>, StoreError> {
    first(db, select!("WHERE tenant = ?1 AND name = ?2"), [tenant.as_str(), name], parse)
}

pub(super) fn of_tenant(db: &Connection, tenant: &TenantId) -> Result<Vec<TemplateRow>, StoreError> {
    let query = select!("WHERE tenant = ?1 ORDER BY created_ms DESC, seq DESC");
    all(db, query, [tenant.as_str()], parse)
}

pub(super) fn everybodys(db: &Connection) -> Result<Vec<TemplateRow>, StoreError> {
    all(db, select!("ORDER BY created_ms DESC, seq DESC"), (), parse)
}

pub(super) fn remove(
    db: &Connection,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<TemplateRow>, StoreError> {
    let found = one(db, tenant, name)?;
    let statement = "DELETE FROM templates WHERE tenant = ?1 AND name = ?2";
    change(db, statement, [tenant.as_str(), name])?;
    Ok(found)
}
