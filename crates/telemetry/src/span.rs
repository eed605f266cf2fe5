//! A span that has ended, as it waits to be sent.

use std::borrow::Cow;

use crate::context::{SpanId, TraceId};

/// Attributes of one span; more are dropped.
pub(crate) const ATTRIBUTES_MAX: usize = 32;
/// Longest text of an attribute or a name; the rest is cut off.
pub(crate) const TEXT_BYTES_MAX: usize = 256;

/// What an attribute says.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text.
    Text(String),
    /// Yes or no.
    Truth(bool),
    /// A whole number.
    Whole(i64),
    /// Any other number.
    Real(f64),
}

/// On which side of a conversation a span stands, with OTLP's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Within the program.
    Internal = 1,
    /// Answers somebody.
    Server = 2,
    /// Asks somebody.
    Client = 3,
}

impl Kind {
    pub(crate) fn parse(text: &str) -> Self {
        match text {
            "server" => Self::Server,
            "client" => Self::Client,
            _ => Self::Internal,
        }
    }
}

/// A span that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedSpan {
    /// Its trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// What it is part of.
    pub parent: Option<SpanId>,
    /// Whether that is a span of another process.
    pub parent_is_remote: bool,
    /// What it is called.
    pub name: Cow<'static, str>,
    /// On which side it stands.
    pub kind: Kind,
    /// When it began, in nanoseconds of Unix time.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Whether it ended badly.
    pub failed: bool,
}

/// Text as it may be sent: short, and cut between characters.
pub(crate) fn short(text: &str) -> &str {
    let mut end = text.len().min(TEXT_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        assert_eq!(short("short"), "short");
        let long = format!("{}é", "a".repeat(TEXT_BYTES_MAX - 1));
        assert_eq!(short(&long).len(), TEXT_BYTES_MAX - 1);
    }
}
