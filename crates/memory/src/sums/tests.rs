//! Checksums of real sparse files, against what a plain reading of the same bytes gives.

use super::*;
use proptest::prelude::*;

fn file_of(length: u64, writes: &[(u64, Vec<u8>)]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(length).unwrap();
    for (offset, bytes) in writes {
        let end = length.min(offset + bytes.len() as u64);
        file.write_all_at(&bytes[..end.saturating_sub(*offset) as usize], *offset).unwrap();
    }
    file
}

/// Checksums by reading everything, one chunk after the other.
fn plain(file: &File, chunk_bytes: u32) -> Vec<u64> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes.chunks(chunk_bytes as usize).map(sum_of).collect()
}

fn writes(length: u64) -> impl Strategy<Value = Vec<(u64, Vec<u8>)>> {
    proptest::collection::vec((0..length, proptest::collection::vec(0_u8..3, 1..20_000)), 0..8)
}

const LENGTH: u64 = 300_001;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_sparse_file_sums_as_its_bytes_do(writes in writes(LENGTH), shift in 9_u32..=16) {
        let file = file_of(LENGTH, &writes);
        let sums = Checksums::compute(&file, 1 << shift).unwrap();
        prop_assert_eq!(&sums.sums, &plain(&file, 1 << shift));
        sums.verify(&file, What::All).unwrap();
    }

    #[test]
    fn updating_equals_computing_anew(before in writes(LENGTH), after in writes(LENGTH), length in 0..2 * LENGTH) {
        let file = file_of(LENGTH, &before);
        let base = Checksums::compute(&file, 4096).unwrap();
        file.set_len(length).unwrap();
        let mut ranges = Vec::new();
        for (offset, bytes) in &after {
            let end = length.min(offset + bytes.len() as u64);
            if *offset < end {
                file.write_all_at(&bytes[..(end - offset) as usize], *offset).unwrap();
                ranges.push(*offset..end);
            }
        }
        let updated = base.updated(&file, &ranges).unwrap();
        let computed = Checksums::compute(&file, 4096).unwrap();
        prop_assert_eq!(&updated, &computed);
        updated.verify(&file, What::All).unwrap();

        let differing = base.changed_between(&updated);
        prop_assert_eq!(base.updated(&file, &differing).unwrap(), computed);
    }

    #[test]
    fn a_flipped_bit_is_found_where_it_is(writes in writes(LENGTH), at in 0..LENGTH, bit in 0_u32..8) {
        let file = file_of(LENGTH, &writes);
        let sums = Checksums::compute(&file, 4096).unwrap();
        let mut byte = [0; 1];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ (1_u8 << bit)], at).unwrap();
        let expected = at / 4096 * 4096;
        let byte_alone = std::slice::from_ref(&(at..at + 1)).to_vec();
        for what in [What::All, What::Ranges(&byte_alone)] {
            match sums.verify(&file, what) {
                Err(VerifyError::Damaged { offset, .. }) => prop_assert_eq!(offset, expected),
                other => prop_assert!(false, "{other:?}"),
            }
        }
        let elsewhere = [0..expected, expected + 4096..LENGTH];
        sums.verify(&file, What::Ranges(&elsewhere)).unwrap();
    }
}

#[test]
fn lost_data_and_a_changed_length_are_noticed() {
    let file = file_of(LENGTH, &[(8192, vec![1; 100])]);
    let sums = Checksums::compute(&file, 4096).unwrap();
    assert_eq!(sums.data_bytes(), 4096);
    let empty = file_of(LENGTH, &[]);
    assert!(matches!(
        sums.verify(&empty, What::All),
        Err(VerifyError::Damaged { offset: 8192, length: 4096 })
    ));
    sums.verify(&empty, What::Ranges(&[0..8192, 12288..u64::MAX])).unwrap();
    file.set_len(LENGTH - 1).unwrap();
    assert!(matches!(sums.verify(&file, What::All), Err(VerifyError::Length { .. })));
}

#[test]
fn impossible_chunks_are_refused() {
    let file = file_of(10, &[]);
    for chunk_bytes in [0, 1, 4095, 2 << 20] {
        assert!(
            matches!(Checksums::compute(&file, chunk_bytes), Err(SumError::ChunkBytes { .. })),
            "{chunk_bytes}"
        );
    }
}

#[test]
fn hashing_keeps_up_with_memory() {
    let length = 256_u64 << 20;
    let file = tempfile::tempfile().unwrap();
    let block: Vec<u8> =
        (0..1 << 20).map(|index: u32| (index.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for offset in (0..length).step_by(block.len()) {
        file.write_all_at(&block, offset).unwrap();
    }
    for chunk_bytes in [MEMORY_CHUNK_BYTES, DISK_CHUNK_BYTES] {
        let began = std::time::Instant::now();
        let sums = Checksums::compute(&file, chunk_bytes).unwrap();
        let seconds = began.elapsed().as_secs_f64();
        println!("sums of {chunk_bytes} bytes: {:.2} GB/s", length as f64 / seconds / 1e9);
        assert_eq!(sums.data_bytes(), length);
    }
    let sparse = tempfile::tempfile().unwrap();
    sparse.set_len(64 << 30).unwrap();
    let began = std::time::Instant::now();
    let sums = Checksums::compute(&sparse, DISK_CHUNK_BYTES).unwrap();
    println!("sums of a hole of 64 GiB: {:?}", began.elapsed());
    assert_eq!(sums.data_bytes(), 0);
}
