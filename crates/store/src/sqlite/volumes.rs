//! Volumes, and whether a tenant may have another.

use domain::{TenantId, VolumeId};
use rusqlite::{Connection, Row, params};

use super::column::{Bits, Checked};
use super::query::{add, all, change, first};
use crate::{ProvisionState, Quota, StoreError, VolumeRow};

/// A `SELECT` of whole rows.
macro_rules! select {
    ($rest:literal) => {
        concat!("SELECT id, tenant, name, standing, size_mib, created_ms FROM volumes ", $rest)
    };
}

fn parse(row: &Row<'_>) -> rusqlite::Result<VolumeRow> {
    Ok(VolumeRow {
        id: row.get::<_, Checked<_>>(0)?.0,
        tenant: row.get::<_, Checked<_>>(1)?.0,
        name: row.get(2)?,
        standing: row.get(3)?,
        size_mib: row.get::<_, Bits>(4)?.0,
        created_ms: row.get(5)?,
    })
}

pub(super) fn add_one(db: &Connection, row: &VolumeRow, quota: &Quota) -> Result<(), StoreError> {
    let statement = "INSERT INTO volumes (id, tenant, name, standing, size_mib, created_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let parameters = params![
        row.id.as_str(),
        row.tenant.as_str(),
        row.name,
        row.standing,
        Bits(row.size_mib),
        row.created_ms
    ];
    add(db, statement, parameters, "a volume of that name")?;
    // A name that is taken is the better answer, so it comes first.
    within(db, &row.tenant, quota)
}

/// Refuses what a tenant has now; that undoes what was changed before.
fn within(db: &Connection, tenant: &TenantId, quota: &Quota) -> Result<(), StoreError> {
    let sizes = "SELECT size_mib FROM volumes WHERE tenant = ?1";
    let sizes = all(db, sizes, [tenant.as_str()], |row| Ok(row.get::<_, Bits>(0)?.0))?;
    if sizes.len() as u64 > quota.volumes {
        return Err(StoreError::Quota { what: "volumes", limit: quota.volumes });
    }
    if sizes.into_iter().fold(0, u64::saturating_add) > quota.volume_mib {
        return Err(StoreError::Quota { what: "MiB of volumes", limit: quota.volume_mib });
    }
    Ok(())
}

pub(super) fn one(db: &Connection, tenant: &TenantId, name: &str) -> Result<Option<VolumeRow>, StoreError> {
    first(db, select!("WHERE tenant = ?1 AND name = ?2"), [tenant.as_str(), name], parse)
}

pub(super) fn of_tenant(db: &Connection, tenant: &TenantId) -> Result<Vec<VolumeRow>, StoreError> {
    let query = select!("WHERE tenant = ?1 ORDER BY created_ms DESC, seq DESC");
    all(db, query, [tenant.as_str()], parse)
}

pub(super) fn everybodys(db: &Connection) -> Result<Vec<VolumeRow>, StoreError> {
    all(db, select!("ORDER BY created_ms DESC, seq DESC"), (), parse)
}

pub(super) fn change_one(
    db: &Connection,
    id: &VolumeId,
    size_mib: u64,
    standing: ProvisionState,
) -> Result<bool, StoreError> {
    let statement = "UPDATE volumes SET size_mib = ?2, standing = ?3 WHERE id = ?1";
    change(db, statement, params![id.as_str(), Bits(size_mib), standing])
}

pub(super) fn grow_one(
    db: &Connection,
    id: &VolumeId,
    size_mib: u64,
    quota: &Quota,
) -> Result<bool, StoreError> {
    let Some(row) = first(db, select!("WHERE id = ?1"), [id.as_str()], parse)? else { return Ok(false) };
    change_one(db, id, size_mib.max(row.size_mib), row.standing)?;
    within(db, &row.tenant, quota)?;
    Ok(true)
}

pub(super) fn remove(db: &Connection, id: &VolumeId) -> Result<bool, StoreError> {
    change(db, "DELETE FROM volumes WHERE id = ?1", [id.as_str()])
}
