//! Bounds that are too far away to be reached row by row.

use rusqlite::Connection;
use store::{EVENTS_MAX, Store};

use crate::Fresh;
use crate::sample::{event, sandbox_id, tenant_id};

#[tokio::test]
async fn the_oldest_events_of_all_go() {
    let fresh = Fresh::new();
    for sandbox in [1, 2] {
        fresh.store.add_event(event("a", sandbox, sandbox)).await.unwrap();
    }
    // As if the second were the last of as many as are kept.
    let db = Connection::open(fresh.path()).unwrap();
    db.execute("UPDATE events SET seq = ?1 WHERE sandbox = 's2'", [EVENTS_MAX as i64]).unwrap();
    fresh.store.add_event(event("b", 3, 3)).await.unwrap();
    let count = async |tenant, sandbox| {
        fresh.store.events(&tenant_id(tenant), &sandbox_id(sandbox), 9).await.unwrap().len()
    };
    assert_eq!((count("a", 1).await, count("a", 2).await, count("b", 3).await), (0, 1, 1));
}
