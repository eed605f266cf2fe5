//! Names each request, counts how it ended, and lets browsers call from anywhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use control::Control;
use domain::SandboxId;
use tracing::field::Empty;
use tracing::{Instrument, Span};

use crate::access_log::Entry;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// W3C Trace Context: which trace the caller's request belongs to.
const TRACE_PARENT: HeaderName = HeaderName::from_static("traceparent");
/// What lets browsers call from any page.
const CROSS_ORIGIN: [(HeaderName, &str); 4] = [
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE, OPTIONS"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "authorization, content-type, prefer, x-request-id, x-pandastack-org, x-stub-user, x-fcs-workspace, traceparent, tracestate",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "x-request-id, retry-after"),
];
/// Routes whose requests are passed on to guests.
const PROXY_ROUTE: &str = "/v1/sandboxes/{id}/proxy/";
/// Longest id or trace taken from a caller.
const LENGTH_MAX: usize = 128;

static NEXT: AtomicU64 = AtomicU64::new(0);

tokio::task_local! {
    static CURRENT: String;
}

/// The id of the request being handled.
pub(crate) fn current() -> String {
    CURRENT.try_with(Clone::clone).unwrap_or_default()
}

/// A new id.
pub(crate) fn fresh() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_micros(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Methods as they are counted: whoever asks must not be able to invent new ones.
fn counted(method: &Method) -> &str {
    match *method {
        Method::GET
        | Method::HEAD
        | Method::POST
        | Method::PUT
        | Method::PATCH
        | Method::DELETE
        | Method::OPTIONS => method.as_str(),
        _ => "OTHER",
    }
}

/// What is known of a request before it is handled.
pub(crate) struct Incoming {
    /// Its id.
    pub(crate) id: String,
    method: Method,
    route: String,
    /// The sandbox it is about.
    sandbox: Option<SandboxId>,
    /// The caller's `traceparent`, if it looks like one.
    trace: Option<String>,
}

impl Incoming {
    /// A request to a route. A trace is continued only where the request is the API's: what is sent to a guest is the guest's.
    pub(crate) fn new(id: String, method: Method, route: &str, sandbox: Option<SandboxId>) -> Self {
        Self { id, method, route: route.to_owned(), sandbox, trace: None }
    }

    fn continuing(mut self, headers: &HeaderMap) -> Self {
        let given = headers.get(TRACE_PARENT).and_then(|value| value.to_str().ok());
        let plain = |text: &&str| {
            text.len() <= LENGTH_MAX && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
        };
        self.trace = given.filter(plain).map(str::to_owned);
        self
    }

    /// The request's span. Of the highest level: whatever is logged, the request's id is with it. It may be sent to a collector of
    /// traces, so nothing of the address but its route is in it: queries and paths may hold keys.
    fn span(&self) -> Span {
        let (method, route) = (counted(&self.method), self.route.as_str());
        tracing::error_span!(
            "request",
            request.id = %self.id,
            http.request.method = method,
            http.route = route,
            http.response.status_code = Empty,
            tenant.id = Empty,
            sandbox.id = self.sandbox.as_ref().map(SandboxId::as_str),
            otel.kind = "server",
            otel.name = format_args!("{method} {route}"),
            otel.parent = self.trace.as_deref(),
            otel.status_code = Empty,
        )
    }
}

/// Handles a request under its id, counts how it ended and has it written into the access log.
pub(crate) async fn scope(
    control: &Control,
    incoming: Incoming,
    handled: impl Future<Output = Response>,
) -> Response {
    let span = incoming.span();
    let started = Instant::now();
    let Incoming { id, method, route, .. } = incoming;
    let entry =
        Entry { method: counted(&method).to_owned(), route: route.clone(), request_id: id.clone(), started };
    let measured = async {
        let response = handled.await;
        let took = started.elapsed();
        let status = response.status();
        control.measurements().requested(counted(&method), &route, status.as_u16(), took);
        let span = Span::current();
        span.record("http.response.status_code", status.as_u16());
        if status.is_server_error() {
            span.record("otel.status_code", "ERROR");
        }
        entry.follow(response)
    };
    CURRENT.scope(id, measured.instrument(span)).await
}

/// The sandbox that a path of the API names by its whole id. What is shorter is a name or the beginning of an id.
fn sandbox_in(path: &str) -> Option<SandboxId> {
    let rest = path.strip_prefix("/v1/sandboxes/")?;
    SandboxId::parse(rest.split('/').next()?).ok().filter(SandboxId::is_whole)
}

/// Whether a request is what browsers ask before they call from another page. They send no key with it, so it is answered here
/// even where other requests are passed on to a guest.
fn preflight(method: &Method, headers: &HeaderMap, route: &str) -> bool {
    let passed_on = route.starts_with(PROXY_ROUTE);
    *method == Method::OPTIONS && (!passed_on || headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD))
}

/// Around every request to the API.
pub(crate) async fn layer(State(control): State<Control>, request: Request, next: Next) -> Response {
    let given = request.headers().get(&HEADER).and_then(|value| value.to_str().ok());
    let plain = |text: &&str| {
        text.len() <= LENGTH_MAX && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let id = given.filter(plain).map_or_else(fresh, str::to_owned);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let incoming = Incoming::new(id.clone(), method.clone(), &route, sandbox_in(request.uri().path()))
        .continuing(request.headers());
    let handled = async {
        match preflight(&method, request.headers(), &route) {
            true => StatusCode::NO_CONTENT.into_response(),
            false => next.run(request).await,
        }
    };
    let mut response = scope(&control, incoming, handled).await;
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert(HEADER, value);
    }
    // A guest's own answer may already say who may read it.
    for (name, value) in CROSS_ORIGIN {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}
