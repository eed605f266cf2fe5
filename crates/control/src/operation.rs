//! Spans of operations, for whoever traces.
//!
//! They leave the process when traces are sent somewhere, so they carry ids, sizes and times: never a command, a variable, a path or
//! anything else that a caller or a guest wrote.

use node::SaveTimings;
use tracing::{Instrument, Span};

use crate::error::ControlError;

/// The span of an operation on a sandbox. More fields may be given, as `field::Empty` when they are not known yet.
macro_rules! operation {
    ($name:literal, $row:expr $(, $($field:tt)*)?) => {
        tracing::info_span!(
            $name,
            otel.kind = "internal",
            sandbox.id = %$row.id,
            tenant.id = %$row.tenant,
            otel.status_code = tracing::field::Empty,
            error.type = tracing::field::Empty,
            $($($field)*)?
        )
    };
}

pub(crate) use operation;

/// Says in the current span how long a guest stood still and how much was saved of it.
pub(crate) fn note_save(timings: &SaveTimings) {
    let span = Span::current();
    span.record("paused_ms", timings.paused_ms);
    span.record("changed_bytes", timings.changed_bytes);
}

/// Does work within a span, which is told when the work fails.
pub(crate) async fn traced<T>(
    span: Span,
    work: impl Future<Output = Result<T, ControlError>>,
) -> Result<T, ControlError> {
    let outcome = work.instrument(span.clone()).await;
    if let Err(error) = &outcome {
        span.record("otel.status_code", "ERROR");
        span.record("error.type", error.kind.code());
    }
    outcome
}
