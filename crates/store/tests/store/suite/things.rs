//! Snapshots, volumes, REPL contexts and the preview key.

use domain::{SnapshotId, VolumeId};
use store::{PreviewKey, ProvisionState, Quota, Store};

use super::{exists, limit};
use crate::sample::{plenty, repl, sandbox_id, snapshot, tenant_id, volume};

pub(crate) async fn snapshots_are_kept(store: &dyn Store) {
    let mut child = snapshot("a", 2, 20);
    child.parent = Some(SnapshotId::parse("n1").unwrap());
    child.size_bytes = u64::MAX;
    let rows = [snapshot("a", 1, 10), child.clone(), snapshot("b", 3, 10)];
    for row in rows.clone() {
        store.add_snapshot(row).await.unwrap();
    }
    let [first, second, others] = rows;
    assert!(exists(store.add_snapshot(first.clone()).await));
    let a = tenant_id("a");
    assert_eq!(store.snapshots(&a, None).await.unwrap(), [second.clone(), first.clone()]);
    assert_eq!(store.snapshots(&a, Some(&sandbox_id(10))).await.unwrap(), vec![first.clone()]);
    assert_eq!(store.snapshot(&child.id).await.unwrap(), Some(child));
    assert_eq!(store.all_snapshots().await.unwrap(), [others, second, first.clone()]);
    assert!(store.remove_snapshot(&first.id).await.unwrap());
    assert!(!store.remove_snapshot(&first.id).await.unwrap());
    assert_eq!(store.snapshot(&first.id).await.unwrap(), None);
}

pub(crate) async fn volumes_have_unique_names(store: &dyn Store) {
    let (a, b) = (tenant_id("a"), tenant_id("b"));
    store.add_volume(volume("a", 1, "data"), &plenty()).await.unwrap();
    store.add_volume(volume("b", 2, "data"), &plenty()).await.unwrap();
    store.add_volume(volume("a", 3, "more"), &plenty()).await.unwrap();
    let nothing = Quota { volumes: 0, ..plenty() };
    assert!(exists(store.add_volume(volume("a", 4, "data"), &nothing).await));
    assert_eq!(store.volume(&b, "data").await.unwrap(), Some(volume("b", 2, "data")));
    assert_eq!(store.volume(&b, "more").await.unwrap(), None);
    assert_eq!(store.volumes(&a).await.unwrap(), [volume("a", 3, "more"), volume("a", 1, "data")]);
    assert_eq!(store.all_volumes().await.unwrap().len(), 3);

    let id = volume("a", 1, "data").id;
    assert!(store.change_volume(&id, 200, ProvisionState::Deleting).await.unwrap());
    let changed = store.volume(&a, "data").await.unwrap().unwrap();
    assert_eq!((changed.size_mib, changed.standing), (200, ProvisionState::Deleting));
    assert!(store.remove_volume(&id).await.unwrap());
    assert!(!store.remove_volume(&id).await.unwrap());
    assert!(!store.change_volume(&VolumeId::parse("v9").unwrap(), 1, ProvisionState::Live).await.unwrap());
    store.add_volume(volume("a", 4, "data"), &plenty()).await.unwrap();
}

pub(crate) async fn volumes_have_limits(store: &dyn Store) {
    let quota = Quota { volumes: 2, volume_mib: 250, ..plenty() };
    store.add_volume(volume("a", 1, "one"), &quota).await.unwrap();
    let mut large = volume("a", 2, "two");
    for size_mib in [151, u64::MAX] {
        large.size_mib = size_mib;
        assert_eq!(limit(store.add_volume(large.clone(), &quota).await), Some(("MiB of volumes", 250)));
    }
    large.size_mib = 150;
    store.add_volume(large, &quota).await.unwrap();
    let one = volume("a", 1, "one").id;
    for size_mib in [101, u64::MAX] {
        assert_eq!(limit(store.grow_volume(&one, size_mib, &quota).await), Some(("MiB of volumes", 250)));
    }
    assert!(store.grow_volume(&one, 50, &quota).await.unwrap(), "a smaller size changes nothing");
    let size = async || store.volume(&tenant_id("a"), "one").await.unwrap().unwrap().size_mib;
    assert_eq!(size().await, 100);
    assert!(store.grow_volume(&one, 120, &plenty()).await.unwrap());
    assert_eq!(size().await, 120);
    assert!(store.change_volume(&one, 100, ProvisionState::Live).await.unwrap());
    assert!(!store.grow_volume(&VolumeId::parse("v9").unwrap(), 1, &quota).await.unwrap());
    let none = Quota { volumes: 2, ..plenty() };
    assert_eq!(limit(store.add_volume(volume("a", 3, "three"), &none).await), Some(("volumes", 2)));
    store.add_volume(volume("b", 3, "three"), &quota).await.unwrap();
    assert_eq!(store.volumes(&tenant_id("a")).await.unwrap().len(), 2);
}

pub(crate) async fn repls_are_kept(store: &dyn Store) {
    for row in [repl(1, "x", 1), repl(1, "y", 2), repl(2, "x", 3)] {
        store.add_repl(row).await.unwrap();
    }
    assert!(exists(store.add_repl(repl(1, "x", 9)).await));
    let mut changed = repl(1, "x", 1);
    changed.cells = 7;
    changed.handle = "{\"pid\":1}".to_owned();
    assert!(store.change_repl(changed.clone()).await.unwrap());
    assert!(!store.change_repl(repl(1, "z", 1)).await.unwrap());
    let sandbox = sandbox_id(1);
    assert_eq!(store.repls(&sandbox).await.unwrap(), [repl(1, "y", 2), changed.clone()]);
    assert_eq!(store.repl(&sandbox, "x").await.unwrap(), Some(changed));
    assert!(store.remove_repl(&sandbox, "x").await.unwrap());
    assert!(!store.remove_repl(&sandbox, "x").await.unwrap());
    assert_eq!(store.repl(&sandbox, "x").await.unwrap(), None);
    assert_eq!(store.repl(&sandbox_id(2), "x").await.unwrap(), Some(repl(2, "x", 3)));
}

pub(crate) async fn the_first_preview_key_stays(store: &dyn Store) {
    assert_eq!(store.preview_key(PreviewKey([1; 32])).await.unwrap(), PreviewKey([1; 32]));
    assert_eq!(store.preview_key(PreviewKey([2; 32])).await.unwrap(), PreviewKey([1; 32]));
}
