//! Databases that earlier versions made. `old_schema/1.sql` is what version 1 had written; it is never edited.

use rusqlite::Connection;
use store::{PreviewKey, SqliteStore, Store, StoreError};

use crate::Fresh;
use crate::sample::{audit, event, repl, sandbox, sandbox_id, snapshot, tenant, tenant_id, token, volume};

const VERSION_1: &str = include_str!("old_schema/1.sql");

#[tokio::test]
async fn rows_of_version_1_are_found() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    Connection::open(&path).unwrap().execute_batch(VERSION_1).unwrap();

    let store = SqliteStore::open(&path).unwrap();
    let a = tenant_id("a");
    assert_eq!(store.tenants().await.unwrap(), [tenant("a", 1)]);
    assert_eq!(store.token_by_hash([1; 32]).await.unwrap(), Some(token("a", 1)));
    assert_eq!(store.sandboxes(&a).await.unwrap(), [sandbox("a", 1)]);
    assert_eq!(store.snapshots(&a, None).await.unwrap(), [snapshot("a", 1, 1)]);
    assert_eq!(store.volumes(&a).await.unwrap(), [volume("a", 1, "data")]);
    assert_eq!(store.events(&a, &sandbox_id(1), 9).await.unwrap(), [event("a", 1, 1)]);
    assert_eq!(store.audit(&a, 0, 9).await.unwrap(), [audit("a", 1)]);
    assert_eq!(store.repls(&sandbox_id(1)).await.unwrap(), [repl(1, "main", 1)]);
    assert_eq!(store.preview_key(PreviewKey([1; 32])).await.unwrap(), PreviewKey([7; 32]));
    assert!(
        store.builds_to_do().await.unwrap().is_empty() && store.all_templates().await.unwrap().is_empty()
    );
    store.sync().await.unwrap();
}

/// Limits that were written down before there were templates mean the usual ones.
#[tokio::test]
async fn limits_of_version_1_are_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch(VERSION_1).unwrap();
    let quota = r#"{"sandboxes":1,"cpus":1,"memory_mib":1,"volumes":1,"volume_mib":1,"snapshots":1}"#;
    db.execute("UPDATE tenants SET quota = ?1", [quota]).unwrap();
    let store = SqliteStore::open(&path).unwrap();
    let quota = store.tenant(&tenant_id("a")).await.unwrap().unwrap().quota.unwrap();
    assert_eq!((quota.snapshots, quota.templates, quota.builds), (1, 100, 20));
}

/// Every table, index and trigger, without white space.
fn schema(db: &Connection) -> Vec<String> {
    let mut query =
        db.prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY type, name").unwrap();
    let rows = query.query_map((), |row| row.get::<_, String>(0)).unwrap();
    rows.map(|sql| sql.unwrap().split_whitespace().collect()).collect()
}

/// A database brought here from version 1 is the same as a new one.
#[test]
fn old_and_new_databases_have_one_schema() {
    let fresh = Fresh::new();
    let old = fresh.directory.path().join("old");
    Connection::open(&old).unwrap().execute_batch(VERSION_1).unwrap();
    drop(SqliteStore::open(&old).unwrap());
    let (old, new) = (Connection::open(&old).unwrap(), Connection::open(fresh.path()).unwrap());
    assert_eq!(schema(&old), schema(&new));
}

#[test]
fn a_newer_database_is_left_alone() {
    let fresh = Fresh::new();
    let path = fresh.path();
    Connection::open(&path).unwrap().pragma_update(None, "user_version", 9999).unwrap();
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::TooNew { found: 9999, .. })));
}
