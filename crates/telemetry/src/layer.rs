//! Watches spans of `tracing` and hands those that ended to the exporter. Never waits.

use std::borrow::Cow;
use std::fmt::Debug;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use crate::context::{ParentContext, SpanId, TraceId};
use crate::exporter::Counts;
use crate::sampler::Sampler;
use crate::span::{ATTRIBUTES_MAX, FinishedSpan, Kind, Value, short};

/// Marks a span that may leave the process.
const KIND: &str = "otel.kind";

/// Watches spans.
pub struct SpanLayer {
    sampler: Sampler,
    queue: mpsc::Sender<FinishedSpan>,
    counts: Counts,
}

/// What is kept beside a span that is under way.
struct Underway {
    trace: TraceId,
    id: SpanId,
    /// Absent when the trace is not kept.
    recording: Option<Recording>,
}

struct Recording {
    parent: Option<SpanId>,
    parent_is_remote: bool,
    started: Instant,
    start_ns: u64,
    fields: Fields,
}

impl SpanLayer {
    pub(crate) fn new(sampler: Sampler, queue: mpsc::Sender<FinishedSpan>, counts: Counts) -> Self {
        Self { sampler, queue, counts }
    }

    /// As a layer that sees nothing but the spans that are marked.
    pub fn watching_marked<S>(self) -> impl Layer<S> + Send + Sync + 'static
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        self.with_filter(filter_fn(marked))
    }
}

fn marked(metadata: &Metadata<'_>) -> bool {
    metadata.is_span() && metadata.fields().field(KIND).is_some()
}

impl<S> Layer<S> for SpanLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        let above = span.parent().and_then(|parent| {
            let extensions = parent.extensions();
            let above = extensions.get::<Underway>()?;
            Some((
                ParentContext { trace: above.trace, span: above.id, sampled: above.recording.is_some() },
                false,
            ))
        });
        let above = above.or_else(|| Some((fields.caller?, true)));
        let trace = above.map_or_else(TraceId::random, |(parent, _)| parent.trace);
        let keep = match above {
            Some((parent, false)) => parent.sampled,
            _ => self.sampler.keeps(trace, above.as_ref().map(|(parent, _)| parent)),
        };
        let recording = keep.then(|| Recording {
            parent: above.map(|(parent, _)| parent.span),
            parent_is_remote: above.is_some_and(|(_, remote)| remote),
            started: Instant::now(),
            start_ns: now_ns(),
            fields,
        });
        span.extensions_mut().insert(Underway { trace, id: SpanId::random(), recording });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(recording) = extensions.get_mut::<Underway>().and_then(|span| span.recording.as_mut()) {
            values.record(&mut recording.fields);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(span) = context.span(&id) else { return };
        let Some(underway) = span.extensions_mut().remove::<Underway>() else { return };
        let Some(recording) = underway.recording else { return };
        let Fields { name, kind, failed, attributes, .. } = recording.fields;
        let took_ns = u64::try_from(recording.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let finished = FinishedSpan {
            trace: underway.trace,
            id: underway.id,
            parent: recording.parent,
            parent_is_remote: recording.parent_is_remote,
            name: name.map_or(Cow::Borrowed(span.name()), Cow::Owned),
            kind,
            start_ns: recording.start_ns,
            end_ns: recording.start_ns.saturating_add(took_ns),
            attributes,
            failed,
        };
        if self.queue.try_send(finished).is_err() {
            self.counts.lost.inc();
        }
    }
}

fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The fields of a span: those that speak to us, and the attributes.
struct Fields {
    name: Option<String>,
    kind: Kind,
    failed: bool,
    caller: Option<ParentContext>,
    attributes: Vec<(&'static str, Value)>,
}

impl Default for Fields {
    fn default() -> Self {
        Self { name: None, kind: Kind::Internal, failed: false, caller: None, attributes: Vec::new() }
    }
}

impl Fields {
    fn text(&mut self, name: &'static str, text: &str) {
        match name {
            KIND => self.kind = Kind::parse(text),
            "otel.name" => self.name = Some(short(text).to_owned()),
            "otel.status_code" => self.failed = text.eq_ignore_ascii_case("error"),
            "otel.parent" => self.caller = ParentContext::parse(text),
            _ => self.add(name, Value::Text(short(text).to_owned())),
        }
    }

    fn add(&mut self, name: &'static str, value: Value) {
        if let Some((_, known)) = self.attributes.iter_mut().find(|(known, _)| *known == name) {
            *known = value;
        } else if self.attributes.len() < ATTRIBUTES_MAX {
            self.attributes.push((name, value));
        }
    }
}

impl Visit for Fields {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(field.name(), Value::Real(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field.name(), Value::Whole(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field.name(), Value::Whole(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field.name(), Value::Truth(value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.text(field.name(), &format!("{value:?}"));
    }
}

#[cfg(test)]
mod tests {
    use tracing::{Span, info_span};
    use tracing_subscriber::prelude::*;

    use super::*;

    /// What is handed on of the spans that `work` makes.
    fn spans(sampler: Sampler, room: usize, work: impl FnOnce()) -> (Vec<FinishedSpan>, u64) {
        let (queue, mut waiting) = mpsc::channel(room);
        let counts = Counts::default();
        let layer = SpanLayer::new(sampler, queue, counts.clone());
        let subscriber = tracing_subscriber::registry().with(layer.watching_marked());
        tracing::subscriber::with_default(subscriber, work);
        let mut found = Vec::new();
        while let Ok(span) = waiting.try_recv() {
            found.push(span);
        }
        (found, counts.lost.get())
    }

    fn request(parent: Option<&str>) -> Span {
        info_span!(
            "request",
            otel.kind = "server",
            otel.name = "GET /x",
            otel.parent = parent,
            otel.status_code = tracing::field::Empty,
            status = tracing::field::Empty,
            id = %"abc"
        )
    }

    #[test]
    fn marked_spans_are_handed_on_with_their_parents() {
        let (found, lost) = spans(Sampler::default(), 8, || {
            let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
            let outer = request(Some(parent));
            outer.in_scope(|| {
                info_span!("unmarked", secret = "s3cr3t").in_scope(|| {
                    tracing::info!(secret = "s3cr3t", "an event");
                    drop(info_span!("step", otel.kind = "internal", n = -1, yes = true, x = 0.5));
                });
            });
            outer.record("status", 503_u16);
            outer.record("otel.status_code", "ERROR");
        });
        let [step, outer] = found.as_slice() else { panic!("{found:?}") };
        assert_eq!(lost, 0);
        assert_eq!((outer.trace.0[0], outer.parent.unwrap().0[0]), (0x0a, 0xb7));
        assert_eq!((outer.name.as_ref(), outer.kind, outer.failed), ("GET /x", Kind::Server, true));
        assert!(outer.parent_is_remote && !step.parent_is_remote && !step.failed);
        assert_eq!(outer.attributes, [("id", Value::Text("abc".to_owned())), ("status", Value::Whole(503))]);
        assert_eq!((step.trace, step.parent, step.name.as_ref()), (outer.trace, Some(outer.id), "step"));
        let attributes = [("n", Value::Whole(-1)), ("yes", Value::Truth(true)), ("x", Value::Real(0.5))];
        assert_eq!(step.attributes, attributes);
        assert!(outer.start_ns <= step.start_ns && step.end_ns <= outer.end_ns + 1_000_000);
        assert!(!format!("{found:?}").contains("s3cr3t"));
    }

    #[test]
    fn a_trace_that_its_caller_drops_is_dropped_whole() {
        let (found, _) = spans(Sampler::default(), 8, || {
            request(Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"))
                .in_scope(|| drop(info_span!("step", otel.kind = "internal")));
        });
        assert_eq!(found, []);
        let (found, _) = spans(Sampler::default(), 8, || drop(request(Some("nonsense"))));
        assert!(found.len() == 1 && found[0].parent.is_none());
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let (found, lost) = spans(Sampler::default(), 2, || (0..5).for_each(|_| drop(request(None))));
        assert_eq!((found.len(), lost), (2, 3));
    }
}
