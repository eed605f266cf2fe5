//! Sandboxes: what is wanted, by whom, and whether it may be.

use std::collections::BTreeMap;

use domain::{SandboxId, TenantId};
use rusqlite::{Connection, Row, params};

use super::column::{Bits, Checked, Json, JsonOrEmpty};
use super::query::{add, all, change, each, first};
use super::tenants;
use crate::{Quota, SandboxChange, SandboxRow, StoreError};

/// A `SELECT` of whole rows.
macro_rules! select {
    ($rest:literal) => {
        concat!(
            "SELECT id, tenant, standing, template, from_snapshot, parent, tree, fork_index, metadata, env, ports, ",
            "ttl_seconds, persistent, network, volumes, cpus, memory_mib, created_ms, used_ms, boot_ms, boot_mode, ",
            "timings, name, ancestors FROM sandboxes ",
            $rest
        )
    };
}

fn parse(row: &Row<'_>) -> rusqlite::Result<SandboxRow> {
    Ok(SandboxRow {
        id: row.get::<_, Checked<_>>(0)?.0,
        tenant: row.get::<_, Checked<_>>(1)?.0,
        standing: row.get(2)?,
        template: row.get(3)?,
        from_snapshot: row.get::<_, Option<Checked<_>>>(4)?.map(|id| id.0),
        parent: row.get::<_, Option<Checked<_>>>(5)?.map(|id| id.0),
        tree: row.get(6)?,
        fork_index: row.get(7)?,
        metadata: row.get::<_, JsonOrEmpty<_>>(8)?.0,
        env: row.get::<_, JsonOrEmpty<_>>(9)?.0,
        ports: row.get::<_, JsonOrEmpty<_>>(10)?.0,
        ttl_seconds: row.get::<_, Bits>(11)?.0,
        persistent: row.get(12)?,
        network: row.get(13)?,
        volumes: row.get::<_, JsonOrEmpty<_>>(14)?.0,
        cpus: row.get(15)?,
        memory_mib: row.get(16)?,
        created_ms: row.get(17)?,
        used_ms: row.get(18)?,
        boot_ms: row.get(19)?,
        boot_mode: row.get(20)?,
        timings: row.get(21)?,
        name: row.get(22)?,
        ancestors: row.get::<_, JsonOrEmpty<_>>(23)?.0,
    })
}

pub(super) fn add_all(db: &Connection, rows: &[SandboxRow], quota: &Quota) -> Result<(), StoreError> {
    let mut wanted: BTreeMap<&TenantId, Total> = BTreeMap::new();
    for row in rows {
        let total = wanted.entry(&row.tenant).or_default();
        total.sandboxes += 1;
        total.cpus += u64::from(row.cpus);
        total.memory_mib += u64::from(row.memory_mib);
    }
    for (tenant, total) in wanted {
        let own = tenants::tenant(db, tenant)?.and_then(|tenant| tenant.quota);
        total.check(&present(db, tenant)?, own.as_ref().unwrap_or(quota))?;
    }
    rows.iter().try_for_each(|row| add_one(db, row))
}

/// What sandboxes add up to.
#[derive(Default)]
struct Total {
    sandboxes: u64,
    cpus: u64,
    memory_mib: u64,
}

impl Total {
    fn check(&self, present: &Self, quota: &Quota) -> Result<(), StoreError> {
        for (what, wanted, present, limit) in [
            ("sandboxes", self.sandboxes, present.sandboxes, quota.sandboxes),
            ("CPUs", self.cpus, present.cpus, quota.cpus),
            ("MiB of memory", self.memory_mib, present.memory_mib, quota.memory_mib),
        ] {
            if present.saturating_add(wanted) > limit {
                return Err(StoreError::Quota { what, limit });
            }
        }
        Ok(())
    }
}

/// What a tenant has. Triggers keep the totals.
fn present(db: &Connection, tenant: &TenantId) -> Result<Total, StoreError> {
    let query = "SELECT sandboxes, cpus, memory_mib FROM sandbox_totals WHERE tenant = ?1";
    let total = first(db, query, [tenant.as_str()], |row| {
        Ok(Total {
            sandboxes: row.get::<_, Bits>(0)?.0,
            cpus: row.get::<_, Bits>(1)?.0,
            memory_mib: row.get::<_, Bits>(2)?.0,
        })
    })?;
    Ok(total.unwrap_or_default())
}

fn add_one(db: &Connection, row: &SandboxRow) -> Result<(), StoreError> {
    let statement = "INSERT INTO sandboxes (id, tenant, standing, template, from_snapshot, parent, tree, fork_index,
            metadata, env, ports, ttl_seconds, persistent, network, volumes, cpus, memory_mib, created_ms, used_ms,
            boot_ms, boot_mode, timings, name, ancestors)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22,
            ?23, ?24)";
    if let Some(name) = &row.name {
        not_taken(db, &row.tenant, name, &row.id)?;
    }
    let parameters = params![
        row.id.as_str(),
        row.tenant.as_str(),
        row.standing,
        row.template,
        row.from_snapshot.as_ref().map(|id| id.as_str()),
        row.parent.as_ref().map(SandboxId::as_str),
        row.tree,
        row.fork_index,
        Json(&row.metadata),
        Json(&row.env),
        Json(&row.ports),
        Bits(row.ttl_seconds),
        row.persistent,
        row.network,
        Json(&row.volumes),
        row.cpus,
        row.memory_mib,
        row.created_ms,
        row.used_ms,
        row.boot_ms,
        row.boot_mode,
        row.timings,
        row.name,
        Json(&row.ancestors)
    ];
    add(db, statement, parameters, "a sandbox of that id")
}

pub(super) fn one(db: &Connection, id: &SandboxId) -> Result<Option<SandboxRow>, StoreError> {
    first(db, select!("WHERE id = ?1"), [id.as_str()], parse)
}

/// [`StoreError::Exists`] when another sandbox of the tenant has the name. One thread writes, so it stays free until the write.
fn not_taken(db: &Connection, tenant: &TenantId, name: &str, id: &SandboxId) -> Result<(), StoreError> {
    match named(db, tenant, name)? {
        Some(other) if other.id != *id => Err(StoreError::Exists { what: "a sandbox of that name" }),
        _ => Ok(()),
    }
}

pub(super) fn named(
    db: &Connection,
    tenant: &TenantId,
    name: &str,
) -> Result<Option<SandboxRow>, StoreError> {
    first(db, select!("WHERE tenant = ?1 AND name = ?2"), [tenant.as_str(), name], parse)
}

pub(super) fn beginning_with(
    db: &Connection,
    tenant: &TenantId,
    prefix: &str,
    limit: usize,
) -> Result<Vec<SandboxRow>, StoreError> {
    // The plus keeps SQLite from walking through all of the tenant's instead of the few ids in the range.
    let query = select!("WHERE +tenant = ?1 AND id >= ?2 AND id < ?3 ORDER BY id LIMIT ?4");
    let parameters = params![tenant.as_str(), prefix, past(prefix), i64::try_from(limit).unwrap_or(i64::MAX)];
    all(db, query, parameters, parse)
}

/// The least text that comes after all that begin with a prefix of letters and digits.
pub(super) fn past(prefix: &str) -> String {
    format!("{prefix}{{")
}

const OF_TENANT: &str = select!("WHERE tenant = ?1 ORDER BY created_ms DESC, seq DESC");
const EVERYBODYS: &str = select!("ORDER BY created_ms DESC, seq DESC");

pub(super) fn of_tenant(db: &Connection, tenant: &TenantId) -> Result<Vec<SandboxRow>, StoreError> {
    all(db, OF_TENANT, [tenant.as_str()], parse)
}

pub(super) fn everybodys(db: &Connection) -> Result<Vec<SandboxRow>, StoreError> {
    all(db, EVERYBODYS, (), parse)
}

pub(super) fn visit(
    db: &Connection,
    tenant: Option<&TenantId>,
    visit: &mut dyn FnMut(SandboxRow),
) -> Result<(), StoreError> {
    match tenant {
        Some(tenant) => each(db, OF_TENANT, [tenant.as_str()], parse, visit),
        // Sorted by SQLite only for lists: sorting keeps every row in memory.
        None => each(db, select!(""), (), parse, visit),
    }
}

pub(super) fn of_tree(db: &Connection, tenant: &TenantId, tree: &str) -> Result<Vec<SandboxRow>, StoreError> {
    let query = select!("WHERE tenant = ?1 AND tree = ?2 ORDER BY created_ms DESC, seq DESC");
    all(db, query, [tenant.as_str(), tree], parse)
}

pub(super) fn change_one(db: &Connection, id: &SandboxId, to: &SandboxChange) -> Result<bool, StoreError> {
    let statement = "UPDATE sandboxes SET
            standing = coalesce(?2, standing), metadata = coalesce(?3, metadata), env = coalesce(?4, env),
            ports = coalesce(?5, ports), ttl_seconds = coalesce(?6, ttl_seconds),
            persistent = coalesce(?7, persistent), network = coalesce(?8, network), tree = coalesce(?9, tree),
            boot_ms = coalesce(?10, boot_ms), timings = coalesce(?11, timings),
            name = CASE WHEN ?12 THEN ?13 ELSE name END
        WHERE id = ?1";
    if let Some(Some(name)) = &to.name
        && let Some(row) = one(db, id)?
    {
        not_taken(db, &row.tenant, name, id)?;
    }
    let parameters = params![
        id.as_str(),
        to.standing,
        to.metadata.as_ref().map(Json),
        to.env.as_ref().map(Json),
        to.ports.as_ref().map(Json),
        to.ttl_seconds.map(Bits),
        to.persistent,
        to.network,
        to.tree,
        to.boot_ms,
        to.timings,
        to.name.is_some(),
        to.name.as_ref().and_then(Option::as_deref)
    ];
    change(db, statement, parameters)
}

pub(super) fn touch(db: &Connection, used: &[(SandboxId, i64)]) -> Result<(), StoreError> {
    for (id, at_ms) in used {
        change(db, "UPDATE sandboxes SET used_ms = ?2 WHERE id = ?1", params![id.as_str(), at_ms])?;
    }
    Ok(())
}

pub(super) fn remove(db: &Connection, id: &SandboxId) -> Result<bool, StoreError> {
    change(db, "DELETE FROM repls WHERE sandbox = ?1", [id.as_str()])?;
    change(db, "DELETE FROM sandboxes WHERE id = ?1", [id.as_str()])
}
