//! Snapshots made, killed half made, damaged and removed, on a real file system.

use super::*;
use crate::test_pool::TestPool;
use serde::Deserialize;

const VARIABLE: &str = "STORAGE_TEST_SNAPSHOTS";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct SnapshotMetadata {
    engine: String,
}

fn about() -> SnapshotMetadata {
    SnapshotMetadata { engine: "qemu".to_owned() }
}

fn stage(store: &SnapshotStore) -> Staged {
    let staged = store.stage().unwrap();
    for (name, bytes) in [("memory", &b"memory"[..]), ("memory.sums", b"sums"), ("devices", b"devices")] {
        std::fs::write(staged.path(name).unwrap(), bytes).unwrap();
    }
    staged
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Nothing but complete snapshots is there.
fn check_clean(directory: &Path, expected: &[&str]) {
    assert_eq!(names(&directory.join(STAGING)), [""; 0]);
    assert_eq!(names(&directory.join(TRASH)), [""; 0]);
    let mut all = vec![STAGING, TRASH];
    all.extend(expected);
    assert_eq!(names(directory), all);
}

#[test]
fn a_snapshot_is_made_read_and_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(directory.path()).unwrap();
    for (id, durability) in [("a1", Durability::Synced), ("b2", Durability::Unsynced)] {
        stage(&store).commit(id, about(), durability).unwrap();
        let snapshot = store.get::<SnapshotMetadata>(id).unwrap();
        assert_eq!(snapshot.manifest.about, about());
        assert_eq!(snapshot.read("devices").unwrap(), b"devices");
        assert_eq!(snapshot.read("memory.sums").unwrap(), b"sums");
        assert_eq!(snapshot.manifest.files["memory"], FileRecord { length: 6, digest: None });
        assert_eq!(std::fs::read(snapshot.path("memory").unwrap()).unwrap(), b"memory");
        assert!(
            matches!(snapshot.read("memory"), Err(SnapshotError::InvalidName { .. })),
            "its sums cover it"
        );
        assert!(matches!(snapshot.path("../a1/memory"), Err(SnapshotError::InvalidName { .. })));
    }
    assert_eq!(store.list().unwrap(), ["a1", "b2"]);
    assert_eq!(store.remove("a1").unwrap(), Removal::Removed);
    assert_eq!(store.remove("a1").unwrap(), Removal::Absent);
    assert!(matches!(store.get::<SnapshotMetadata>("a1"), Err(SnapshotError::NotFound { .. })));
    check_clean(directory.path(), &["b2"]);
}

#[test]
fn an_id_is_used_once_and_is_plain() {
    let directory = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(directory.path()).unwrap();
    stage(&store).commit("a", about(), Durability::Unsynced).unwrap();
    let again = stage(&store).commit("a", about(), Durability::Unsynced);
    assert!(matches!(again, Err(SnapshotError::AlreadyExists { .. })));
    for id in ["", "A", "a-b", "../a", "a/b", ".staging", &"a".repeat(41)] {
        assert!(matches!(store.get::<SnapshotMetadata>(id), Err(SnapshotError::InvalidId)), "{id}");
        assert!(matches!(store.remove(id), Err(SnapshotError::InvalidId)), "{id}");
        let committed = stage(&store).commit(id, about(), Durability::Unsynced);
        assert!(matches!(committed, Err(SnapshotError::InvalidId)), "{id}");
    }
    check_clean(directory.path(), &["a"]);
}

#[test]
fn what_is_not_committed_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(directory.path()).unwrap();
    drop(stage(&store));
    let staged = stage(&store);
    std::fs::create_dir(staged.path("directory").unwrap()).unwrap();
    let committed = staged.commit("a", about(), Durability::Synced);
    assert!(matches!(committed, Err(SnapshotError::InvalidName { .. })));
    let large = stage(&store).commit("a", "x".repeat(manifest::MANIFEST_BYTES_MAX), Durability::Synced);
    assert!(matches!(large, Err(SnapshotError::TooLarge)));
    check_clean(directory.path(), &[]);
}

#[test]
fn damage_has_a_name() {
    let directory = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(directory.path()).unwrap();
    let damage = |harm: &dyn Fn(&Path)| {
        store.remove("a").unwrap();
        stage(&store).commit("a", about(), Durability::Unsynced).unwrap();
        harm(&directory.path().join("a"));
        let read = store.get::<SnapshotMetadata>("a").and_then(|snapshot| snapshot.read("devices"));
        match read {
            Err(SnapshotError::Damaged { what, .. }) => what,
            other => panic!("{other:?}"),
        }
    };
    let file = |name: &str| name.to_owned();
    assert_eq!(
        damage(&|path| std::fs::write(path.join("memory"), b"mem").unwrap()),
        Damage::Length { name: file("memory"), expected: 6, actual: 3 }
    );
    assert_eq!(
        damage(&|path| std::fs::remove_file(path.join("memory")).unwrap()),
        Damage::Missing { name: file("memory") }
    );
    assert_eq!(
        damage(&|path| std::fs::write(path.join("devices"), b"devicez").unwrap()),
        Damage::Content { name: file("devices") }
    );
    assert_eq!(damage(&|path| std::fs::remove_file(path.join("manifest.json")).unwrap()), Damage::Manifest);
    assert_eq!(damage(&|path| std::fs::write(path.join("manifest.json"), b"{}").unwrap()), Damage::Manifest);
    assert_eq!(
        damage(&|path| {
            std::fs::remove_file(path.join("memory")).unwrap();
            std::os::unix::fs::symlink("/etc/hostname", path.join("memory")).unwrap();
        }),
        Damage::Missing { name: file("memory") }
    );
}

#[test]
fn an_unsynced_snapshot_does_not_outlive_its_boot() {
    let directory = tempfile::tempdir().unwrap();
    let store = SnapshotStore::open(directory.path()).unwrap();
    stage(&store).commit("a", about(), Durability::Unsynced).unwrap();
    let pretend_restart = |id: &str| {
        let path = directory.path().join(id).join(manifest::FILE);
        let mut manifest = store.get::<SnapshotMetadata>(id).unwrap().manifest;
        if let Persistence::ThisBoot { boot_id } = &mut manifest.persistence {
            *boot_id = "another".to_owned();
        }
        std::fs::write(path, manifest.encode().unwrap()).unwrap();
    };
    store.sync("a").unwrap();
    store.sync("a").unwrap();
    pretend_restart("a");
    assert_eq!(store.get::<SnapshotMetadata>("a").unwrap().manifest.persistence, Persistence::Synced);

    stage(&store).commit("b", about(), Durability::Unsynced).unwrap();
    pretend_restart("b");
    match store.get::<SnapshotMetadata>("b") {
        Err(SnapshotError::Damaged { what, .. }) => assert_eq!(what, Damage::NotSynced),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_full_disk_is_said_to_be_full_and_nothing_is_left() {
    let pool = TestPool::new();
    let directory = pool.path().join("snapshots");
    let store = SnapshotStore::open(&directory).unwrap();
    pool.fill_leaving(16 << 20);
    let staged = store.stage().unwrap();
    let error = std::fs::write(staged.path("memory").unwrap(), vec![7; 64 << 20]).unwrap_err();
    assert!(crate::is_no_space(&error), "{error}");
    drop(staged);
    check_clean(&directory, &[]);

    // What was written fits, the rest of the disk does not.
    let staged = stage(&store);
    let filler = File::create_new(pool.path().join("more")).unwrap();
    let block = [7; 4096];
    while rustix::io::write(&filler, &block).is_ok() {}
    let committed = staged.commit("a", "x".repeat(500_000), Durability::Synced);
    match committed {
        Err(SnapshotError::NoSpace) => check_clean(&directory, &[]),
        // The file system keeps a reserve that a small file may still get.
        Ok(_) => check_clean(&directory, &["a"]),
        other => panic!("{other:?}"),
    }
}

/// Kills a process at every border of `name` in turn; each time the store must be clean and hold what `check` says.
fn kill_everywhere(name: &str, borders_min: u32, check: impl Fn(&SnapshotStore)) {
    let mut border = 1;
    loop {
        let directory = tempfile::tempdir().unwrap();
        let killed = kill_point::run_killed_at(border, name, &[(VARIABLE, directory.path())]);
        let store = SnapshotStore::open(directory.path()).unwrap();
        assert_eq!(names(&directory.path().join(STAGING)), [""; 0]);
        assert_eq!(names(&directory.path().join(TRASH)), [""; 0]);
        check(&store);
        if !killed {
            break;
        }
        border += 1;
    }
    assert!(border > borders_min, "only {} borders were tried", border - 1);
}

fn check_complete_or_absent(store: &SnapshotStore) {
    for id in store.list().unwrap() {
        let snapshot = store.get::<SnapshotMetadata>(&id).unwrap();
        assert_eq!(snapshot.read("devices").unwrap(), b"devices");
        assert_eq!(std::fs::read(snapshot.path("memory").unwrap()).unwrap(), b"memory");
    }
}

#[test]
fn a_process_killed_while_committing_leaves_all_or_nothing() {
    kill_everywhere("snapshot::tests::commit", 7, check_complete_or_absent);
}

#[test]
fn a_process_killed_while_removing_leaves_all_or_nothing() {
    kill_everywhere("snapshot::tests::remove", 1, check_complete_or_absent);
}

#[test]
fn a_process_killed_while_syncing_leaves_it_usable() {
    kill_everywhere("snapshot::tests::sync", 1, |store| {
        assert_eq!(store.list().unwrap(), ["a"]);
        check_complete_or_absent(store);
    });
}

fn store_to_die_in() -> Option<SnapshotStore> {
    let path = std::env::var_os(VARIABLE)?;
    Some(SnapshotStore::open(Path::new(&path)).unwrap())
}

#[test]
#[ignore = "the process that is killed by a test above"]
fn commit() {
    let Some(store) = store_to_die_in() else { return };
    kill_point::arm();
    stage(&store).commit("a", about(), Durability::Synced).unwrap();
}

#[test]
#[ignore = "the process that is killed by a test above"]
fn remove() {
    let Some(store) = store_to_die_in() else { return };
    stage(&store).commit("a", about(), Durability::Synced).unwrap();
    kill_point::arm();
    store.remove("a").unwrap();
}

#[test]
#[ignore = "the process that is killed by a test above"]
fn sync() {
    let Some(store) = store_to_die_in() else { return };
    stage(&store).commit("a", about(), Durability::Unsynced).unwrap();
    kill_point::arm();
    store.sync("a").unwrap();
}
