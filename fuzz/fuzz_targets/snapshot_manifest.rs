//! `manifest.json` of a snapshot, as it lies on a disk: damaged and, with a digest that fits, hostile.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use fuzz::seeds;
use libfuzzer_sys::fuzz_target;
use storage::SnapshotStore;
use storage::snapshot::Digest;

struct Place {
    store: SnapshotStore,
    manifest: PathBuf,
    _folder: tempfile::TempDir,
}

static PLACE: LazyLock<Place> = LazyLock::new(|| {
    let folder = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let store = SnapshotStore::open(folder.path()).expect("a store");
    std::fs::create_dir(folder.path().join("abc")).expect("a folder");
    Place { store, manifest: folder.path().join("abc/manifest.json"), _folder: folder }
});

fn check(bytes: &[u8]) {
    std::fs::write(&PLACE.manifest, bytes).expect("write the manifest");
    let _ = PLACE.store.get::<node::SnapshotMetadata>("abc");
    if let Ok(snapshot) = PLACE.store.get::<serde_json::Value>("abc") {
        let _ = snapshot.path("memory");
    }
}

fuzz_target!(
    init: seeds(|| {
        let plain = r#"{"format":1,"id":"abc","persistence":"synced","files":{},"about":{}}"#;
        let file = r#"{"format":1,"id":"abc","persistence":{"this_boot":{"boot_id":"x"}},"files":{"disk":{"length":1,"digest":null}},"about":[]}"#;
        check(format!("{{\"digest\":\"{}\",\"manifest\":{plain}}}", Digest::of(plain.as_bytes())).as_bytes());
        assert!(PLACE.store.get::<serde_json::Value>("abc").is_ok(), "the seed is a manifest");
        let sealed = format!("{{\"digest\":\"{}\",\"manifest\":{plain}}}", Digest::of(plain.as_bytes()));
        vec![plain.into(), file.into(), sealed.into()]
    }),
    |data: &[u8]| {
        check(data);
        let mut sealed = format!("{{\"digest\":\"{}\",\"manifest\":", Digest::of(data)).into_bytes();
        sealed.extend(data);
        sealed.push(b'}');
        check(&sealed);
    }
);
