//! Events and the audit log.

use store::{AUDIT_ROWS_MAX, EVENTS_PER_SANDBOX_MAX, Store};

use crate::sample::{audit, event, sandbox_id, tenant_id};

pub(crate) async fn events_come_oldest_first(store: &dyn Store) {
    let a = tenant_id("a");
    for number in 0..5 {
        // A clock that goes back does not change the order.
        store.add_event(event("a", 1, 5 - number)).await.unwrap();
    }
    store.add_event(event("a", 2, 9)).await.unwrap();
    let found = store.events(&a, &sandbox_id(1), 3).await.unwrap();
    assert_eq!(found, [event("a", 1, 3), event("a", 1, 2), event("a", 1, 1)]);
    assert_eq!(store.events(&a, &sandbox_id(1), usize::MAX).await.unwrap().len(), 5);
    assert!(store.events(&tenant_id("b"), &sandbox_id(1), 3).await.unwrap().is_empty(), "another's");
    assert!(store.events(&a, &sandbox_id(1), 0).await.unwrap().is_empty());
}

pub(crate) async fn only_the_newest_events_of_a_sandbox_stay(store: &dyn Store) {
    let a = tenant_id("a");
    store.add_event(event("a", 2, 0)).await.unwrap();
    for number in 0..EVENTS_PER_SANDBOX_MAX + 5 {
        store.add_event(event("a", 1, number)).await.unwrap();
    }
    let found = store.events(&a, &sandbox_id(1), usize::MAX).await.unwrap();
    assert_eq!(found.len(), EVENTS_PER_SANDBOX_MAX);
    assert_eq!(found.first(), Some(&event("a", 1, 5)));
    assert_eq!(found.last(), Some(&event("a", 1, EVENTS_PER_SANDBOX_MAX + 4)));
    assert_eq!(store.events(&a, &sandbox_id(2), 9).await.unwrap(), [event("a", 2, 0)]);
}

pub(crate) async fn audit_is_of_a_tenant_and_a_time(store: &dyn Store) {
    let a = tenant_id("a");
    store.add_audit(vec![]).await.unwrap();
    store.add_audit((0..4).map(|number| audit("a", number)).collect()).await.unwrap();
    store.add_audit(vec![audit("b", 9)]).await.unwrap();
    assert_eq!(store.audit(&a, 2, 10).await.unwrap(), [audit("a", 3), audit("a", 2)]);
    assert_eq!(store.audit(&a, 0, 1).await.unwrap(), [audit("a", 3)]);
    assert!(store.audit(&a, 4, 10).await.unwrap().is_empty());
}

pub(crate) async fn only_the_newest_audit_lines_stay(store: &dyn Store) {
    for start in (0..AUDIT_ROWS_MAX + 20_000).step_by(20_000) {
        let lines = (start..start + 20_000).map(|number| audit("a", number)).collect();
        store.add_audit(lines).await.unwrap();
    }
    store.add_audit(vec![audit("b", 1)]).await.unwrap();
    let found = store.audit(&tenant_id("a"), 0, usize::MAX).await.unwrap();
    assert_eq!(found.len(), AUDIT_ROWS_MAX - 1);
    assert_eq!(found.last().unwrap().at_ms, 20_001);
    assert_eq!(store.audit(&tenant_id("b"), 0, 9).await.unwrap(), [audit("b", 1)]);
}
