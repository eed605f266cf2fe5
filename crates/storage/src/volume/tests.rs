//! Volumes made, killed half made, grown and deleted.

use std::process::Command;

use super::*;
use crate::kill_point::{arm, run_killed_at};

const VARIABLE: &str = "STORAGE_TEST_VOLUMES";
const MIB: u64 = 1 << 20;

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn a_volume_is_made_grown_and_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let store = VolumeStore::open(directory.path()).unwrap();
    let made = store.create("a1", "data", 64 * MIB, 7).unwrap();
    assert_eq!((made.bytes, made.writers, made.created_unix_ms), (64 * MIB, 0, 7));
    assert!(made.used_bytes < 8 * MIB, "{made:?} is not sparse");
    let checked = Command::new("/usr/sbin/e2fsck")
        .args(["-fn"])
        .arg(directory.path().join("a1/disk"))
        .output()
        .unwrap();
    assert!(checked.status.success(), "{checked:?}");
    assert!(String::from_utf8_lossy(&checked.stdout).contains("fcvol-data"), "{checked:?}");

    assert!(matches!(store.create("a1", "x", MIB, 0), Err(VolumeError::AlreadyExists { .. })));
    assert!(matches!(store.grow("a1", 63 * MIB), Err(VolumeError::WouldShrink { .. })));
    assert_eq!(store.grow("a1", 96 * MIB).unwrap().bytes, 96 * MIB);
    store.note_writer("a1").unwrap();
    let store = VolumeStore::open(directory.path()).unwrap();
    assert_eq!(store.get("a1").unwrap(), Volume { writers: 1, bytes: 96 * MIB, ..made });
    assert_eq!(store.list().unwrap(), ["a1"]);
    store.delete("a1").unwrap();
    for missing in [store.get("a1").map(drop), store.delete("a1"), store.open_readable("a1").map(drop)] {
        assert!(matches!(missing, Err(VolumeError::NotFound { .. })), "{missing:?}");
    }
    assert_eq!(names(directory.path()), [STAGING, TRASH]);
}

#[test]
fn an_id_is_plain_and_a_failure_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let store = VolumeStore::open(directory.path()).unwrap();
    for id in ["", "A", "a-b", "../a", "a/b", ".staging", &"a".repeat(41)] {
        assert!(matches!(store.create(id, "x", 64 * MIB, 0), Err(VolumeError::InvalidId)), "{id}");
        assert!(matches!(store.delete(id), Err(VolumeError::InvalidId)), "{id}");
    }
    // No file system fits.
    assert!(matches!(store.create("a", "x", 4096, 0), Err(VolumeError::Format(_))));
    assert_eq!(names(&directory.path().join(STAGING)), [""; 0]);
    assert_eq!(store.list().unwrap(), [""; 0]);
}

#[test]
fn a_volume_whose_description_is_gone_is_told_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let store = VolumeStore::open(directory.path()).unwrap();
    store.create("a", "x", 64 * MIB, 0).unwrap();
    fs::write(directory.path().join("a/volume.json"), "{").unwrap();
    let store = VolumeStore::open(directory.path()).unwrap();
    assert!(matches!(store.get("a"), Err(VolumeError::Damaged { .. })));
    assert_eq!(store.list().unwrap(), ["a"]);
}

#[test]
#[ignore = "run by the test below, which kills it"]
fn make_and_delete() {
    let Some(directory) = std::env::var_os(VARIABLE) else { return };
    let store = VolumeStore::open(Path::new(&directory)).unwrap();
    arm();
    store.create("new", "x", 16 * MIB, 0).unwrap();
    store.delete("old").unwrap();
}

#[test]
fn killed_anywhere_a_volume_is_whole_or_absent() {
    for border in 1.. {
        let directory = tempfile::tempdir().unwrap();
        VolumeStore::open(directory.path()).unwrap().create("old", "x", 16 * MIB, 0).unwrap();
        let died = run_killed_at(border, "volume::tests::make_and_delete", &[(VARIABLE, directory.path())]);
        let store = VolumeStore::open(directory.path()).unwrap();
        assert_eq!(names(&directory.path().join(STAGING)), [""; 0]);
        assert_eq!(names(&directory.path().join(TRASH)), [""; 0]);
        for id in store.list().unwrap() {
            assert_eq!(store.get(&id).unwrap().bytes, 16 * MIB, "{id} after border {border}");
        }
        if !died {
            assert_eq!(store.list().unwrap(), ["new"]);
            break;
        }
    }
}
