//! Rows that make no sense, and databases that are none.

use rusqlite::Connection;
use store::{SqliteStore, Store, StoreError};

use crate::Fresh;
use crate::sample::{plenty, sandbox, sandbox_id, tenant_id, token};

/// Damages a database by other means than the store, and says what reading a tenant's sandboxes and tokens then answers.
async fn check(damage: &str, expected: &str) {
    let fresh = Fresh::new();
    fresh.store.add_sandboxes(vec![sandbox("a", 1)], &plenty()).await.unwrap();
    fresh.store.add_token(token("a", 1)).await.unwrap();
    let db = Connection::open(fresh.path()).unwrap();
    db.pragma_update(None, "ignore_check_constraints", true).unwrap();
    db.execute_batch(damage).unwrap();
    let sandboxes = fresh.store.sandboxes(&tenant_id("a")).await.map(drop);
    let tokens = fresh.store.tokens(&tenant_id("a")).await.map(drop);
    match sandboxes.and(tokens) {
        Err(StoreError::Corrupt { what }) => assert_eq!(what, expected),
        other => panic!("{damage}: {other:?}"),
    }
    // One bad row does not stop the store.
    fresh.store.add_sandboxes(vec![sandbox("b", 2)], &plenty()).await.unwrap();
    assert!(fresh.store.sandbox(&sandbox_id(2)).await.unwrap().is_some());
}

#[tokio::test]
async fn rows_that_make_no_sense_are_named() {
    check(
        "UPDATE sandboxes SET id = '../db'",
        "column `id` of `../db`: it may hold only lowercase letters and digits",
    )
    .await;
    check("UPDATE sandboxes SET parent = ''", "column `parent` of `s1`: it is empty").await;
    check("UPDATE sandboxes SET standing = 'odd'", "column `standing` of `s1`: `odd` is none of its words")
        .await;
    check(
        "UPDATE sandboxes SET ports = '{\"99999\":\"\"}'",
        "column `ports` of `s1`: it is not the JSON it should be",
    )
    .await;
    check(
        "UPDATE sandboxes SET volumes = '[{}]'",
        "column `volumes` of `s1`: it is not the JSON it should be",
    )
    .await;
    check("UPDATE sandboxes SET fork_index = -1", "column `fork_index` of `s1`: -1 is out of range").await;
    check(
        "UPDATE sandboxes SET template = CAST(x'ff' AS TEXT)",
        "column `template` of `s1`: it is not UTF-8",
    )
    .await;
    check(
        "UPDATE tokens SET hash = x'00'",
        "column `hash` of `pds_1`: Cannot read 32 byte value out of 1 byte blob",
    )
    .await;
    check("UPDATE tokens SET scope = 'root'", "column `scope` of `pds_1`: `root` is none of its words").await;
}

#[tokio::test]
async fn the_environment_is_shown_nowhere() {
    let row = sandbox("a", 1);
    assert_eq!(row.env["API_KEY"], "hunter2");
    let change = store::SandboxChange { env: Some(row.env.clone()), ..store::SandboxChange::default() };
    let shown = format!("{row:?} {row:#?} {change:?}");
    assert!(!shown.contains("hunter2") && !shown.contains("API_KEY"), "{shown}");
    assert!(shown.contains("env: (1 secret)") && shown.contains("purpose"), "{shown}");

    let set = "UPDATE sandboxes SET env = '{\"API_KEY\":[\"hunter2\"]}'";
    check(set, "column `env` of `s1`: it is not the JSON it should be").await;
}

#[test]
fn what_is_no_database_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("db");
    let text = "no database ".repeat(1000);
    std::fs::write(&path, &text).unwrap();
    assert!(matches!(SqliteStore::open(&path), Err(StoreError::Database(_))));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text, "it is left alone");
}
