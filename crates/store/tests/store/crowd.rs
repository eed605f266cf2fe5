//! Many callers at once.

use std::sync::Arc;

use store::{Quota, Store, StoreError};
use tokio::task::JoinSet;

use crate::Fresh;
use crate::sample::{event, plenty, sandbox, sandbox_id, tenant_id, volume};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_gets_exactly_its_quota() {
    let fresh = Arc::new(Fresh::new());
    let quota = Quota { sandboxes: 100, ..plenty() };
    let mut crowd = JoinSet::new();
    for number in 0..400 {
        let (fresh, quota) = (Arc::clone(&fresh), quota.clone());
        crowd.spawn(async move {
            match fresh.store.add_sandboxes(vec![sandbox("a", number)], &quota).await {
                Ok(()) => Some(sandbox_id(number)),
                Err(StoreError::Quota { what: "sandboxes", limit: 100 }) => None,
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    let mut added: Vec<_> = crowd.join_all().await.into_iter().flatten().collect();
    let mut kept: Vec<_> =
        fresh.store.sandboxes(&tenant_id("a")).await.unwrap().into_iter().map(|row| row.id).collect();
    added.sort();
    kept.sort();
    assert_eq!(added.len(), 100);
    assert_eq!(added, kept);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_of_a_crowd_takes_a_name() {
    let fresh = Arc::new(Fresh::new());
    let mut crowd = JoinSet::new();
    for number in 0..50 {
        let fresh = Arc::clone(&fresh);
        crowd.spawn(
            async move { fresh.store.add_volume(volume("a", number, "data"), &plenty()).await.is_ok() },
        );
    }
    assert_eq!(crowd.join_all().await.into_iter().filter(|&took| took).count(), 1);
}

/// Jobs that fail share transactions with jobs that do not.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn failures_undo_only_themselves() {
    let fresh = Arc::new(Fresh::new());
    fresh.store.add_sandboxes(vec![sandbox("a", 0)], &plenty()).await.unwrap();
    let mut crowd = JoinSet::new();
    for number in 1..=500 {
        let fresh = Arc::clone(&fresh);
        crowd.spawn(async move {
            // Every second batch ends with an id that is taken, after a row that is not.
            let last = if number % 2 == 0 { 0 } else { number + 10_000 };
            let rows = vec![sandbox("a", number), sandbox("a", last)];
            let result = fresh.store.add_sandboxes(rows, &plenty()).await;
            assert_eq!(result.is_ok(), number % 2 == 1, "{result:?}");
            fresh.store.add_event(event("a", number, 1)).await.unwrap();
        });
    }
    crowd.join_all().await;
    let rows = fresh.store.sandboxes(&tenant_id("a")).await.unwrap();
    assert_eq!(rows.len(), 1 + 2 * 250);
    let odd = |id: &str| id[1..].parse::<usize>().unwrap() % 2 == 1;
    assert!(rows.iter().all(|row| row.id == sandbox_id(0) || odd(row.id.as_str())));
}

/// More than the queue holds.
#[tokio::test]
async fn a_crowd_beyond_the_queue_is_served() {
    let fresh = Arc::new(Fresh::new());
    let mut crowd = JoinSet::new();
    for number in 0..5000 {
        let fresh = Arc::clone(&fresh);
        crowd.spawn(async move { fresh.store.add_event(event("a", number % 7, number)).await.unwrap() });
    }
    crowd.join_all().await;
    let mut kept = 0;
    for number in 0..7 {
        kept += fresh.store.events(&tenant_id("a"), &sandbox_id(number), usize::MAX).await.unwrap().len();
    }
    assert_eq!(kept, 5000);
}

/// Closing answers everybody: what was taken is done, the rest is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn closing_in_a_crowd_loses_nothing_that_was_answered() {
    let fresh = Arc::new(Fresh::new());
    let mut crowd = JoinSet::new();
    for number in 0..300 {
        let fresh = Arc::clone(&fresh);
        crowd.spawn(async move {
            match fresh.store.add_sandboxes(vec![sandbox("a", number)], &plenty()).await {
                Ok(()) => Some(sandbox_id(number)),
                Err(StoreError::Closed) => None,
                Err(error) => panic!("{error:?}"),
            }
        });
    }
    fresh.store.close().await;
    let added: Vec<_> = crowd.join_all().await.into_iter().flatten().collect();
    let again = store::SqliteStore::open(&fresh.path()).unwrap();
    for id in added {
        assert!(again.sandbox(&id).await.unwrap().is_some(), "{id}");
    }
}
