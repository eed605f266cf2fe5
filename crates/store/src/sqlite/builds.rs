//! Builds of templates, and whether a tenant may have another.

use domain::{BuildId, TenantId};
use rusqlite::{Connection, Row, params};

use super::column::{Bits, Checked};
use super::query::{add, all, change, first};
use crate::{BUILDS_PER_TENANT_MAX, BuildChange, BuildRow, BuildStatus, Quota, StoreError};

/// A `SELECT` of whole rows.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, tenant, name, status, error, replace, source, image_ref, disk_mib, cpus, memory_mib, attempts, bytes,
                created_ms, started_ms, ended_ms FROM builds ",
            $rest
        )
    };
}

fn parse(row: &Row<'_>) -> rusqlite::Result<BuildRow> {
    Ok(BuildRow {
        id: row.get::<_, Checked<_>>(0)?.0,
        tenant: row.get::<_, Checked<_>>(1)?.0,
        name: row.get(2)?,
        status: row.get(3)?,
        error: row.get(4)?,
        replace: row.get(5)?,
        source: row.get(6)?,
        image_ref: row.get(7)?,
        disk_mib: row.get(8)?,
        cpus: row.get(9)?,
        memory_mib: row.get(10)?,
        attempts: row.get(11)?,
        bytes: row.get::<_, Option<Bits>>(12)?.map(|bytes| bytes.0),
        created_ms: row.get(13)?,
        started_ms: row.get(14)?,
        ended_ms: row.get(15)?,
    })
}

pub(super) fn add_one(db: &Connection, row: &BuildRow, quota: &Quota) -> Result<(), StoreError> {
    if !row.replace {
        refuse_taken(db, row)?;
    }
    let statement =
        "INSERT INTO builds (id, tenant, name, status, error, replace, source, image_ref, disk_mib, cpus,
            memory_mib, attempts, bytes, created_ms, started_ms, ended_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16)";
    let parameters = params![
        row.id.as_str(),
        row.tenant.as_str(),
        row.name,
        row.status,
        row.error,
        row.replace,
        row.source,
        row.image_ref,
        row.disk_mib,
        row.cpus,
        row.memory_mib,
        row.attempts,
        row.bytes.map(Bits),
        row.created_ms,
        row.started_ms,
        row.ended_ms
    ];
    add(db, statement, parameters, "a build of that id")?;
    within(db, &row.tenant, quota)?;
    forget_oldest(db, &row.tenant)
}

fn refuse_taken(db: &Connection, row: &BuildRow) -> Result<(), StoreError> {
    let taken = |query, what| match first(db, query, [row.tenant.as_str(), &row.name], |_| Ok(()))? {
        Some(()) => Err(StoreError::Exists { what }),
        None => Ok(()),
    };
    taken("SELECT 1 FROM templates WHERE tenant = ?1 AND name = ?2", "a template of that name")?;
    let building = "SELECT 1 FROM builds WHERE tenant = ?1 AND name = ?2 AND ended_ms IS NULL";
    taken(building, "a build of a template of that name")
}

/// Refuses what a tenant has now; that undoes what was added before.
fn within(db: &Connection, tenant: &TenantId, quota: &Quota) -> Result<(), StoreError> {
    let count = |query| first(db, query, [tenant.as_str()], |row| Ok(row.get::<_, Bits>(0)?.0));
    let building = count("SELECT count(*) FROM builds WHERE tenant = ?1 AND ended_ms IS NULL")?;
    if building.unwrap_or_default() > quota.builds {
        return Err(StoreError::Quota { what: "builds at once", limit: quota.builds });
    }
    // Those that are being built have a place already.
    let templates = count(
        "SELECT count(*) FROM (SELECT name FROM templates WHERE tenant = ?1
            UNION SELECT name FROM builds WHERE tenant = ?1 AND ended_ms IS NULL)",
    )?;
    if templates.unwrap_or_default() > quota.templates {
        return Err(StoreError::Quota { what: "templates", limit: quota.templates });
    }
    Ok(())
}

fn forget_oldest(db: &Connection, tenant: &TenantId) -> Result<(), StoreError> {
    let statement = "DELETE FROM builds WHERE tenant = ?1 AND ended_ms IS NOT NULL AND seq NOT IN (
        SELECT seq FROM builds WHERE tenant = ?1 AND ended_ms IS NOT NULL
        ORDER BY created_ms DESC, seq DESC LIMIT ?2)";
    change(db, statement, params![tenant.as_str(), BUILDS_PER_TENANT_MAX as i64]).map(drop)
}

pub(super) fn one(db: &Connection, tenant: &TenantId, id: &BuildId) -> Result<Option<BuildRow>, StoreError> {
    first(db, select!("WHERE tenant = ?1 AND id = ?2"), [tenant.as_str(), id.as_str()], parse)
}

pub(super) fn of_tenant(db: &Connection, tenant: &TenantId) -> Result<Vec<BuildRow>, StoreError> {
    let query = select!("WHERE tenant = ?1 ORDER BY created_ms DESC, seq DESC");
    all(db, query, [tenant.as_str()], parse)
}

pub(super) fn everybodys(db: &Connection) -> Result<Vec<BuildRow>, StoreError> {
    all(db, select!("ORDER BY created_ms DESC, seq DESC"), (), parse)
}

pub(super) fn to_do(db: &Connection) -> Result<Vec<BuildRow>, StoreError> {
    all(db, select!("WHERE ended_ms IS NULL ORDER BY seq"), (), parse)
}

pub(super) fn change_one(db: &Connection, id: &BuildId, new: &BuildChange) -> Result<bool, StoreError> {
    let statement = "UPDATE builds SET status = coalesce(?2, status), attempts = coalesce(?3, attempts),
            started_ms = coalesce(started_ms, ?4)
        WHERE id = ?1 AND ended_ms IS NULL";
    change(db, statement, params![id.as_str(), new.status, new.attempts, new.started_ms])
}

pub(super) fn fail(db: &Connection, id: &BuildId, error: &str, at_ms: i64) -> Result<bool, StoreError> {
    let statement =
        "UPDATE builds SET status = ?2, error = ?3, ended_ms = ?4 WHERE id = ?1 AND ended_ms IS NULL";
    change(db, statement, params![id.as_str(), BuildStatus::Failed, error, at_ms])
}

/// Ends a build whose template is there.
pub(super) fn finish(db: &Connection, id: &BuildId, bytes: u64, at_ms: i64) -> Result<bool, StoreError> {
    let statement =
        "UPDATE builds SET status = ?2, bytes = ?3, ended_ms = ?4 WHERE id = ?1 AND ended_ms IS NULL";
    change(db, statement, params![id.as_str(), BuildStatus::Done, Bits(bytes), at_ms])
}
