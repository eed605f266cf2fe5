//! Layout of netlink messages: writing requests, reading replies. Pure.
//!
//! Reading trusts no length in the bytes: what does not fit ends the walk.

/// Bytes of `struct nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// Bytes of `struct nlattr`.
const ATTRIBUTE_HEADER_BYTES: usize = 4;
/// Bits of an attribute's kind that say how it is laid out.
const ATTRIBUTE_KIND_MASK: u16 = 0x3fff;

const fn align(length: usize) -> usize {
    (length + 3) & !3
}

/// A request under construction.
#[derive(Debug)]
pub(crate) struct Message {
    bytes: Vec<u8>,
}

impl Message {
    /// Starts a request of `kind` whose family header is `header`.
    pub(crate) fn new(kind: u16, flags: i32, header: &[u8]) -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&(flags as u16).to_ne_bytes());
        bytes.extend_from_slice(header);
        Self { bytes }
    }

    /// Appends an attribute.
    pub(crate) fn attribute(mut self, kind: u16, payload: &[u8]) -> Self {
        let length =
            u16::try_from(ATTRIBUTE_HEADER_BYTES + payload.len()).expect("attributes we write are short");
        self.bytes.extend_from_slice(&length.to_ne_bytes());
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        self.bytes.extend_from_slice(payload);
        self.bytes.resize(align(self.bytes.len()), 0);
        self
    }

    /// Appends a NUL-terminated text.
    pub(crate) fn text(self, kind: u16, text: &str) -> Self {
        self.attribute(kind, &[text.as_bytes(), &[0]].concat())
    }

    /// Appends an attribute that begins with `header` and holds what `fill` appends.
    pub(crate) fn nest(mut self, kind: u16, header: &[u8], fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.bytes.len();
        self = fill(self.attribute(kind, header));
        let length = u16::try_from(self.bytes.len() - start).expect("attributes we write are short");
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self
    }

    /// The finished bytes.
    pub(crate) fn finish(mut self, sequence: u32) -> Vec<u8> {
        let length = u32::try_from(self.bytes.len()).expect("requests we write are short");
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
        self.bytes
    }
}

/// One message of a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    pub(crate) kind: u16,
    pub(crate) flags: u16,
    pub(crate) sequence: u32,
    pub(crate) payload: &'a [u8],
}

/// Walks the messages in one datagram.
pub(crate) fn replies(mut bytes: &[u8]) -> impl Iterator<Item = Reply<'_>> {
    std::iter::from_fn(move || {
        let length = read_u32(bytes, 0)? as usize;
        let reply = Reply {
            kind: read_u16(bytes, 4)?,
            flags: read_u16(bytes, 6)?,
            sequence: read_u32(bytes, 8)?,
            payload: bytes.get(HEADER_BYTES..length)?,
        };
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some(reply)
    })
}

/// Walks the attributes that follow a family header, as (kind, payload).
pub(crate) fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(read_u16(bytes, 0)?);
        let kind = read_u16(bytes, 2)? & ATTRIBUTE_KIND_MASK;
        let payload = bytes.get(ATTRIBUTE_HEADER_BYTES..length)?;
        bytes = bytes.get(align(length)..).unwrap_or_default();
        Some((kind, payload))
    })
}

/// A text attribute without its NUL.
pub(crate) fn text(payload: &[u8]) -> String {
    let end = payload.iter().position(|&byte| byte == 0).unwrap_or(payload.len());
    String::from_utf8_lossy(&payload[..end]).into_owned()
}

fn read_array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// A 16-bit number at `at`.
pub(crate) fn read_u16(bytes: &[u8], at: usize) -> Option<u16> {
    read_array(bytes, at).map(u16::from_ne_bytes)
}

/// A 32-bit number at `at`.
pub(crate) fn read_u32(bytes: &[u8], at: usize) -> Option<u32> {
    read_array(bytes, at).map(u32::from_ne_bytes)
}

/// A signed 32-bit number at `at`.
pub(crate) fn read_i32(bytes: &[u8], at: usize) -> Option<i32> {
    read_array(bytes, at).map(i32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_written_is_read_back() {
        let bytes = Message::new(16, 5, &[9; 16])
            .text(3, "veth0")
            .nest(18, &[], |inner| inner.text(1, "veth").nest(2, &[7; 16], |peer| peer.text(3, "x")))
            .attribute(4, &[1, 2, 3])
            .finish(77);
        let all: Vec<_> = replies(&bytes).collect();
        assert_eq!(all.len(), 1);
        assert_eq!((all[0].kind, all[0].flags, all[0].sequence), (16, 5, 77));
        let outer: Vec<_> = attributes(&all[0].payload[16..]).collect();
        assert_eq!(outer.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [3, 18, 4]);
        assert_eq!(text(outer[0].1), "veth0");
        assert_eq!(outer[2].1, [1, 2, 3]);
        let nested: Vec<_> = attributes(outer[1].1).collect();
        assert_eq!(text(nested[0].1), "veth");
        assert_eq!(
            attributes(&nested[1].1[16..]).map(|(kind, payload)| (kind, text(payload))).next(),
            Some((3, "x".to_owned()))
        );
    }

    proptest! {
        #[test]
        fn garbage_never_panics_or_loops(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(replies(&bytes).take(1000).count() < 100);
            prop_assert!(attributes(&bytes).take(1000).count() < 100);
        }

        #[test]
        fn short_lengths_never_panic_or_loop(words in proptest::collection::vec(0u16..24, 0..150)) {
            let bytes: Vec<u8> = words.into_iter().flat_map(u16::to_ne_bytes).collect();
            prop_assert!(replies(&bytes).take(1000).count() < 100);
            prop_assert!(attributes(&bytes).take(1000).count() < 100);
        }
    }
}
