//! Spans as OTLP writes them: `ExportTraceServiceRequest` in protobuf.
//!
//! The messages are few and settled, so they are written by hand; field numbers are those of `opentelemetry/proto/trace/v1`.

use crate::span::{FinishedSpan, Value};

/// Flags: the lowest byte is W3C's, of which the lowest bit says that the trace is kept.
const SAMPLED: u32 = 1;
/// Flags: the next two bits say whether it is known that the parent is another process's, and whether it is.
const REMOTE_KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;
/// `STATUS_CODE_ERROR`.
const ERROR: u64 = 2;

/// A message being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn number(&mut self, field: u64, number: u64) {
        self.tag(field, 0);
        self.varint(number);
    }

    fn fixed64(&mut self, field: u64, number: u64) {
        self.tag(field, 1);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn fixed32(&mut self, field: u64, number: u32) {
        self.tag(field, 5);
        self.0.extend_from_slice(&number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u64, write: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        write(&mut inner);
        self.bytes(field, &inner.0);
    }

    fn attribute(&mut self, field: u64, key: &str, value: &Value) {
        self.message(field, |pair| {
            pair.bytes(1, key.as_bytes());
            pair.message(2, |any| match value {
                Value::Text(text) => any.bytes(1, text.as_bytes()),
                Value::Truth(truth) => any.number(2, u64::from(*truth)),
                Value::Whole(number) => any.number(3, number.cast_unsigned()),
                Value::Real(number) => any.fixed64(4, number.to_bits()),
            });
        });
    }

    fn span(&mut self, span: &FinishedSpan) {
        self.bytes(1, &span.trace.0);
        self.bytes(2, &span.id.0);
        if let Some(parent) = &span.parent {
            self.bytes(4, &parent.0);
        }
        self.bytes(5, span.name.as_bytes());
        self.number(6, span.kind as u64);
        self.fixed64(7, span.start_ns);
        self.fixed64(8, span.end_ns);
        for (key, value) in &span.attributes {
            self.attribute(9, key, value);
        }
        if span.failed {
            self.message(15, |status| status.number(3, ERROR));
        }
        let remote = if span.parent_is_remote { REMOTE } else { 0 };
        self.fixed32(16, SAMPLED | REMOTE_KNOWN | remote);
    }
}

/// The resource that all spans of this process share, to be given to [`request`].
pub(crate) fn resource(attributes: &[(String, String)]) -> Vec<u8> {
    let mut resource = Message::default();
    for (key, value) in attributes {
        resource.attribute(1, key, &Value::Text(value.clone()));
    }
    resource.0
}

/// A request that brings spans of this version of the program.
pub(crate) fn request(resource: &[u8], spans: &[FinishedSpan]) -> Vec<u8> {
    request_of(env!("CARGO_PKG_VERSION"), resource, spans)
}

fn request_of(version: &str, resource: &[u8], spans: &[FinishedSpan]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.bytes(1, resource);
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.bytes(1, b"pandastack");
                scope.bytes(2, version.as_bytes());
            });
            for span in spans {
                of_scope.message(2, |message| message.span(span));
            }
        });
    });
    request.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::{SpanId, TraceId};
    use crate::span::Kind;

    /// Bytes that protobuf's own implementation for Python (`opentelemetry-proto`) wrote for the same span.
    #[test]
    fn spans_are_written_as_others_write_them() {
        let span = FinishedSpan {
            trace: TraceId([0xab; 16]),
            id: SpanId([1, 2, 3, 4, 5, 6, 7, 8]),
            parent: Some(SpanId([9; 8])),
            parent_is_remote: true,
            name: "POST /v1/sandboxes".into(),
            kind: Kind::Server,
            start_ns: 1_700_000_000_000_000_001,
            end_ns: 1_700_000_000_100_000_002,
            attributes: vec![
                ("text", Value::Text("é".to_owned())),
                ("truth", Value::Truth(true)),
                ("whole", Value::Whole(-300)),
                ("real", Value::Real(0.5)),
            ],
            failed: true,
        };
        let resource = resource(&[("service.name".to_owned(), "pandastack".to_owned())]);
        let written = request_of("0.1.0", &resource, &[span]);
        let written: String = written.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, include_str!("protobuf/expected.hex").trim());
    }
}
