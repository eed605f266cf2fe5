//! What lies in the directory.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use store::{SqliteStore, Store, StoreError};

use crate::Fresh;
use crate::sample::{plenty, sandbox, tenant, tenant_id};

/// Names and modes of what lies in a directory.
fn listing(directory: &Path) -> Vec<(String, u32)> {
    let mut found: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            (entry.file_name().into_string().unwrap(), mode)
        })
        .collect();
    found.sort();
    found
}

#[tokio::test]
async fn only_the_owner_reads_the_files() {
    let fresh = Fresh::new();
    fresh.store.add_tenant(tenant("a", 1)).await.unwrap();
    let names = ["db", "db-shm", "db-wal"].map(|name| (name.to_owned(), 0o600));
    assert_eq!(listing(fresh.directory.path()), names);
    fresh.store.close().await;
    assert_eq!(listing(fresh.directory.path()), [("db".to_owned(), 0o600)], "the log is emptied");

    std::fs::set_permissions(fresh.path(), PermissionsExt::from_mode(0o644)).unwrap();
    let again = SqliteStore::open(&fresh.path()).unwrap();
    assert_eq!(again.tenants().await.unwrap(), [tenant("a", 1)]);
    assert_eq!(listing(fresh.directory.path()), names);
}

#[tokio::test]
async fn dropping_closes() {
    let Fresh { store, directory } = Fresh::new();
    store.add_sandboxes(vec![sandbox("a", 1)], &plenty()).await.unwrap();
    drop(store);
    assert_eq!(listing(directory.path()), [("db".to_owned(), 0o600)]);
    let again = SqliteStore::open(&directory.path().join("db")).unwrap();
    assert_eq!(again.sandboxes(&tenant_id("a")).await.unwrap(), [sandbox("a", 1)]);
}

#[test]
fn the_directory_must_exist() {
    let directory = tempfile::tempdir().unwrap();
    let opened = SqliteStore::open(&directory.path().join("none/db"));
    assert!(matches!(opened, Err(StoreError::Database(_))));
    assert!(listing(directory.path()).is_empty());
}
