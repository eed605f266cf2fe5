//! What a fork costs below the VMM: clone the RAM file on a real pool, capture 64 MB of changes over it, sum it, sync it.
//!
//! Every byte is compared. The times are printed (`--nocapture`) and bounded loosely, for a busy machine.
#![allow(unsafe_code, clippy::unwrap_used)]

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use memory::sums::MEMORY_CHUNK_BYTES;
use memory::{CaptureError, Checksums, GuestMemory, PAGE_BYTES, What, WriteOut, capture};
use storage::{Cloned, DataDir, Pool, PoolConfig, PoolSize, changed_ranges, clone_file};

const PAGE: usize = PAGE_BYTES as usize;
const LENGTH: usize = 256 << 20;
const CHANGED: usize = 64 << 20;

/// More than one to see how much the times vary.
const ROUNDS: usize = 1;

/// A private mapping of a file in this process, as a VMM has one.
struct Mapped(*mut u8);

impl Mapped {
    fn new(file: &File) -> Mapped {
        use rustix::mm::{MapFlags, ProtFlags};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a fresh mapping at an address the kernel picks; nothing else refers to it.
        let address =
            unsafe { rustix::mm::mmap(std::ptr::null_mut(), LENGTH, protection, MapFlags::PRIVATE, file, 0) };
        Mapped(address.unwrap().cast())
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping is of this length, lives as long as `self`, and is borrowed with it.
        unsafe { std::slice::from_raw_parts_mut(self.0, LENGTH) }
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: this value made the mapping and nothing borrows from it.
        unsafe { rustix::mm::munmap(self.0.cast(), LENGTH) }.unwrap();
    }
}

/// A pool in a temporary directory, unmounted at the end whatever happens.
struct Directory {
    directory: tempfile::TempDir,
}

impl Drop for Directory {
    fn drop(&mut self) {
        let pool = self.directory.path().join("pool");
        let _ = rustix::mount::unmount(pool, rustix::mount::UnmountFlags::DETACH);
    }
}

fn noise(seed: usize) -> Vec<u8> {
    (0..PAGE).map(|index| (index.wrapping_mul(2_654_435_761) >> 11) as u8 ^ seed as u8 | 1).collect()
}

fn check(pool: &Path, name: &str, change: impl Fn(&mut [u8])) {
    let base_path = pool.join("base");
    let base = File::open(&base_path).unwrap();
    let base_sums = Checksums::compute(&base, MEMORY_CHUNK_BYTES).unwrap();
    for round in 0..ROUNDS {
        let mut mapped = Mapped::new(&base);
        change(mapped.bytes());
        let memory = GuestMemory::find(std::process::id(), &base).unwrap();
        let target_path = pool.join("target");
        let began = Instant::now();
        let (target, how) = clone_file(&base_path, &target_path).unwrap();
        let clone_time = began.elapsed();
        assert_eq!(how, Cloned::Shared);
        let captured = capture(&memory, &target, WriteOut::Later).unwrap();

        let began = Instant::now();
        let sums = base_sums.updated(&target, &captured.ranges).unwrap();
        let sum_time = began.elapsed();
        let began = Instant::now();
        let (again, _) = clone_file(&target_path, &pool.join("again")).unwrap();
        let clone_dirty_time = began.elapsed();
        let began = Instant::now();
        target.sync_all().unwrap();
        let sync_time = began.elapsed();
        let began = Instant::now();
        let ranges = changed_ranges(&base, &target).unwrap();
        let extents_time = began.elapsed();
        eprintln!(
            "{name} {round}: {} MB in {} ranges, {} MB zeros: clone {clone_time:.1?}, scan {:.1?}, copy {:.1?}, \
             sums {sum_time:.1?}, clone of the dirty target {clone_dirty_time:.1?}, sync {sync_time:.1?}, \
             extents {extents_time:.1?} ({})",
            captured.bytes >> 20,
            captured.ranges.len(),
            captured.zero_bytes >> 20,
            captured.scan_time,
            captured.copy_time,
            ranges.len(),
        );
        let began = Instant::now();
        sums.verify(&again, What::All).unwrap();
        eprintln!("{name} {round}: first reading of a clone {:.1?}", began.elapsed());
        assert!(std::fs::read(&target_path).unwrap() == mapped.bytes(), "the captured bytes differ");
        assert_eq!(sums, Checksums::compute(&again, MEMORY_CHUNK_BYTES).unwrap());
        std::fs::remove_file(pool.join("again")).unwrap();
        std::fs::remove_file(target_path).unwrap();
    }
}

#[test]
fn capturing_64_mb_on_a_pool() {
    let directory = Directory { directory: tempfile::tempdir().unwrap() };
    let data_dir = DataDir::lock(directory.directory.path()).unwrap();
    let pool = Pool::open(&data_dir, &PoolConfig { size: PoolSize::Bytes(4 << 30) }).unwrap();
    let base = File::create_new(pool.path().join("base")).unwrap();
    base.set_len(LENGTH as u64).unwrap();
    // A booted guest: half of its RAM was never touched.
    for page in 0..LENGTH / PAGE / 2 {
        base.write_all_at(&noise(page), (page * PAGE) as u64).unwrap();
    }
    base.sync_all().unwrap();
    drop(base);

    check(pool.path(), "nothing", |_| {});
    check(pool.path(), "one piece", |bytes| {
        for page in bytes[CHANGED..2 * CHANGED].chunks_mut(PAGE) {
            page.copy_from_slice(&noise(7));
        }
    });
    check(pool.path(), "every fourth page", |bytes| {
        for page in bytes.chunks_mut(PAGE).step_by(LENGTH / CHANGED) {
            page.copy_from_slice(&noise(9));
        }
    });
    check(pool.path(), "pieces of 64 KiB", |bytes| {
        for piece in bytes.chunks_mut(16 * PAGE).step_by(LENGTH / CHANGED) {
            piece.chunks_mut(PAGE).for_each(|page| page.copy_from_slice(&noise(11)));
        }
    });
    check(pool.path(), "a third zeros", |bytes| {
        for (index, page) in bytes[CHANGED..2 * CHANGED].chunks_mut(PAGE).enumerate() {
            if index % 3 == 0 { page.fill(0) } else { page.copy_from_slice(&noise(13)) }
        }
    });
    check(pool.path(), "scattered zeros over data", |bytes| {
        for page in bytes[..CHANGED].chunks_mut(PAGE).step_by(2) {
            page.fill(0);
        }
    });

    // A full disk is said to be full. Capturing needs 64 MB, and a quarter of that is there.
    let filler = File::create_new(pool.path().join("filler")).unwrap();
    let mut filled = 0;
    for step in [16 << 20, 1 << 20] {
        while rustix::fs::fallocate(&filler, rustix::fs::FallocateFlags::empty(), filled, step).is_ok() {
            filled += step;
        }
    }
    filler.set_len(filled - CHANGED as u64 / 4).unwrap();
    let base = File::open(pool.path().join("base")).unwrap();
    let mut mapped = Mapped::new(&base);
    mapped.bytes()[..CHANGED].fill(3);
    let memory = GuestMemory::find(std::process::id(), &base).unwrap();
    let (target, _) = clone_file(&pool.path().join("base"), &pool.path().join("target")).unwrap();
    let captured = capture(&memory, &target, WriteOut::Later);
    assert!(matches!(captured, Err(CaptureError::NoSpace)), "{captured:?}");
    drop((base, filler, target, mapped));
    pool.close().unwrap();
}

/// Nor what it had before, beside what it was given and beside its holes.
#[test]
fn what_a_clone_was_given_is_never_taken_for_a_hole() {
    let directory = Directory { directory: tempfile::tempdir().unwrap() };
    let data_dir = DataDir::lock(directory.directory.path()).unwrap();
    let pool = Pool::open(&data_dir, &PoolConfig { size: PoolSize::Bytes(1 << 30) }).unwrap();
    let (base_path, clone_path) = (pool.path().join("base"), pool.path().join("clone"));
    let base = File::create_new(&base_path).unwrap();
    base.set_len(16 << 20).unwrap();
    // Data and holes by turns. XFS sets room aside around what is written over shared data, holes included.
    for at in (0..16 << 20).step_by(64 << 10) {
        base.write_all_at(&noise(at as usize).repeat(8), at).unwrap();
    }
    let base_sums = Checksums::compute(&File::open(&base_path).unwrap(), MEMORY_CHUNK_BYTES).unwrap();
    clone_file(&base_path, &clone_path).unwrap();
    let clone = File::options().read(true).write(true).open(&clone_path).unwrap();
    // The clone is not read: what is in memory is always seen.
    let mut expected = std::fs::read(&base_path).unwrap();
    let mut changed = Vec::new();
    for at in (0..16_u64 << 20).step_by(128 << 10) {
        for at in [at + (28 << 10), at + (40 << 10)] {
            let page = vec![(at >> 12) as u8 | 1; PAGE];
            clone.write_all_at(&page, at).unwrap();
            expected[at as usize..at as usize + PAGE].copy_from_slice(&page);
            changed.push(at..at + PAGE_BYTES);
        }
    }
    let updated = base_sums.updated(&clone, &changed).unwrap();
    updated.verify(&clone, What::All).unwrap();
    let mut blob = Vec::new();
    let index = memory::stream::pack(&clone, &mut blob).unwrap();
    let stored = expected.chunks(PAGE).filter(|page| page.iter().any(|byte| *byte != 0)).count();
    assert_eq!((index.length(), blob.len()), (16 << 20, stored * PAGE));
    assert_eq!(updated, Checksums::compute(&clone, MEMORY_CHUNK_BYTES).unwrap());
    drop((base, clone));
    pool.close().unwrap();
}
