//! Bytes of a channel made text that never splits a character.

/// KeyedMutex pieces of bytes into text. A character cut in two is held back; what is not UTF-8 becomes U+FFFD.
#[derive(Debug, Default)]
pub(crate) struct TextDecoder {
    /// The beginning of a character: at most three bytes.
    held: Vec<u8>,
}

impl TextDecoder {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.held);
        all.extend_from_slice(bytes);
        let cut = all.len() - incomplete(&all);
        self.held = all.split_off(cut);
        match String::from_utf8(all) {
            Ok(text) => text,
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        }
    }

    /// What is left when nothing follows.
    pub(crate) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.held)).into_owned()
    }
}

/// How many bytes at the end begin a character that may still be completed.
fn incomplete(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    for length in 1..=tail.len() {
        let from = &tail[tail.len() - length..];
        if let Err(error) = std::str::from_utf8(from)
            && error.valid_up_to() == 0
            && error.error_len().is_none()
        {
            return length;
        }
    }
    0
}

/// Text up to a bound.
#[derive(Debug, Default)]
pub(crate) struct Bounded {
    pub(crate) text: String,
    pub(crate) truncated: bool,
}

impl Bounded {
    pub(crate) fn push(&mut self, more: &str, bytes_max: usize) {
        let room = bytes_max.saturating_sub(self.text.len());
        let mut cut = room.min(more.len());
        while !more.is_char_boundary(cut) {
            cut -= 1;
        }
        // Once cut, nothing smaller may follow what is missing.
        if !self.truncated {
            self.text.push_str(&more[..cut]);
        }
        self.truncated |= cut < more.len();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_survives_any_cut(text: String, size in 1usize..8) {
            let mut decoder = TextDecoder::default();
            let mut found: String = text.as_bytes().chunks(size).map(|chunk| decoder.push(chunk)).collect();
            found.push_str(&decoder.finish());
            prop_assert_eq!(found, text);
        }

        #[test]
        fn garbage_is_the_same_in_one_piece_and_in_many(bytes: Vec<u8>, size in 1usize..8) {
            let mut decoder = TextDecoder::default();
            let mut found: String = bytes.chunks(size).map(|chunk| decoder.push(chunk)).collect();
            found.push_str(&decoder.finish());
            prop_assert_eq!(found, String::from_utf8_lossy(&bytes));
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_at_a_character() {
        let mut bounded = Bounded::default();
        bounded.push("aé", 2);
        assert_eq!((bounded.text.as_str(), bounded.truncated), ("a", true));
        bounded.push("b", 2);
        assert_eq!(bounded.text, "a");
    }
}
