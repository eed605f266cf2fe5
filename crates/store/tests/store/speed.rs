//! How long things take, printed. Run by hand: `cargo test --release -p store --test store speed -- --ignored --nocapture`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use store::{SandboxRow, Store};

use crate::Fresh;
use crate::sample::{audit, event, map, plenty, sandbox, sandbox_id, tenant_id, token};

async fn measure<F: Future>(what: &str, times: usize, mut once: impl FnMut(usize) -> F) {
    let mut took: Vec<Duration> = Vec::with_capacity(times);
    for number in 0..times {
        let start = Instant::now();
        let answer = once(number).await;
        took.push(start.elapsed());
        drop(answer);
    }
    took.sort();
    println!(
        "{what}: best {:?}, median {:?}, p99 {:?} of {times}",
        took[0],
        took[times / 2],
        took[times * 99 / 100]
    );
}

/// A sandbox as most are: from a template, with little written on it.
fn plain(number: usize) -> SandboxRow {
    let row = sandbox("plain", number);
    SandboxRow { from_snapshot: None, parent: None, env: map(&[]), ports: [].into(), volumes: vec![], ..row }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures"]
async fn speed() {
    const ROWS: usize = 10_000;
    let fresh = Arc::new(Fresh::new());
    let store = &fresh.store;
    let tenant = tenant_id("a");

    store.add_token(token("a", 1)).await.unwrap();
    let start = Instant::now();
    for first in (0..ROWS).step_by(100) {
        let rows = (first..first + 100).map(|number| sandbox("a", number)).collect();
        store.add_sandboxes(rows, &plenty()).await.unwrap();
    }
    println!("{ROWS} sandboxes added by hundreds: {:?}", start.elapsed());

    measure("10,000 sandboxes of a tenant, all fields in use", 50, async |_| {
        store.sandboxes(&tenant).await.unwrap()
    })
    .await;
    measure("all 10,000 sandboxes", 50, async |_| store.all_sandboxes().await.unwrap()).await;
    for first in (0..ROWS).step_by(100) {
        let rows = (first..first + 100).map(|number| plain(2 * ROWS + number)).collect();
        store.add_sandboxes(rows, &plenty()).await.unwrap();
    }
    let another = tenant_id("plain");
    measure("10,000 plain sandboxes of a tenant", 50, async |_| store.sandboxes(&another).await.unwrap())
        .await;
    measure("one sandbox", 2000, async |number| store.sandbox(&sandbox_id(number)).await.unwrap()).await;
    measure("token by hash", 2000, async |_| store.token_by_hash([1; 32]).await.unwrap()).await;
    measure("add one sandbox", 2000, async |number| {
        store.add_sandboxes(vec![sandbox("a", ROWS + number)], &plenty()).await.unwrap();
    })
    .await;
    measure("touch one sandbox", 2000, async |number| {
        store.touch_sandboxes(vec![(sandbox_id(number), 1)]).await.unwrap();
    })
    .await;
    measure("add an event, pruning", 4000, async |number| {
        store.add_event(event("a", 1, number)).await.unwrap()
    })
    .await;
    for first in (0..220_000).step_by(10_000) {
        store.add_audit((first..first + 10_000).map(|number| audit("a", number)).collect()).await.unwrap();
    }
    measure("add an audit line, pruning", 2000, async |number| {
        store.add_audit(vec![audit("a", number)]).await.unwrap();
    })
    .await;
    measure("100 audit lines of 200,000", 500, async |_| store.audit(&tenant, 0, 100).await.unwrap()).await;
    measure("sync", 200, async |_| store.sync().await.unwrap()).await;
    measure("add a token", 100, async |number| {
        store.add_token(token("a", 2 + number as u8)).await.unwrap();
    })
    .await;

    let start = Instant::now();
    let mut crowd = tokio::task::JoinSet::new();
    for number in 0..20_000 {
        let fresh = Arc::clone(&fresh);
        crowd.spawn(async move { fresh.store.add_event(event("b", number % 500, number)).await.unwrap() });
    }
    crowd.join_all().await;
    println!("20,000 events of a crowd: {:?}", start.elapsed());
}
