//! Bytes that come in pieces, as text: a character is never split, what is no text becomes U+FFFD.

/// Most bytes of an unfinished character.
const PENDING_MAX: usize = 3;

/// Decodes one stream.
#[derive(Debug, Default)]
pub(crate) struct Utf8Decoder {
    pending: Vec<u8>,
}

impl Utf8Decoder {
    /// The text that is complete after these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let joined = if self.pending.is_empty() {
            bytes.to_vec()
        } else {
            let mut joined = std::mem::take(&mut self.pending);
            joined.extend_from_slice(bytes);
            joined
        };
        let mut text = match String::from_utf8(joined) {
            Ok(text) => return text,
            Err(error) => {
                let bytes = error.into_bytes();
                let keep = unfinished(&bytes);
                self.pending = bytes[bytes.len() - keep..].to_vec();
                String::from_utf8_lossy(&bytes[..bytes.len() - keep]).into_owned()
            }
        };
        text.shrink_to_fit();
        text
    }

    /// What is left at the end.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }
}

/// How many bytes at the end begin a character that is not finished.
fn unfinished(bytes: &[u8]) -> usize {
    for back in 1..=PENDING_MAX.min(bytes.len()) {
        let tail = &bytes[bytes.len() - back..];
        match std::str::from_utf8(tail) {
            Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => return back,
            _ => {}
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_size_give_the_same_text() {
        let texts: [&[u8]; 4] = ["héllo 🐼 \u{2028}".as_bytes(), b"\xff\xfe", b"a\xf0\x9f", b"\xe2\x28\xa1"];
        for bytes in texts {
            let whole = String::from_utf8_lossy(bytes);
            for size in 1..=bytes.len() {
                let mut decoder = Utf8Decoder::default();
                let mut text: String = bytes.chunks(size).map(|piece| decoder.push(piece)).collect();
                text.push_str(&decoder.finish());
                assert_eq!(text, whole, "pieces of {size}");
            }
        }
    }
}
