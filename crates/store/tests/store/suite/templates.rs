//! Builds and the templates that come of them.

use store::{BUILDS_PER_TENANT_MAX, BuildChange, BuildRow, BuildStatus, Published, Quota, Store};

use super::{exists, limit};
use crate::sample::{build, build_id, plenty, template, tenant_id};

async fn read(store: &dyn Store, number: usize) -> BuildRow {
    store.build(&tenant_id("a"), &build_id(number)).await.unwrap().unwrap()
}

pub(crate) async fn builds_are_done_in_their_order(store: &dyn Store) {
    for row in [build("a", 2, "two"), build("a", 1, "one"), build("b", 3, "one")] {
        store.add_build(row, &plenty()).await.unwrap();
    }
    let ids = |rows: Vec<BuildRow>| rows.into_iter().map(|row| row.id).collect::<Vec<_>>();
    assert_eq!(ids(store.builds_to_do().await.unwrap()), [build_id(2), build_id(1), build_id(3)]);
    assert_eq!(ids(store.builds(&tenant_id("a")).await.unwrap()), [build_id(2), build_id(1)]);
    assert_eq!(store.build(&tenant_id("b"), &build_id(1)).await.unwrap(), None, "somebody else's");

    let began = BuildChange { status: Some(BuildStatus::Running), attempts: Some(1), started_ms: Some(50) };
    assert!(store.change_build(&build_id(1), began.clone()).await.unwrap());
    let again = BuildChange { attempts: Some(2), started_ms: Some(60), ..BuildChange::default() };
    assert!(store.change_build(&build_id(1), again).await.unwrap());
    let row = read(store, 1).await;
    assert_eq!((row.status, row.attempts, row.started_ms), (BuildStatus::Running, 2, Some(50)));

    assert!(store.fail_build(&build_id(1), "cancelled", 70).await.unwrap());
    assert!(!store.fail_build(&build_id(1), "too late", 71).await.unwrap());
    assert!(!store.change_build(&build_id(1), began).await.unwrap());
    let row = read(store, 1).await;
    assert_eq!((row.status, row.error.as_deref()), (BuildStatus::Failed, Some("cancelled")));
    assert_eq!(row.ended_ms, Some(70));
    assert_eq!(store.builds_to_do().await.unwrap().len(), 2);
    assert_eq!(store.all_builds().await.unwrap().len(), 3);
    assert!(!store.fail_build(&build_id(9), "not there", 1).await.unwrap());
}

pub(crate) async fn a_template_takes_the_place_of_another(store: &dyn Store) {
    let a = tenant_id("a");
    store.add_build(build("a", 1, "mine"), &plenty()).await.unwrap();
    assert!(exists(store.add_build(build("a", 2, "mine"), &plenty()).await), "one is being built");
    store.add_build(build("b", 2, "mine"), &plenty()).await.unwrap();
    let first = template("a", 1, "mine");
    assert_eq!(store.publish_template(first.clone()).await.unwrap(), Published::Yes(None));
    assert_eq!(store.publish_template(first.clone()).await.unwrap(), Published::Ended);
    assert!(exists(store.add_build(build("a", 3, "mine"), &plenty()).await), "it is there");
    let row = read(store, 1).await;
    assert_eq!((row.status, row.bytes, row.ended_ms), (BuildStatus::Done, Some(u64::MAX), Some(1001)));

    let again = BuildRow { replace: true, ..build("a", 3, "mine") };
    store.add_build(again, &plenty()).await.unwrap();
    assert_eq!(store.template(&a, "mine").await.unwrap(), Some(first.clone()), "until the other is there");
    let second = template("a", 3, "mine");
    assert_eq!(store.publish_template(second.clone()).await.unwrap(), Published::Yes(Some(first)));
    assert_eq!(store.templates(&a).await.unwrap(), vec![second.clone()]);
    assert_eq!(store.template(&tenant_id("b"), "mine").await.unwrap(), None);

    let cancelled = BuildRow { replace: true, ..build("a", 4, "mine") };
    store.add_build(cancelled, &plenty()).await.unwrap();
    assert!(store.fail_build(&build_id(4), "cancelled", 5).await.unwrap());
    assert_eq!(store.publish_template(template("a", 4, "mine")).await.unwrap(), Published::Ended);
    assert_eq!(store.all_templates().await.unwrap(), vec![second.clone()]);
    assert_eq!(store.remove_template(&a, "mine").await.unwrap(), Some(second));
    assert_eq!(store.remove_template(&a, "mine").await.unwrap(), None);
}

pub(crate) async fn builds_and_templates_have_limits(store: &dyn Store) {
    let quota = Quota { templates: 2, builds: 2, ..plenty() };
    store.add_build(build("a", 1, "one"), &quota).await.unwrap();
    store.add_build(build("a", 2, "two"), &quota).await.unwrap();
    let third = BuildRow { replace: true, ..build("a", 3, "two") };
    assert_eq!(limit(store.add_build(third.clone(), &quota).await), Some(("builds at once", 2)));
    store.publish_template(template("a", 1, "one")).await.unwrap();
    assert_eq!(limit(store.add_build(build("a", 4, "four"), &quota).await), Some(("templates", 2)));
    store.add_build(third, &quota).await.unwrap();
    store.add_build(build("b", 4, "four"), &quota).await.unwrap();
}

pub(crate) async fn only_the_newest_builds_stay(store: &dyn Store) {
    store.add_build(build("a", 0, "kept"), &plenty()).await.unwrap();
    for number in 1..=BUILDS_PER_TENANT_MAX + 2 {
        store.add_build(build("a", number, "mine"), &plenty()).await.unwrap();
        assert!(store.fail_build(&build_id(number), "no", 1).await.unwrap());
    }
    store.add_build(build("a", 9999, "mine"), &plenty()).await.unwrap();
    let left = store.builds(&tenant_id("a")).await.unwrap();
    assert_eq!(left.len(), BUILDS_PER_TENANT_MAX + 2, "with the two that have not ended");
    assert_eq!(store.build(&tenant_id("a"), &build_id(2)).await.unwrap(), None);
    assert_eq!(read(store, 0).await.status, BuildStatus::Queued);
}
