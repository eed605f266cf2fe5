//! Output of a context's kernel: marks among the user's bytes, cut anywhere, mean the same.

#![no_main]

use fuzz::seeds;
use interpreter::CellId;
use interpreter::wire::{MarkError, Piece, Scanner};
use libfuzzer_sys::fuzz_target;

/// Everything found, neighbouring text joined, and how it ended.
fn scan(cell: &CellId, bytes: &[u8], size: usize) -> (Vec<Piece>, Option<MarkError>) {
    let mut scanner = Scanner::new(cell);
    let mut found: Vec<Piece> = Vec::new();
    let mut add = |piece: Piece| match (found.last_mut(), piece) {
        (Some(Piece::Text(text)), Piece::Text(more)) => text.extend(more),
        (_, piece) => found.push(piece),
    };
    let mut failed = None;
    for chunk in bytes.chunks(size.max(1)) {
        match scanner.push(chunk) {
            Ok(pieces) => pieces.into_iter().for_each(&mut add),
            Err(error) => {
                failed = Some(error);
                break;
            }
        }
    }
    if failed.is_none() {
        let rest = scanner.finish();
        if !rest.is_empty() {
            add(Piece::Text(rest));
        }
    }
    (found, failed)
}

fuzz_target!(
    init: seeds(|| {
        vec![
            b"\x1e(\nhello\x1e+{\"a\":1}\nmore\x1e@12 34\n\x1e)0 7\n\x05".to_vec(),
            b"\x1d\x1e\x1eno mark\n\x1e)-1 18446744073709551615\n\x01".to_vec(),
        ]
    }),
    |data: &[u8]| {
        let Some((&size, text)) = data.split_last() else { return };
        let cell = CellId::random().expect("a random number");
        // A start in the script is followed by the cell's own name, which no fuzzer would guess.
        let mut bytes = Vec::new();
        for &byte in text {
            bytes.push(if byte == 0x1d { 0x1e } else { byte });
            if byte == 0x1e {
                bytes.extend_from_slice(cell.as_str().as_bytes());
                bytes.push(b' ');
            }
        }
        let (whole, whole_end) = scan(&cell, &bytes, bytes.len());
        let (cut, cut_end) = scan(&cell, &bytes, usize::from(size));
        assert_eq!(whole_end, cut_end);
        if whole_end.is_none() {
            assert_eq!(whole, cut);
        }
    }
);
