//! What is packed comes back, and nothing else does.

use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};

use proptest::prelude::*;
use sha2::{Digest as _, Sha256};

use super::*;

const PAGE: usize = PAGE_BYTES as usize;

/// A file of this length with these bytes at these offsets.
fn file(length: u64, writes: &[(u64, Vec<u8>)]) -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(length).unwrap();
    for (offset, bytes) in writes {
        file.write_all_at(bytes, *offset).unwrap();
    }
    file
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; file.metadata().unwrap().len() as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

fn chunks(index: &Index, blob: &[u8]) -> Vec<Chunk> {
    let bytes = |number| {
        index
            .blob_range(number)
            .map_or(Vec::new(), |range| blob[range.start as usize..range.end as usize].to_vec())
    };
    (0..index.chunk_count()).map(|number| index.verified(number, bytes(number)).unwrap()).collect()
}

/// Packs a file, and checks that page by page and as a whole it is the same afterwards.
fn there_and_back(original: &File) -> (Index, Vec<u8>) {
    let mut blob = Vec::new();
    let index = pack(original, &mut blob).unwrap();
    assert_eq!(index.packed_length(), blob.len() as u64);
    assert_eq!(Index::decode(&index.encode()).as_ref(), Ok(&index));
    let expected = content(original);
    let copy = file(index.length(), &[]);
    for (number, chunk) in chunks(&index, &blob).iter().enumerate() {
        let range = index.file_range(number as u32);
        let mut bytes = expected[range.start as usize..range.end as usize].to_vec();
        assert_eq!(chunk.length() as usize, bytes.len());
        bytes.resize(bytes.len().next_multiple_of(PAGE), 0);
        for (page, bytes) in bytes.chunks(PAGE).enumerate() {
            let zero = bytes.iter().all(|byte| *byte == 0);
            assert_eq!(chunk.page(page), (!zero).then_some(bytes), "page {page} of chunk {number}");
        }
        assert_eq!(chunk.page(bytes.len() / PAGE), None);
        unpack(chunk, number as u32, &copy).unwrap();
    }
    assert_eq!(copy.metadata().unwrap().len(), index.length());
    assert!(content(&copy) == expected, "the files differ");
    (index, blob)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_file_comes_back(
        length in 0..12_u64 << 20,
        writes in prop::collection::vec((0..12_u64 << 20, 1..40_000_usize, 0..3_u8), 0..12),
    ) {
        let writes: Vec<(u64, Vec<u8>)> = writes
            .into_iter()
            .filter(|(offset, ..)| *offset < length)
            .map(|(offset, bytes, value)| (offset, vec![value; bytes.min((length - offset) as usize)]))
            .collect();
        there_and_back(&file(length, &writes));
    }

    #[test]
    fn a_flipped_bit_of_an_index_is_an_error(at in any::<prop::sample::Index>(), bit in 0_u32..8) {
        let mut bytes = small_index().encode();
        let at = at.index(bytes.len());
        bytes[at] ^= 1_u8 << bit;
        prop_assert!(Index::decode(&bytes).is_err());
    }

    #[test]
    fn a_truncated_or_grown_index_is_an_error(at in any::<prop::sample::Index>(), more in 1..400_usize) {
        let mut bytes = small_index().encode();
        prop_assert!(Index::decode(&bytes[..at.index(bytes.len())]).is_err());
        bytes.resize(bytes.len() + more, 0);
        prop_assert!(Index::decode(&bytes).is_err());
    }

    #[test]
    fn any_index_with_a_right_digest_decodes_to_an_answer(
        length in prop_oneof![Just(0_u64), Just(5000), Just(CHUNK_BYTES + 1), Just(LENGTH_MAX), any::<u64>()],
        count in prop_oneof![Just(0_u64), Just(1), Just(2), any::<u64>()],
        body in prop::collection::vec(0..3_u8, 0..400),
    ) {
        let bytes = sealed(length, count, &body);
        if let Ok(index) = Index::decode(&bytes) {
            prop_assert_eq!(index.encode(), bytes);
        }
    }
}

fn small_index() -> Index {
    pack(&file(9 << 20, &[(4096, vec![1; 10_000]), (8 << 20, vec![2; 1 << 20])]), &mut Vec::new()).unwrap()
}

fn sealed(length: u64, count: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = b"PIDX".to_vec();
    for word in [1_u32, CHUNK_BYTES as u32, PAGE_BYTES as u32] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(length.to_le_bytes());
    bytes.extend(count.to_le_bytes());
    bytes.extend(body);
    let digest = Sha256::digest(&bytes);
    bytes.extend(digest);
    bytes
}

#[test]
fn zeros_cost_nothing() {
    let (index, blob) =
        there_and_back(&file(10 << 20, &[(5 << 20, vec![0; 1 << 20]), (6 << 20, vec![7; 1])]));
    assert_eq!(blob.len(), PAGE);
    assert_eq!((index.blob_range(0), index.blob_range(1), index.blob_range(2)), (None, Some(0..4096), None));
    assert_eq!(index.pages(1).iter().collect::<Vec<_>>(), [512]);
    assert_eq!((index.digest(0), index.digest(1)), (None, Some(Digest::of(&blob))));
}

#[test]
fn an_empty_file_and_one_of_a_byte_come_back() {
    assert_eq!(there_and_back(&file(0, &[])).0.chunk_count(), 0);
    let (index, blob) = there_and_back(&file(1, &[(0, vec![9])]));
    assert_eq!((index.chunk_count(), blob.len()), (1, PAGE));
}

#[test]
fn a_large_sparse_file_stays_sparse() {
    let original = file(LENGTH_MAX, &[(0, vec![1; PAGE]), (LENGTH_MAX - 4096, vec![2; PAGE])]);
    let mut blob = Vec::new();
    let index = pack(&original, &mut blob).unwrap();
    assert_eq!((blob.len(), index.chunk_count()), (2 * PAGE, 16_384));
    assert_eq!(Index::decode(&index.encode()).as_ref(), Ok(&index));
    let copy = file(LENGTH_MAX, &[]);
    for (number, chunk) in chunks(&index, &blob).iter().enumerate() {
        unpack(chunk, number as u32, &copy).unwrap();
    }
    assert!(copy.metadata().unwrap().blocks() * 512 < 1 << 20);
    original.set_len(LENGTH_MAX + 1).unwrap();
    assert!(matches!(pack(&original, &mut Vec::new()), Err(PackError::TooLong { .. })));
}

#[test]
fn more_chunks_than_are_packed_at_once_come_back_in_order() {
    let writes: Vec<(u64, Vec<u8>)> = (0..21)
        .map(|number: u64| (number * CHUNK_BYTES + number * 4096, vec![number as u8 + 1; 9000]))
        .collect();
    let (index, _) = there_and_back(&file(22 * CHUNK_BYTES, &writes));
    assert_eq!(index.chunk_count(), 22);
}

#[test]
fn bytes_that_are_not_the_ones_packed_are_no_chunk() {
    let mut blob = Vec::new();
    let index = pack(&file(CHUNK_BYTES, &[(0, vec![1; 2 * PAGE])]), &mut blob).unwrap();
    assert!(index.verified(0, blob.clone()).is_ok());
    let mut flipped = blob.clone();
    flipped[5000] ^= 1;
    assert_eq!(index.verified(0, flipped), Err(ChunkError::Digest { number: 0 }));
    assert_eq!(index.verified(0, blob[..PAGE].to_vec()), Err(ChunkError::Digest { number: 0 }));
    let short = ChunkError::Length { number: 0, expected: 2 * PAGE, actual: PAGE };
    assert_eq!(index.trusted(0, blob[..PAGE].to_vec()), Err(short));
    assert_eq!(index.verified(1, blob), Err(ChunkError::Number { number: 1, count: 1 }));
}

#[test]
fn each_kind_of_wrong_index_has_its_name() {
    let good = small_index().encode();
    assert_eq!(Index::decode(&[]), Err(IndexError::Length { actual: 0 }));
    let changed = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Index::decode(&bytes)
    };
    assert_eq!(changed(0, b'X'), Err(IndexError::Magic));
    assert_eq!(changed(4, 2), Err(IndexError::Version { version: 2 }));
    assert_eq!(changed(40, 0xff), Err(IndexError::Damaged));

    let mut map = [0; PageMap::BYTES + 32];
    map[0] = 0b11;
    let chunk = [&[1_u8][..], &map].concat();
    assert!(Index::decode(&sealed(5000, 1, &chunk)).is_ok());
    // The second page lies past the end; no page at all; an unknown kind; a count that does not fit.
    assert_eq!(Index::decode(&sealed(4096, 1, &chunk)), Err(IndexError::Impossible));
    map[0] = 0;
    let empty = [&[1_u8][..], &map].concat();
    assert_eq!(Index::decode(&sealed(5000, 1, &empty)), Err(IndexError::Impossible));
    assert_eq!(Index::decode(&sealed(5000, 1, &[2])), Err(IndexError::Impossible));
    assert_eq!(Index::decode(&sealed(5000, 2, &[0, 0])), Err(IndexError::Impossible));
    assert_eq!(Index::decode(&sealed(LENGTH_MAX + 1, 16_385, &[0; 16_385])), Err(IndexError::Impossible));
    assert!(matches!(Index::decode(&sealed(LENGTH_MAX, 16_384, &[0])), Err(IndexError::Length { .. })));
    assert!(matches!(Index::decode(&sealed(5000, 1, &[0, 0])), Err(IndexError::Length { .. })));
}

#[test]
fn a_digest_is_read_as_it_is_shown() {
    let digest = Digest::of(b"bytes");
    let shown = digest.to_string();
    assert_eq!(Digest::parse(&shown), Some(digest));
    for wrong in ["", &shown[1..], &shown.to_uppercase(), &format!("{shown}00"), &shown.replace('a', "g")] {
        assert_eq!(Digest::parse(wrong), None, "{wrong}");
    }
}
