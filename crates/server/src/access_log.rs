//! The access log: a line for each request, written when its answer has been sent, or when the client is gone.
//!
//! Nothing that a client wrote is in it: paths and queries may hold keys, so the route stands for them.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::http::StatusCode;
use axum::response::Response;
use domain::TenantId;
use hyper::body::{Bytes, Frame, SizeHint};

/// Routes that are asked all the time by what watches the server.
const PROBES: [&str; 2] = ["/healthz", "/metrics"];

/// The tenant whose request it was: an extension of the answer, set where the request was let in.
#[derive(Debug, Clone)]
pub(crate) struct Tenant(pub(crate) TenantId);

/// What is written about a request.
struct Line {
    method: String,
    route: String,
    status: StatusCode,
    request_id: String,
    tenant: Option<TenantId>,
    started: Instant,
    bytes: u64,
}

/// What is known of a request before it is handled.
pub(crate) struct Entry {
    pub(crate) method: String,
    pub(crate) route: String,
    pub(crate) request_id: String,
    pub(crate) started: Instant,
}

impl Entry {
    /// The answer, of which a line is written once it has been sent.
    pub(crate) fn follow(self, mut response: Response) -> Response {
        let tenant = response.extensions_mut().remove::<Tenant>().map(|Tenant(tenant)| tenant);
        let Self { method, route, request_id, started } = self;
        let line = Line { method, route, status: response.status(), request_id, tenant, started, bytes: 0 };
        response.map(|inner| Body::new(Followed { inner, line }))
    }
}

impl Line {
    fn is_probe(&self) -> bool {
        PROBES.contains(&self.route.as_str()) && self.status.is_success()
    }
}

fn milliseconds(duration: Duration) -> f64 {
    (duration.as_secs_f64() * 10_000.0).round() / 10.0
}

impl Drop for Line {
    fn drop(&mut self) {
        let (method, route, status) = (self.method.as_str(), self.route.as_str(), self.status.as_u16());
        let (request_id, bytes) = (self.request_id.as_str(), self.bytes);
        let tenant = self.tenant.as_ref().map(TenantId::as_str);
        let duration_ms = milliseconds(self.started.elapsed());
        macro_rules! write {
            ($level:expr) => {
                tracing::event!(
                    target: "access", $level, method, route, status, duration_ms, bytes, request_id, tenant,
                    "{method} {route} {status}"
                )
            };
        }
        match self.is_probe() {
            true => write!(tracing::Level::DEBUG),
            false => write!(tracing::Level::INFO),
        }
    }
}

/// An answer's body. Its line is written when it is dropped, which is when it has been sent.
struct Followed {
    inner: Body,
    line: Line,
}

impl hyper::body::Body for Followed {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = Pin::new(&mut self.inner).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled
            && let Some(data) = frame.data_ref()
        {
            self.line.bytes += data.len() as u64;
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::{Debug, Write};
    use std::sync::{Arc, Mutex};

    use http_body_util::BodyExt;
    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<String>>>);

    struct Fields(String);

    impl Visit for Fields {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            if field.name() != "duration_ms" && field.name() != "message" {
                let _ = write!(self.0, " {}={value:?}", field.name());
            }
        }
    }

    impl Subscriber for Log {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }
        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, event: &Event<'_>) {
            let metadata = event.metadata();
            let mut fields = Fields(format!("{} {}", metadata.target(), metadata.level()));
            event.record(&mut fields);
            self.0.lock().unwrap().push(fields.0);
        }
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn followed(route: &str, response: Response) -> Response {
        let entry = Entry {
            method: "GET".to_owned(),
            route: route.to_owned(),
            request_id: "r1".to_owned(),
            started: Instant::now(),
        };
        entry.follow(response)
    }

    #[tokio::test]
    async fn a_line_is_written_when_the_answer_was_sent() {
        let log = Log::default();
        let _logging = tracing::subscriber::set_default(log.clone());
        let tenant = TenantId::from_random([2; 16]);
        let mut response = Response::new(Body::from("hello"));
        response.extensions_mut().insert(Tenant(tenant.clone()));
        let response = followed("/v1/f/{token}", response);
        assert!(log.0.lock().unwrap().is_empty(), "it is not sent yet");
        assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "hello");
        drop(followed("/healthz", Response::new(Body::empty())));
        let mut ill = Response::new(Body::empty());
        *ill.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        drop(followed("/healthz", ill));
        let expected = [
            format!(
                "access INFO method=\"GET\" route=\"/v1/f/{{token}}\" status=200 bytes=5 request_id=\"r1\" tenant=\"{tenant}\""
            ),
            "access DEBUG method=\"GET\" route=\"/healthz\" status=200 bytes=0 request_id=\"r1\"".to_owned(),
            "access INFO method=\"GET\" route=\"/healthz\" status=503 bytes=0 request_id=\"r1\"".to_owned(),
        ];
        assert_eq!(*log.0.lock().unwrap(), expected);
    }
}
