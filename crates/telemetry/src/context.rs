//! Which trace a span belongs to, as W3C Trace Context says it in `traceparent`.

use rustix::rand::{GetRandomFlags, getrandom};

/// A trace. Never all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

/// A span. Never all zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl TraceId {
    pub(crate) fn random() -> Self {
        Self(random())
    }
}

impl SpanId {
    pub(crate) fn random() -> Self {
        Self(random())
    }
}

/// Random bytes, not all zeros. An id that repeats would only confuse a reader of traces, so nothing fails here.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let filled = getrandom(&mut bytes, GetRandomFlags::empty()).is_ok_and(|length| length == N);
    if !filled || bytes == [0; N] {
        bytes[N - 1] = 1;
    }
    bytes
}

/// Where a caller's trace stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParentContext {
    /// Its trace.
    pub trace: TraceId,
    /// The span that asked.
    pub span: SpanId,
    /// Whether the caller keeps this trace.
    pub sampled: bool,
}

impl ParentContext {
    /// Reads a `traceparent`: `00-<32 hexadecimal digits>-<16>-<2>`. One of a later version may have more behind it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('-');
        let [version]: [u8; 1] = hex(parts.next()?)?;
        let trace: [u8; 16] = hex(parts.next()?)?;
        let span: [u8; 8] = hex(parts.next()?)?;
        let [flags]: [u8; 1] = hex(parts.next()?)?;
        let complete = version != 0xff && (version > 0 || parts.next().is_none());
        let real = trace != [0; 16] && span != [0; 8];
        (complete && real).then_some(Self {
            trace: TraceId(trace),
            span: SpanId(span),
            sampled: flags & 1 == 1,
        })
    }
}

/// Lower case only, as the standard demands.
fn hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_read() {
        let text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let parent = ParentContext::parse(text).unwrap();
        assert_eq!((parent.trace.0[0], parent.trace.0[15]), (0x0a, 0x9c));
        assert_eq!((parent.span.0[0], parent.span.0[7], parent.sampled), (0xb7, 0x31, true));
        let later = ParentContext::parse(&format!("{}-more", text.replacen("00", "cc", 1)));
        assert_eq!(later, Some(parent));
        assert!(!ParentContext::parse(&text.replace("-01", "-00")).unwrap().sampled);
    }

    #[test]
    fn what_is_none_is_refused() {
        for text in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-é0f7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert_eq!(ParentContext::parse(text), None, "{text}");
        }
    }
}
