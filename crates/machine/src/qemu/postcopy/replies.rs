//! What QEMU says on the way back. It may be in the hands of a guest by then, so everything is checked and has a bound.
//!
//! ```text
//! kind u16 │ length u16 │ payload ≤ 268        big-endian
//! ```

use std::io;

use memory::PAGE_BYTES;
use tokio::io::{AsyncRead, AsyncReadExt};

const PONG: u16 = 2;
const WANTS_OF_BLOCK: u16 = 3;
const WANTS: u16 = 4;
const KINDS: std::ops::RangeInclusive<u16> = 1..=7;

/// The longest payload: an offset, a length, and a name of 255 bytes with its length.
const PAYLOAD_BYTES_MAX: usize = 8 + 4 + 1 + 255;

/// What is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reply {
    /// The answer to a ping.
    Pong,
    /// A page of the memory is waited for.
    Wants { offset: u64 },
    /// Something that needs no answer.
    Other,
}

/// Why something that was said is not understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum ReplyError {
    #[error("a message of kind {kind} and {length} bytes is not known")]
    Unknown { kind: u16, length: u16 },
    #[error("{length} bytes at {offset:#x} are not a page of the memory")]
    Page { offset: u64, length: u32 },
    #[error("another block of memory is asked for")]
    Block,
    #[error("could not read from the machine process")]
    Read(#[source] io::Error),
}

/// Reads what is said about one memory.
#[derive(Debug)]
pub(super) struct Replies {
    memory: &'static str,
    length: u64,
    /// Requests name their block when it is another than that of the request before.
    has_named: bool,
}

impl Replies {
    pub(super) fn new(memory: &'static str, length: u64) -> Self {
        Self { memory, length, has_named: false }
    }

    /// The next thing that is said; `None` when there is nothing more.
    pub(super) async fn next(
        &mut self,
        read: &mut (impl AsyncRead + Unpin),
    ) -> Result<Option<Reply>, ReplyError> {
        let kind = match read.read_u16().await {
            Ok(kind) => kind,
            Err(error) if is_end(&error) => return Ok(None),
            Err(error) => return Err(ReplyError::Read(error)),
        };
        let length = read.read_u16().await.map_err(ReplyError::Read)?;
        let mut payload = [0; PAYLOAD_BYTES_MAX];
        let payload = payload.get_mut(..length.into()).ok_or(ReplyError::Unknown { kind, length })?;
        read.read_exact(payload).await.map_err(ReplyError::Read)?;
        self.understand(kind, payload).map(Some)
    }

    fn understand(&mut self, kind: u16, payload: &[u8]) -> Result<Reply, ReplyError> {
        let unknown = || ReplyError::Unknown { kind, length: payload.len() as u16 };
        match (kind, payload) {
            (PONG, [_, _, _, _]) => Ok(Reply::Pong),
            (WANTS_OF_BLOCK, [page @ .., _]) if page.len() >= 12 => {
                let (page, name) = payload.split_at(12);
                let (length, name) = name.split_first().ok_or_else(unknown)?;
                if name.len() != usize::from(*length) {
                    return Err(unknown());
                }
                if name != self.memory.as_bytes() {
                    return Err(ReplyError::Block);
                }
                self.has_named = true;
                self.page(page).ok_or_else(unknown)?
            }
            (WANTS, page) if self.has_named => self.page(page).ok_or_else(unknown)?,
            (PONG | WANTS_OF_BLOCK | WANTS, _) => Err(unknown()),
            (kind, _) if KINDS.contains(&kind) => Ok(Reply::Other),
            _ => Err(unknown()),
        }
    }

    fn page(&self, bytes: &[u8]) -> Option<Result<Reply, ReplyError>> {
        let (offset, length) = bytes.split_first_chunk::<8>()?;
        let offset = u64::from_be_bytes(*offset);
        let length = u32::from_be_bytes(length.try_into().ok()?);
        let is_page = offset.is_multiple_of(PAGE_BYTES) && offset < self.length;
        if !is_page || u64::from(length) != PAGE_BYTES {
            return Some(Err(ReplyError::Page { offset, length }));
        }
        Some(Ok(Reply::Wants { offset }))
    }
}

/// A process that ends or stops talking cuts nothing but its own words.
fn is_end(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LENGTH: u64 = 64 << 20;

    fn all(mut bytes: &[u8]) -> Result<Vec<Reply>, ReplyError> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut replies = Replies::new("ram", LENGTH);
            let mut found = Vec::new();
            while let Some(reply) = replies.next(&mut bytes).await? {
                found.push(reply);
            }
            Ok(found)
        })
    }

    fn message(kind: u16, payload: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes(), &(payload.len() as u16).to_be_bytes(), payload].concat()
    }

    fn page(offset: u64, length: u32) -> Vec<u8> {
        [offset.to_be_bytes().as_slice(), &length.to_be_bytes()].concat()
    }

    fn of_block(name: &str, offset: u64) -> Vec<u8> {
        message(3, &[page(offset, 4096).as_slice(), &[name.len() as u8], name.as_bytes()].concat())
    }

    #[test]
    fn what_qemu_says_is_understood() {
        let bytes = [
            message(2, &[0, 0, 0, 1]),
            of_block("ram", 0x5000),
            message(4, &page(0x1000, 4096)),
            message(1, &[0; 4]),
        ];
        let expected =
            [Reply::Pong, Reply::Wants { offset: 0x5000 }, Reply::Wants { offset: 0x1000 }, Reply::Other];
        assert_eq!(all(&bytes.concat()).unwrap(), expected);
    }

    #[test]
    fn what_is_not_a_page_of_the_memory_is_refused() {
        let after = |second: Vec<u8>| all(&[of_block("ram", 0), second].concat());
        assert!(after(message(4, &page(LENGTH - 4096, 4096))).is_ok());
        assert!(matches!(after(message(4, &page(LENGTH, 4096))), Err(ReplyError::Page { .. })));
        assert!(matches!(after(message(4, &page(1, 4096))), Err(ReplyError::Page { .. })));
        assert!(matches!(after(message(4, &page(0, 8192))), Err(ReplyError::Page { .. })));
        assert!(matches!(after(of_block("pc.bios", 0)), Err(ReplyError::Block)));
        // A page of no block, of a block whose name is cut, and messages that are too long or unknown.
        assert!(matches!(all(&message(4, &page(0, 4096))), Err(ReplyError::Unknown { .. })));
        assert!(matches!(after(message(3, &page(0, 4096))), Err(ReplyError::Unknown { .. })));
        assert!(matches!(after(message(5, &[0; 269])), Err(ReplyError::Unknown { .. })));
        assert!(matches!(after(message(8, &[])), Err(ReplyError::Unknown { .. })));
        assert!(matches!(all(&of_block("ram", 0)[..9]), Err(ReplyError::Read(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(
            kinds in proptest::collection::vec((0_u16..10, proptest::collection::vec(any::<u8>(), 0..30)), 0..8),
            rest in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let mut bytes: Vec<u8> = kinds.iter().flat_map(|(kind, payload)| message(*kind, payload)).collect();
            bytes.extend(rest);
            if let Ok(replies) = all(&bytes) {
                for reply in replies {
                    if let Reply::Wants { offset } = reply {
                        prop_assert!(offset < LENGTH && offset % PAGE_BYTES == 0);
                    }
                }
            }
        }
    }
}
