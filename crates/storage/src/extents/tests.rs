//! Extents of real clones on a real pool, against a reading of every byte.
#![allow(clippy::single_range_in_vec_init)] // lists of ranges are meant here

use super::*;
use crate::clone::clone_file;
use crate::test_pool::TestPool;
use memory::Checksums;
use memory::sums::DISK_CHUNK_BYTES;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Something that happens to a disk image.
#[derive(Debug, Clone)]
enum Change {
    Write { at: u64, bytes: usize, value: u8 },
    Punch { at: u64, bytes: u64 },
    Preallocate { at: u64, bytes: u64 },
    Resize { length: u64 },
    Sync,
}

const LENGTH: u64 = 4 << 20;

fn change() -> impl Strategy<Value = Change> {
    let at = 0..LENGTH + LENGTH / 4;
    prop_oneof![
        4 => (at.clone(), 1..200_000_usize, any::<u8>()).prop_map(|(at, bytes, value)| Change::Write { at, bytes, value }),
        2 => (at.clone(), 1..200_000_u64).prop_map(|(at, bytes)| Change::Punch { at, bytes }),
        1 => (at.clone(), 1..200_000_u64).prop_map(|(at, bytes)| Change::Preallocate { at, bytes }),
        1 => (1..LENGTH * 5 / 4).prop_map(|length| Change::Resize { length }),
        1 => Just(Change::Sync),
    ]
}

fn apply(file: &File, change: &Change) {
    use rustix::fs::{FallocateFlags, fallocate};
    match *change {
        Change::Write { at, bytes, value } => file.write_all_at(&vec![value; bytes], at).unwrap(),
        Change::Punch { at, bytes } => {
            fallocate(file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, at, bytes).unwrap();
        }
        Change::Preallocate { at, bytes } => fallocate(file, FallocateFlags::empty(), at, bytes).unwrap(),
        Change::Resize { length } => file.set_len(length).unwrap(),
        Change::Sync => file.sync_all().unwrap(),
    }
}

fn bytes_of(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

/// Every byte that differs lies in a range that is reported.
fn check_covers(base: &File, changed: &File, ranges: &[Range<u64>]) {
    let (old, new) = (bytes_of(base), bytes_of(changed));
    let covered = |at: usize| ranges.iter().any(|range| range.contains(&(at as u64)));
    for at in (0..old.len().max(new.len())).step_by(64) {
        let part = |bytes: &[u8]| bytes.get(at..bytes.len().min(at + 64)).map(<[u8]>::to_vec);
        if part(&old) != part(&new) {
            let differs = (at..at + 64).find(|at| old.get(*at) != new.get(*at)).unwrap();
            assert!(covered(differs), "byte {differs} differs and is not in {ranges:?}");
        }
    }
    assert!(ranges.is_sorted_by(|one, next| one.end < next.start), "{ranges:?}");
}

fn fresh_files(directory: &Path, before: &[Change], after: &[Change]) -> (File, File) {
    for name in ["base", "clone"] {
        let _ = std::fs::remove_file(directory.join(name));
    }
    let base = File::options().read(true).write(true).create_new(true).open(directory.join("base")).unwrap();
    base.set_len(LENGTH).unwrap();
    before.iter().for_each(|change| apply(&base, change));
    let (clone, _) = clone_file(&directory.join("base"), &directory.join("clone")).unwrap();
    after.iter().for_each(|change| apply(&clone, change));
    (base, clone)
}

#[test]
fn sums_updated_by_extents_equal_sums_of_all_bytes() {
    let pool = TestPool::new();
    let changes = || proptest::collection::vec(change(), 0..8);
    let mut runner = TestRunner::new(ProptestConfig::with_cases(96));
    let result = runner.run(&(changes(), changes()), |(before, after)| {
        let (base, clone) = fresh_files(pool.path(), &before, &after);
        let base_sums = Checksums::compute(&base, DISK_CHUNK_BYTES).unwrap();
        let ranges = changed_ranges(&base, &clone).unwrap();
        let updated = base_sums.updated(&clone, &ranges).unwrap();
        prop_assert_eq!(updated, Checksums::compute(&clone, DISK_CHUNK_BYTES).unwrap());
        check_covers(&base, &clone, &ranges);
        check_covers(&clone, &base, &changed_ranges(&clone, &base).unwrap());
        Ok(())
    });
    result.unwrap();
}

#[test]
fn only_what_changed_is_reported_and_paid_for() {
    let pool = TestPool::new();
    let filled = Change::Write { at: 0, bytes: LENGTH as usize, value: 1 };
    let (base, clone) = fresh_files(pool.path(), &[filled], &[]);
    assert_eq!(changed_ranges(&base, &clone).unwrap(), []);
    assert_eq!((unique_bytes(&base).unwrap(), unique_bytes(&clone).unwrap()), (0, 0));

    // Without a sync XFS would still show the clone the block of its base.
    clone.write_all_at(&[2; 8192], 1 << 20).unwrap();
    let page = 4096;
    assert_eq!(changed_ranges(&base, &clone).unwrap(), [(1 << 20)..(1 << 20) + 2 * page]);
    assert_eq!(unique_bytes(&clone).unwrap(), 2 * page);
    assert_eq!(unique_bytes(&base).unwrap(), 2 * page);
    let mut joint = JointBytes::default();
    let counted = [&base, &clone, &base].map(|file| joint.add(file).unwrap());
    assert_eq!(counted, [LENGTH.next_multiple_of(page), 2 * page, 0]);

    apply(&clone, &Change::Punch { at: 0, bytes: page });
    apply(&clone, &Change::Resize { length: LENGTH + 10 });
    let expected = [0..page, (1 << 20)..(1 << 20) + 2 * page, LENGTH..LENGTH + 10];
    assert_eq!(changed_ranges(&base, &clone).unwrap(), expected);
    assert_eq!(changed_ranges(&clone, &base).unwrap(), expected);
}

#[test]
fn what_was_counted_is_not_counted_again() {
    let ranges = prop::collection::vec((0u64..200, 1u64..40), 1..40);
    let check = |ranges: Vec<(u64, u64)>| {
        let (mut joint, mut seen) = (JointBytes::default(), std::collections::BTreeSet::new());
        for (start, length) in ranges {
            let fresh = (start..start + length).filter(|block| seen.insert(*block)).count() as u64;
            prop_assert_eq!(joint.count(start..start + length), fresh);
        }
        let covered: u64 = joint.counted.iter().map(|(start, end)| end - start).sum();
        prop_assert_eq!(covered, seen.len() as u64);
        Ok(())
    };
    TestRunner::default().run(&ranges, check).unwrap();
}

#[test]
fn files_in_many_pieces_are_walked_to_their_end() {
    let pool = TestPool::new();
    let (base, clone) =
        fresh_files(pool.path(), &[Change::Write { at: 0, bytes: LENGTH as usize, value: 1 }], &[]);
    let expected: Vec<Range<u64>> =
        (0..LENGTH / 8192).map(|index| index * 8192..index * 8192 + 4096).collect();
    for range in &expected {
        clone.write_all_at(&[3; 4096], range.start).unwrap();
    }
    assert!(expected.len() > memory::extents::EXTENTS_PER_CALL);
    assert_eq!(changed_ranges(&base, &clone).unwrap(), expected);
    assert_eq!(unique_bytes(&clone).unwrap(), expected.len() as u64 * 4096);
}

#[test]
fn where_nothing_can_be_told_everything_changed() {
    let directory = tempfile::Builder::new().tempdir_in("/dev/shm").unwrap();
    let (base, clone) = fresh_files(directory.path(), &[Change::Write { at: 0, bytes: 4096, value: 1 }], &[]);
    assert_eq!(changed_ranges(&base, &clone).unwrap(), [0..LENGTH]);
    assert_eq!(unique_bytes(&base).unwrap(), 4096);
    let mut joint = JointBytes::default();
    assert_eq!([&base, &clone].map(|file| joint.add(file).unwrap()), [4096, 4096]);
    let pool = TestPool::new();
    let (elsewhere, _) = fresh_files(pool.path(), &[], &[]);
    assert_eq!(changed_ranges(&base, &elsewhere).unwrap(), [0..LENGTH]);
    base.set_len(0).unwrap();
    clone.set_len(0).unwrap();
    assert_eq!(changed_ranges(&base, &clone).unwrap(), []);
}
