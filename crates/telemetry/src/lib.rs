//! Traces: spans of requests and operations, sent to an OpenTelemetry collector.
//!
//! ```text
//! tracing spans with a field `otel.kind` ─► layer ─► bounded queue ─► exporter task: batches, OTLP over HTTP in protobuf
//! ```
//!
//! Only spans marked with the field `otel.kind` leave the process, with the fields they were given and nothing else: no events, no
//! log lines. So what may leave is decided where a span is made, and whoever makes one never puts a secret into it. Field names
//! that begin with `otel.` speak to this crate: `otel.kind` (`server`, `internal`), `otel.name` (a name made at run time),
//! `otel.status_code` (`ERROR`), `otel.parent` (a caller's W3C `traceparent`).
//!
//! Nothing here slows what it watches: a queue that is full loses spans, and counts them.

mod context;
mod endpoint;
mod exporter;
mod layer;
mod protobuf;
mod sampler;
mod span;

use tokio::sync::mpsc;

pub use context::{ParentContext, SpanId, TraceId};
pub use endpoint::{Collector, CollectorError, pairs};
pub use exporter::{Counts, Exporter, Sending};
pub use layer::SpanLayer;
pub use sampler::{Sampler, SamplerError};
pub use span::{FinishedSpan, Kind, Value};

/// Spans that wait to be sent; beyond that they are lost.
const SPANS_WAITING_MAX: usize = 4096;

/// What traces are to be like.
#[derive(Debug, Clone)]
pub struct TraceConfig {
    /// Where they go.
    pub collector: Collector,
    /// Which are kept.
    pub sampler: Sampler,
    /// What says whose they are: `service.name` and more.
    pub resource: Vec<(String, String)>,
}

/// The two halves of tracing: what watches spans, and what sends them once it is started.
pub struct Traces {
    /// To be put into the program's subscriber.
    pub layer: SpanLayer,
    /// To be started in the runtime.
    pub exporter: Exporter,
}

impl Traces {
    /// Both halves.
    #[must_use]
    pub fn new(config: TraceConfig) -> Self {
        let (queue, waiting) = mpsc::channel(SPANS_WAITING_MAX);
        let counts = Counts::default();
        let layer = SpanLayer::new(config.sampler, queue, counts.clone());
        let exporter = Exporter::new(config.collector, &config.resource, waiting, counts);
        Self { layer, exporter }
    }
}
