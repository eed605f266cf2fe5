//! Marks that kernels leave in their output, told from the user's own bytes. Pure; the protocol is in `kernels/README.md`.
//!
//! A mark is `0x1e <cell id> <space> <body> <newline>`, at most [`MARK_BYTES_MAX`] bytes. Bytes that do not begin a mark of the
//! cell in question are output, whatever they look like.

use crate::cell::CellId;
use crate::limits::MARK_BYTES_MAX;

/// The first byte of a mark.
const START: u8 = 0x1e;

/// What stands in an output channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Bytes of the user.
    Text(Vec<u8>),
    /// A mark of the kernel.
    Mark(Mark),
}

/// What a kernel says about the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// What follows belongs to the cell.
    Begin,
    /// A record, in the mark itself.
    Record(Vec<u8>),
    /// A record, in the cell's file.
    RecordAt {
        /// Where in the file.
        offset: u64,
        /// How long.
        length: u64,
    },
    /// The cell is over, as far as this channel goes.
    End {
        /// As a shell tells it.
        exit: i32,
        /// Cells run so far.
        count: u64,
    },
}

/// Why bytes that begin like a mark are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MarkError {
    /// It has no end within [`MARK_BYTES_MAX`].
    #[error("mark without end")]
    TooLong,
    /// Its body is not understood.
    #[error("mark of an unknown kind")]
    Unknown,
}

impl MarkError {
    pub(crate) const fn what(self) -> &'static str {
        match self {
            MarkError::TooLong => "mark without end",
            MarkError::Unknown => "mark of an unknown kind",
        }
    }
}

/// Finds the marks of one cell in one channel, however the bytes are cut.
#[derive(Debug)]
pub struct Scanner {
    prefix: Vec<u8>,
    pending: Vec<u8>,
}

impl Scanner {
    /// For the marks of this cell.
    #[must_use]
    pub fn new(cell: &CellId) -> Scanner {
        let mut prefix = vec![START];
        prefix.extend_from_slice(cell.as_str().as_bytes());
        prefix.push(b' ');
        Scanner { prefix, pending: Vec::new() }
    }

    /// Takes more bytes and gives what is complete. Holds back at most one mark's length.
    pub fn push(&mut self, bytes: &[u8]) -> Result<Vec<Piece>, MarkError> {
        self.pending.extend_from_slice(bytes);
        let mut pieces = Vec::new();
        let mut done = 0;
        let mut text_from = 0;
        while let Some(at) = self.pending[done..].iter().position(|byte| *byte == START) {
            let start = done + at;
            let rest = &self.pending[start..];
            let seen = rest.len().min(self.prefix.len());
            if rest[..seen] != self.prefix[..seen] {
                done = start + 1;
                continue;
            }
            let window = &rest[..rest.len().min(MARK_BYTES_MAX)];
            let end = window.iter().position(|byte| *byte == b'\n');
            let (true, Some(end)) = (seen == self.prefix.len(), end) else {
                if rest.len() >= MARK_BYTES_MAX {
                    return Err(MarkError::TooLong);
                }
                self.keep(&mut pieces, text_from, start);
                return Ok(pieces);
            };
            let mark = parse(&rest[self.prefix.len()..end])?;
            if start > text_from {
                pieces.push(Piece::Text(self.pending[text_from..start].to_vec()));
            }
            pieces.push(Piece::Mark(mark));
            done = start + end + 1;
            text_from = done;
        }
        let all = self.pending.len();
        self.keep(&mut pieces, text_from, all);
        Ok(pieces)
    }

    /// What was held back, when nothing follows: it was no mark.
    pub fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.pending)
    }

    /// Gives `from..to` as text and keeps what follows.
    fn keep(&mut self, pieces: &mut Vec<Piece>, from: usize, to: usize) {
        if to > from {
            pieces.push(Piece::Text(self.pending[from..to].to_vec()));
        }
        self.pending.drain(..to);
    }
}

fn parse(body: &[u8]) -> Result<Mark, MarkError> {
    let (kind, rest) = body.split_first().ok_or(MarkError::Unknown)?;
    let rest = rest.strip_prefix(b" ").unwrap_or(rest);
    let numbers = || {
        let text = std::str::from_utf8(rest).map_err(|_| MarkError::Unknown)?;
        text.split_once(' ').ok_or(MarkError::Unknown)
    };
    fn number<T: std::str::FromStr>(text: &str) -> Result<T, MarkError> {
        text.parse().map_err(|_| MarkError::Unknown)
    }
    match kind {
        b'(' if rest.is_empty() => Ok(Mark::Begin),
        b'+' => Ok(Mark::Record(rest.to_vec())),
        b'@' => {
            let (offset, length) = numbers()?;
            Ok(Mark::RecordAt { offset: number(offset)?, length: number(length)? })
        }
        b')' => {
            let (exit, count) = numbers()?;
            Ok(Mark::End { exit: number(exit)?, count: number(count)? })
        }
        _ => Err(MarkError::Unknown),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn joined(pieces: Vec<Piece>) -> Vec<Piece> {
        let mut all: Vec<Piece> = Vec::new();
        for piece in pieces {
            match (all.last_mut(), piece) {
                (Some(Piece::Text(text)), Piece::Text(more)) => text.extend(more),
                (_, piece) => all.push(piece),
            }
        }
        all
    }

    fn scan(cell: &CellId, bytes: &[u8], size: usize) -> Result<Vec<Piece>, MarkError> {
        let mut scanner = Scanner::new(cell);
        let mut pieces = Vec::new();
        for chunk in bytes.chunks(size) {
            pieces.extend(scanner.push(chunk)?);
        }
        let rest = scanner.finish();
        if !rest.is_empty() {
            pieces.push(Piece::Text(rest));
        }
        Ok(joined(pieces))
    }

    #[test]
    fn marks_are_found_however_the_bytes_are_cut() {
        let cell = CellId::random().unwrap();
        let other = CellId::random().unwrap();
        let bytes = format!(
            "old\x1e{cell} (\nhé\x1ello\x1e{other} ) 0 1\n\x1e{cell} + {{\"a\":1}}\n\x1e{cell} @ 5 10\nx\x1e{cell} ) -1 7\ntail\x1e{cell}"
        );
        let expected = vec![
            Piece::Text(b"old".to_vec()),
            Piece::Mark(Mark::Begin),
            Piece::Text(format!("hé\x1ello\x1e{other} ) 0 1\n").into_bytes()),
            Piece::Mark(Mark::Record(b"{\"a\":1}".to_vec())),
            Piece::Mark(Mark::RecordAt { offset: 5, length: 10 }),
            Piece::Text(b"x".to_vec()),
            Piece::Mark(Mark::End { exit: -1, count: 7 }),
            Piece::Text(format!("tail\x1e{cell}").into_bytes()),
        ];
        for size in 1..bytes.len() {
            assert_eq!(scan(&cell, bytes.as_bytes(), size).unwrap(), expected, "{size}");
        }
    }

    #[test]
    fn broken_marks_are_errors() {
        let cell = CellId::random().unwrap();
        for (body, error) in [
            ("?\n".to_owned(), MarkError::Unknown),
            ("\n".to_owned(), MarkError::Unknown),
            (") 1\n".to_owned(), MarkError::Unknown),
            ("@ -1 3\n".to_owned(), MarkError::Unknown),
            (") 99999999999999999999 3\n".to_owned(), MarkError::Unknown),
            (format!("+ {}", "x".repeat(MARK_BYTES_MAX)), MarkError::TooLong),
        ] {
            assert_eq!(scan(&cell, format!("\x1e{cell} {body}").as_bytes(), 1000), Err(error));
        }
    }

    proptest! {
        #[test]
        fn bytes_without_marks_come_through_unchanged(bytes: Vec<u8>, size in 1usize..64) {
            let cell = CellId::random().unwrap();
            let expected = if bytes.is_empty() { vec![] } else { vec![Piece::Text(bytes.clone())] };
            prop_assert_eq!(scan(&cell, &bytes, size).unwrap(), expected);
        }

        #[test]
        fn little_is_held_back(pieces in proptest::collection::vec("[\\x1e0-9a-f (]{0,40}", 0..50)) {
            let cell = CellId::random().unwrap();
            let mut scanner = Scanner::new(&cell);
            for piece in pieces {
                scanner.push(piece.as_bytes()).unwrap();
                prop_assert!(scanner.pending.len() < MARK_BYTES_MAX);
            }
        }
    }
}
