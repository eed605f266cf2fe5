//! The store as a whole.

use store::{PreviewKey, Store, StoreError};

use crate::sample::{plenty, sandbox, sandbox_id, tenant};

pub(crate) async fn answers_after_close_say_so(store: &dyn Store) {
    store.add_tenant(tenant("a", 1)).await.unwrap();
    store.close().await;
    store.close().await;
    assert!(matches!(store.tenants().await, Err(StoreError::Closed)));
    assert!(matches!(store.preview_key(PreviewKey([0; 32])).await, Err(StoreError::Closed)));
    assert!(matches!(store.ping().await, Err(StoreError::Closed)));
}

pub(crate) async fn ping_and_sync_answer(store: &dyn Store) {
    store.ping().await.unwrap();
    store.sync().await.unwrap();
    store.add_tenant(tenant("a", 1)).await.unwrap();
    store.sync().await.unwrap();
    store.ping().await.unwrap();
}

pub(crate) async fn reads_see_what_was_answered(store: &dyn Store) {
    for number in 0..500 {
        store.add_sandboxes(vec![sandbox("a", number)], &plenty()).await.unwrap();
        assert_eq!(store.sandbox(&sandbox_id(number)).await.unwrap(), Some(sandbox("a", number)));
        store.remove_sandbox(&sandbox_id(number)).await.unwrap();
        assert_eq!(store.sandbox(&sandbox_id(number)).await.unwrap(), None);
    }
}
