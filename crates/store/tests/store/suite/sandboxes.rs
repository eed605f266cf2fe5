//! Sandboxes and their quotas.

use std::sync::{Arc, Mutex};

use store::{NetworkMode, ProvisionState, Quota, SandboxChange, Store, TenantRow};

use super::{exists, limit};
use crate::sample::{event, map, plenty, repl, sandbox, sandbox_id, tenant, tenant_id};

pub(crate) async fn sandboxes_are_listed_newest_first(store: &dyn Store) {
    let mut same_time = sandbox("a", 3);
    same_time.created_ms = 2;
    let rows = vec![sandbox("a", 1), sandbox("a", 2), same_time.clone()];
    store.add_sandboxes(rows, &plenty()).await.unwrap();
    store.add_sandboxes(vec![sandbox("b", 4)], &plenty()).await.unwrap();
    let (first, second) = (sandbox("a", 1), sandbox("a", 2));
    let mine = [same_time, second.clone(), first.clone()];
    assert_eq!(store.sandboxes(&tenant_id("a")).await.unwrap(), mine);
    let [third, ..] = mine;
    assert_eq!(store.all_sandboxes().await.unwrap(), [sandbox("b", 4), third, second, first.clone()]);
    assert_eq!(store.sandbox(&first.id).await.unwrap(), Some(first));
    assert_eq!(store.sandbox(&sandbox_id(9)).await.unwrap(), None);
}

pub(crate) async fn sandboxes_are_found_by_name_and_by_the_beginning_of_their_id(store: &dyn Store) {
    let named = |tenant: &str, number, name: &str| {
        let mut row = sandbox(tenant, number);
        row.name = Some(name.to_owned());
        row
    };
    let (a, b) = (tenant_id("a"), tenant_id("b"));
    let web = named("a", 1, "web");
    store.add_sandboxes(vec![web.clone(), sandbox("a", 12)], &plenty()).await.unwrap();
    // Names are each tenant's own.
    store.add_sandboxes(vec![named("b", 11, "web")], &plenty()).await.unwrap();
    assert!(exists(store.add_sandboxes(vec![named("a", 3, "web")], &plenty()).await));
    assert_eq!(store.sandbox_named(&a, "web").await.unwrap().as_ref(), Some(&web));
    assert_eq!(store.sandbox_named(&b, "db").await.unwrap(), None);

    let rename = |name: Option<&str>| SandboxChange {
        name: Some(name.map(str::to_owned)),
        ..SandboxChange::default()
    };
    assert!(exists(store.change_sandbox(&sandbox_id(12), rename(Some("web"))).await));
    assert!(store.change_sandbox(&web.id, rename(Some("web"))).await.unwrap());
    assert!(store.change_sandbox(&web.id, rename(None)).await.unwrap());
    assert!(store.change_sandbox(&sandbox_id(12), rename(Some("web"))).await.unwrap());

    let prefix = sandbox_id(1).to_string();
    let found = store.sandboxes_beginning_with(&a, &prefix, 9).await.unwrap();
    let ids: Vec<_> = found.iter().map(|row| row.id.clone()).collect();
    assert_eq!(ids, [sandbox_id(1), sandbox_id(12)]);
    assert_eq!(store.sandboxes_beginning_with(&a, &prefix, 1).await.unwrap().len(), 1);
    assert_eq!(store.sandboxes_beginning_with(&b, &prefix, 9).await.unwrap().len(), 1);
}

pub(crate) async fn a_change_changes_what_it_names(store: &dyn Store) {
    let mut row = sandbox("a", 1);
    store.add_sandboxes(vec![row.clone(), sandbox("a", 2)], &plenty()).await.unwrap();

    assert!(store.change_sandbox(&row.id, SandboxChange::default()).await.unwrap());
    assert_eq!(store.sandbox(&row.id).await.unwrap().as_ref(), Some(&row));

    let change = SandboxChange { standing: Some(ProvisionState::Live), ..SandboxChange::default() };
    assert!(store.change_sandbox(&row.id, change).await.unwrap());
    row.standing = ProvisionState::Live;
    assert_eq!(store.sandbox(&row.id).await.unwrap().as_ref(), Some(&row));

    let change = SandboxChange {
        standing: Some(ProvisionState::Deleting),
        name: Some(Some("web".to_owned())),
        metadata: Some(map(&[])),
        env: Some(map(&[("NEW", "")])),
        ports: Some([(u16::MAX, String::new())].into()),
        ttl_seconds: Some(u64::MAX),
        persistent: Some(false),
        network: Some(NetworkMode::None),
        tree: Some("tree".to_owned()),
        boot_ms: Some(0.25),
        timings: Some("[]".to_owned()),
    };
    assert!(store.change_sandbox(&row.id, change).await.unwrap());
    row.standing = ProvisionState::Deleting;
    row.name = Some("web".to_owned());
    row.metadata = map(&[]);
    row.env = map(&[("NEW", "")]);
    row.ports = [(u16::MAX, String::new())].into();
    row.ttl_seconds = u64::MAX;
    row.persistent = false;
    row.network = NetworkMode::None;
    row.tree = Some("tree".to_owned());
    row.boot_ms = Some(0.25);
    row.timings = Some("[]".to_owned());
    assert_eq!(store.sandboxes(&row.tenant).await.unwrap(), [sandbox("a", 2), row]);

    assert!(!store.change_sandbox(&sandbox_id(9), SandboxChange::default()).await.unwrap());
}

pub(crate) async fn batches_are_added_whole_or_not(store: &dyn Store) {
    store.add_sandboxes(vec![], &plenty()).await.unwrap();
    store.add_sandboxes(vec![sandbox("a", 1)], &plenty()).await.unwrap();
    let batch = vec![sandbox("a", 2), sandbox("a", 1), sandbox("a", 3)];
    assert!(exists(store.add_sandboxes(batch, &plenty()).await));
    let twice = vec![sandbox("a", 2), sandbox("a", 2)];
    assert!(exists(store.add_sandboxes(twice, &plenty()).await));
    let quota = Quota { sandboxes: 2, ..plenty() };
    let batch = vec![sandbox("a", 2), sandbox("a", 3)];
    assert_eq!(limit(store.add_sandboxes(batch, &quota).await), Some(("sandboxes", 2)));
    assert_eq!(store.all_sandboxes().await.unwrap(), [sandbox("a", 1)]);
    // What was undone counts no more either.
    store.add_sandboxes(vec![sandbox("a", 2)], &quota).await.unwrap();
}

pub(crate) async fn each_quota_is_the_limit(store: &dyn Store) {
    store.add_sandboxes(vec![sandbox("a", 1)], &plenty()).await.unwrap();
    for (quota, reached) in [
        (Quota { sandboxes: 1, ..plenty() }, ("sandboxes", 1)),
        (Quota { cpus: 3, ..plenty() }, ("CPUs", 3)),
        (Quota { memory_mib: 1023, ..plenty() }, ("MiB of memory", 1023)),
    ] {
        assert_eq!(limit(store.add_sandboxes(vec![sandbox("a", 2)], &quota).await), Some(reached));
    }
    let none = Quota { sandboxes: 0, ..plenty() };
    assert_eq!(limit(store.add_sandboxes(vec![sandbox("b", 3)], &none).await), Some(("sandboxes", 0)));
    let exact = Quota { sandboxes: 2, cpus: 4, memory_mib: 1024, ..plenty() };
    store.add_sandboxes(vec![sandbox("a", 2)], &exact).await.unwrap();
    store.add_sandboxes(vec![sandbox("b", 3)], &exact).await.unwrap();
}

pub(crate) async fn a_tenants_own_quota_goes_first(store: &dyn Store) {
    let own = Quota { sandboxes: 1, ..plenty() };
    store.add_tenant(TenantRow { quota: Some(own), ..tenant("a", 1) }).await.unwrap();
    store.add_tenant(tenant("b", 2)).await.unwrap();
    store.add_sandboxes(vec![sandbox("a", 1)], &Quota { sandboxes: 0, ..plenty() }).await.unwrap();
    assert_eq!(limit(store.add_sandboxes(vec![sandbox("a", 2)], &plenty()).await), Some(("sandboxes", 1)));
    let none = Quota { sandboxes: 0, ..plenty() };
    assert_eq!(limit(store.add_sandboxes(vec![sandbox("b", 3)], &none).await), Some(("sandboxes", 0)));
}

pub(crate) async fn sandboxes_are_shown_one_by_one(store: &dyn Store) {
    let rows: Vec<_> = (1..=3).map(|number| sandbox("a", number)).collect();
    store.add_sandboxes(rows, &plenty()).await.unwrap();
    store.add_sandboxes(vec![sandbox("b", 4)], &plenty()).await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let visitor = || {
        let seen = Arc::clone(&seen);
        Box::new(move |row| seen.lock().unwrap().push(row))
    };
    store.visit_sandboxes(Some(&tenant_id("a")), visitor()).await.unwrap();
    let listed = store.sandboxes(&tenant_id("a")).await.unwrap();
    assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), listed);
    store.visit_sandboxes(None, visitor()).await.unwrap();
    assert_eq!(seen.lock().unwrap().len(), 4);
}

pub(crate) async fn removed_sandboxes_count_no_more(store: &dyn Store) {
    let quota = Quota { sandboxes: 1, cpus: 2, memory_mib: 512, ..plenty() };
    for number in 0..3 {
        store.add_sandboxes(vec![sandbox("a", number)], &quota).await.unwrap();
        assert!(limit(store.add_sandboxes(vec![sandbox("a", 7)], &quota).await).is_some());
        let change = SandboxChange { standing: Some(ProvisionState::Deleting), ..SandboxChange::default() };
        assert!(store.change_sandbox(&sandbox_id(number), change).await.unwrap());
        assert!(
            limit(store.add_sandboxes(vec![sandbox("a", 7)], &quota).await).is_some(),
            "every row counts"
        );
        assert!(store.remove_sandbox(&sandbox_id(number)).await.unwrap());
        assert!(!store.remove_sandbox(&sandbox_id(number)).await.unwrap());
    }
}

pub(crate) async fn sandboxes_are_touched(store: &dyn Store) {
    store.add_sandboxes(vec![sandbox("a", 1), sandbox("a", 2)], &plenty()).await.unwrap();
    let used = vec![(sandbox_id(1), 70), (sandbox_id(9), 80), (sandbox_id(2), 90)];
    store.touch_sandboxes(used).await.unwrap();
    let rows = store.sandboxes(&tenant_id("a")).await.unwrap();
    assert_eq!(rows.iter().map(|row| row.used_ms).collect::<Vec<_>>(), [90, 70]);
}

pub(crate) async fn a_tree_holds_its_tenants_sandboxes(store: &dyn Store) {
    let mut rows: Vec<_> = (1..=3).map(|number| sandbox("a", number)).collect();
    rows[0].tree = Some("t".to_owned());
    rows[1].tree = Some("other".to_owned());
    rows[2].tree = Some("t".to_owned());
    let mut another = sandbox("b", 4);
    another.tree = Some("t".to_owned());
    store.add_sandboxes(rows.clone(), &plenty()).await.unwrap();
    store.add_sandboxes(vec![another], &plenty()).await.unwrap();
    let found = store.sandboxes_of_tree(&tenant_id("a"), "t").await.unwrap();
    assert_eq!(found, [rows[2].clone(), rows[0].clone()]);
    assert!(store.sandboxes_of_tree(&tenant_id("a"), "none").await.unwrap().is_empty());
}

pub(crate) async fn removing_takes_repls_and_leaves_events(store: &dyn Store) {
    store.add_sandboxes(vec![sandbox("a", 1), sandbox("a", 2)], &plenty()).await.unwrap();
    for number in [1, 2] {
        store.add_repl(repl(number, "main", 1)).await.unwrap();
        store.add_event(event("a", number, 1)).await.unwrap();
    }
    assert!(store.remove_sandbox(&sandbox_id(1)).await.unwrap());
    assert!(store.repls(&sandbox_id(1)).await.unwrap().is_empty());
    assert_eq!(store.repls(&sandbox_id(2)).await.unwrap(), [repl(2, "main", 1)]);
    assert_eq!(store.events(&tenant_id("a"), &sandbox_id(1), 10).await.unwrap(), [event("a", 1, 1)]);
}
