//! Tenants and tokens.

use store::{Quota, Store};

use super::exists;
use crate::sample::{tenant, tenant_id, token};

pub(crate) async fn tenants_are_listed_newest_first(store: &dyn Store) {
    let mut limited = tenant("b", 2);
    let quota = Quota {
        sandboxes: 1,
        cpus: 2,
        memory_mib: 3,
        volumes: 4,
        volume_mib: u64::MAX,
        snapshots: 6,
        templates: 7,
        builds: 8,
    };
    limited.quota = Some(quota);
    let rows = [tenant("a", 1), limited.clone(), tenant("c", 2)];
    for row in rows.clone() {
        store.add_tenant(row).await.unwrap();
    }
    let [first, second, third] = rows;
    assert_eq!(store.tenants().await.unwrap(), [third, second, first]);
    assert_eq!(store.tenant(&limited.id).await.unwrap(), Some(limited));
    assert_eq!(store.tenant(&tenant_id("nobody")).await.unwrap(), None);
}

pub(crate) async fn a_tenant_is_added_once(store: &dyn Store) {
    store.add_tenant(tenant("a", 1)).await.unwrap();
    assert!(exists(store.add_tenant(tenant("a", 2)).await));
    assert_eq!(store.tenants().await.unwrap(), [tenant("a", 1)]);
}

pub(crate) async fn tokens_are_found_by_hash(store: &dyn Store) {
    store.add_token(token("a", 1)).await.unwrap();
    assert_eq!(store.token_by_hash([1; 32]).await.unwrap(), Some(token("a", 1)));
    assert_eq!(store.token_by_hash([2; 32]).await.unwrap(), None);
}

pub(crate) async fn prefix_and_hash_of_a_token_are_unique(store: &dyn Store) {
    store.add_token(token("a", 1)).await.unwrap();
    let mut same_hash = token("b", 2);
    same_hash.hash = [1; 32];
    assert!(exists(store.add_token(same_hash).await));
    let mut same_prefix = token("b", 2);
    same_prefix.prefix = token("a", 1).prefix;
    assert!(exists(store.add_token(same_prefix).await));
    store.add_token(token("b", 2)).await.unwrap();
}

pub(crate) async fn a_revoked_token_is_no_longer_listed(store: &dyn Store) {
    for number in 1..=3 {
        store.add_token(token("a", number)).await.unwrap();
    }
    let a = tenant_id("a");
    assert!(!store.revoke_token(&tenant_id("b"), "pds_2", 50).await.unwrap(), "another's token");
    assert!(!store.revoke_token(&a, "pds_9", 50).await.unwrap());
    assert!(store.revoke_token(&a, "pds_2", 50).await.unwrap());
    assert!(store.revoke_token(&a, "pds_2", 60).await.unwrap());
    assert_eq!(store.tokens(&a).await.unwrap(), [token("a", 3), token("a", 1)]);
    let revoked = store.token_by_hash([2; 32]).await.unwrap().unwrap();
    assert_eq!(revoked.revoked_ms, Some(50), "the first time counts");
}
