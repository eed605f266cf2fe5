//! What a command wrote until its time was up. Its end is kept, for that is where it hung.

use contract::error::Partial;
use guest_link::message::Channel;

/// Most that an error carries of standard output, and of standard error.
const BYTES_MAX: usize = 256 * 1024;

/// The end of a text that is longer than an error carries.
fn end(text: &str) -> (String, bool) {
    if text.len() <= BYTES_MAX {
        return (text.to_owned(), false);
    }
    let mut from = text.len() - BYTES_MAX;
    while !text.is_char_boundary(from) {
        from += 1;
    }
    (text[from..].to_owned(), true)
}

/// What was written, as an error carries it.
pub(crate) fn partial(stdout: &str, stderr: &str, truncated: bool) -> Partial {
    let ((stdout, cut), (stderr, also_cut)) = (end(stdout), end(stderr));
    Partial { stdout, stderr, truncated: truncated || cut || also_cut, results: None }
}

/// Collects what a command writes while it is followed.
#[derive(Debug, Default)]
pub struct PartialOutput {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    truncated: bool,
}

impl PartialOutput {
    /// It wrote.
    pub fn push(&mut self, channel: Channel, data: &[u8]) {
        let kept = match channel {
            Channel::Stdout => &mut self.stdout,
            Channel::Stderr => &mut self.stderr,
        };
        kept.extend_from_slice(data);
        // Cut rarely, so that many small pieces are not moved each time.
        if kept.len() > 2 * BYTES_MAX {
            kept.drain(..kept.len() - BYTES_MAX);
            self.truncated = true;
        }
    }

    /// Output was lost.
    pub fn gap(&mut self) {
        self.truncated = true;
    }

    /// All of it, as an error carries it.
    #[must_use]
    pub fn finish(self) -> Partial {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        partial(&text(self.stdout), &text(self.stderr), self.truncated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept() {
        let mut output = PartialOutput::default();
        output.push(Channel::Stdout, b"begin");
        for _ in 0..(3 * BYTES_MAX / 1000) {
            output.push(Channel::Stdout, &[b'x'; 1000]);
        }
        output.push(Channel::Stdout, b"end");
        output.push(Channel::Stderr, b"\xff");
        let partial = output.finish();
        assert!(partial.truncated && partial.stdout.len() <= BYTES_MAX);
        assert!(partial.stdout.ends_with("xend"));
        assert_eq!(partial.stderr, "\u{fffd}");
    }

    #[test]
    fn characters_are_not_split() {
        let (text, cut) = end(&"\u{20ac}".repeat(BYTES_MAX));
        assert!(cut && text.len() <= BYTES_MAX && text.chars().all(|character| character == '\u{20ac}'));
        assert_eq!(
            partial("a", "b", false),
            Partial { stdout: "a".into(), stderr: "b".into(), ..Partial::default() }
        );
    }
}
