//! Tenants and their tokens.

use domain::TenantId;
use rusqlite::{Connection, Row, params};

use super::column::{Checked, Json};
use super::query::{add, all, change, first};
use crate::{NetworkMode, Quota, StoreError, TenantRow, TokenRow};

fn tenant_row(row: &Row<'_>) -> rusqlite::Result<TenantRow> {
    Ok(TenantRow {
        id: row.get::<_, Checked<_>>(0)?.0,
        name: row.get(1)?,
        quota: row.get::<_, Option<Json<_>>>(2)?.map(|Json(quota)| quota),
        created_ms: row.get(3)?,
        network_default: row.get(4)?,
    })
}

pub(super) fn add_tenant(db: &Connection, tenant: &TenantRow) -> Result<(), StoreError> {
    let statement =
        "INSERT INTO tenants (id, name, quota, created_ms, network_default) VALUES (?1, ?2, ?3, ?4, ?5)";
    let quota = tenant.quota.as_ref().map(Json);
    let parameters =
        params![tenant.id.as_str(), tenant.name, quota, tenant.created_ms, tenant.network_default];
    add(db, statement, parameters, "a tenant of that id")
}

pub(super) fn tenants(db: &Connection) -> Result<Vec<TenantRow>, StoreError> {
    let query =
        "SELECT id, name, quota, created_ms, network_default FROM tenants ORDER BY created_ms DESC, seq DESC";
    all(db, query, (), tenant_row)
}

pub(super) fn tenant(db: &Connection, id: &TenantId) -> Result<Option<TenantRow>, StoreError> {
    let query = "SELECT id, name, quota, created_ms, network_default FROM tenants WHERE id = ?1";
    first(db, query, [id.as_str()], tenant_row)
}

pub(super) fn set_network_default(
    db: &Connection,
    id: &TenantId,
    mode: Option<NetworkMode>,
) -> Result<bool, StoreError> {
    change(db, "UPDATE tenants SET network_default = ?2 WHERE id = ?1", params![id.as_str(), mode])
}

pub(super) fn set_quota(db: &Connection, id: &TenantId, quota: Option<&Quota>) -> Result<bool, StoreError> {
    change(db, "UPDATE tenants SET quota = ?2 WHERE id = ?1", params![id.as_str(), quota.map(Json)])
}

fn token_row(row: &Row<'_>) -> rusqlite::Result<TokenRow> {
    Ok(TokenRow {
        prefix: row.get(0)?,
        hash: row.get(1)?,
        tenant: row.get::<_, Checked<_>>(2)?.0,
        label: row.get(3)?,
        scope: row.get(4)?,
        created_ms: row.get(5)?,
        expires_ms: row.get(6)?,
        revoked_ms: row.get(7)?,
    })
}

pub(super) fn add_token(db: &Connection, token: &TokenRow) -> Result<(), StoreError> {
    let statement =
        "INSERT INTO tokens (prefix, hash, tenant, label, scope, created_ms, expires_ms, revoked_ms)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
    let parameters = params![
        token.prefix,
        token.hash,
        token.tenant.as_str(),
        token.label,
        token.scope,
        token.created_ms,
        token.expires_ms,
        token.revoked_ms
    ];
    add(db, statement, parameters, "a token of that prefix or hash")
}

pub(super) fn token_by_hash(db: &Connection, hash: &[u8; 32]) -> Result<Option<TokenRow>, StoreError> {
    let query = "SELECT prefix, hash, tenant, label, scope, created_ms, expires_ms, revoked_ms FROM tokens
        WHERE hash = ?1";
    first(db, query, [hash], token_row)
}

pub(super) fn tokens(db: &Connection, tenant: &TenantId) -> Result<Vec<TokenRow>, StoreError> {
    let query = "SELECT prefix, hash, tenant, label, scope, created_ms, expires_ms, revoked_ms FROM tokens
        WHERE tenant = ?1 AND revoked_ms IS NULL ORDER BY created_ms DESC, seq DESC";
    all(db, query, [tenant.as_str()], token_row)
}

/// A token that is revoked again keeps the time at which it stopped working.
pub(super) fn revoke_token(
    db: &Connection,
    tenant: &TenantId,
    prefix: &str,
    at_ms: i64,
) -> Result<bool, StoreError> {
    let statement =
        "UPDATE tokens SET revoked_ms = coalesce(revoked_ms, ?3) WHERE tenant = ?1 AND prefix = ?2";
    change(db, statement, params![tenant.as_str(), prefix, at_ms])
}
