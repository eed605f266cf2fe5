//! A step of an operation: how long it takes, for whoever asked, and a span of it for whoever traces.

use std::time::Instant;

use tracing::Span;

use crate::restore::milliseconds;

/// A step under way. Its span ends with it.
pub(crate) struct Step {
    started: Instant,
    _span: Span,
}

impl Step {
    /// Begins now.
    pub(crate) fn begin(span: Span) -> Self {
        Self::since(Instant::now(), span)
    }

    /// Began earlier; only its span begins now.
    pub(crate) fn since(started: Instant, span: Span) -> Self {
        Self { started, _span: span }
    }

    /// Ends; how long it took.
    pub(crate) fn end_ms(self) -> f64 {
        milliseconds(self.started)
    }
}
