//! What happened: events of sandboxes and the audit log. Both drop their oldest rows as new ones come.

use domain::{SandboxId, TenantId};
use rusqlite::{Connection, Row, params};

use super::column::Checked;
use super::query::{add, all, change, first};
use crate::{AUDIT_ROWS_MAX, AuditRow, EVENTS_MAX, EVENTS_PER_SANDBOX_MAX, EventRow, StoreError};

fn event_row(row: &Row<'_>) -> rusqlite::Result<EventRow> {
    Ok(EventRow {
        sandbox: row.get::<_, Checked<_>>(0)?.0,
        tenant: row.get::<_, Checked<_>>(1)?.0,
        at_ms: row.get(2)?,
        kind: row.get(3)?,
        payload: row.get(4)?,
    })
}

/// Rows carry their place in the sandbox's own count and in everybody's, so the ones to drop are a range at the beginning of an index.
pub(super) fn add_event(db: &Connection, event: &EventRow) -> Result<(), StoreError> {
    let statement = "INSERT INTO events (sandbox, place, tenant, at_ms, kind, payload)
        VALUES (?1, (SELECT coalesce(max(place), 0) + 1 FROM events WHERE sandbox = ?1), ?2, ?3, ?4, ?5)
        RETURNING place, seq";
    let sandbox = event.sandbox.as_str();
    let parameters = params![sandbox, event.tenant.as_str(), event.at_ms, event.kind, event.payload];
    let added: Option<(i64, i64)> = first(db, statement, parameters, |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (place, seq) = added.unwrap_or_default();
    let statement = "DELETE FROM events WHERE sandbox = ?1 AND place <= ?2";
    change(db, statement, params![sandbox, place - rows(EVENTS_PER_SANDBOX_MAX)])?;
    change(db, "DELETE FROM events WHERE seq <= ?1", [seq - rows(EVENTS_MAX)])?;
    Ok(())
}

pub(super) fn events(
    db: &Connection,
    tenant: &TenantId,
    sandbox: &SandboxId,
    newest: usize,
) -> Result<Vec<EventRow>, StoreError> {
    let query = "SELECT sandbox, tenant, at_ms, kind, payload FROM events
        WHERE sandbox = ?1 AND tenant = ?2 ORDER BY place DESC LIMIT ?3";
    let mut found = all(db, query, params![sandbox.as_str(), tenant.as_str(), rows(newest)], event_row)?;
    found.reverse();
    Ok(found)
}

fn audit_row(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    Ok(AuditRow {
        request_id: row.get(0)?,
        at_ms: row.get(1)?,
        tenant: row.get::<_, Checked<_>>(2)?.0,
        token: row.get(3)?,
        method: row.get(4)?,
        path: row.get(5)?,
        status: row.get(6)?,
    })
}

pub(super) fn add_audit(db: &Connection, lines: &[AuditRow]) -> Result<(), StoreError> {
    let statement = "INSERT INTO audit (request_id, at_ms, tenant, token, method, path, status)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)";
    for line in lines {
        let parameters = params![
            line.request_id,
            line.at_ms,
            line.tenant.as_str(),
            line.token,
            line.method,
            line.path,
            line.status
        ];
        add(db, statement, parameters, "an audit line of that place")?;
    }
    let statement = "DELETE FROM audit WHERE seq <= (SELECT max(seq) FROM audit) - ?1";
    change(db, statement, [rows(AUDIT_ROWS_MAX)])?;
    Ok(())
}

pub(super) fn audit(
    db: &Connection,
    tenant: &TenantId,
    since_ms: i64,
    limit: usize,
) -> Result<Vec<AuditRow>, StoreError> {
    let query = "SELECT request_id, at_ms, tenant, token, method, path, status FROM audit
        WHERE tenant = ?1 AND at_ms >= ?2 ORDER BY at_ms DESC, seq DESC LIMIT ?3";
    all(db, query, params![tenant.as_str(), since_ms, rows(limit)], audit_row)
}

/// A number of rows as SQLite counts them.
fn rows(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
