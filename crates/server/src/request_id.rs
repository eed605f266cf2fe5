//! Names each request, logs how it ended, and lets browsers call from anywhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use control::Control;
use tracing::Instrument;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
/// What lets browsers call from any page.
const CROSS_ORIGIN: [(HeaderName, &str); 4] = [
    (header::ACCESS_CONTROL_ALLOW_ORIGIN, "*"),
    (header::ACCESS_CONTROL_ALLOW_METHODS, "GET, POST, PUT, PATCH, DELETE, OPTIONS"),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "authorization, content-type, x-request-id, x-pandastack-org, x-stub-user, x-fcs-workspace",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "x-request-id, retry-after"),
];
/// Routes whose requests are passed on to guests.
const PROXY_ROUTE: &str = "/v1/sandboxes/{id}/proxy/";
/// Longest id taken from a caller.
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

/// Handles a request under its id, logs and counts how it ended.
pub(crate) async fn scope(
    control: &Control,
    id: String,
    method: &Method,
    route: &str,
    handled: impl Future<Output = Response>,
) -> Response {
    let span = tracing::info_span!("request", request.id = %id, http.method = %method, http.route = %route);
    let started = Instant::now();
    let measured = async {
        let response = handled.await;
        let took = started.elapsed();
        let status = response.status().as_u16();
        control.measurements().requested(counted(method), route, status, took);
        tracing::debug!(http.status = status, took_ms = took.as_secs_f64() * 1000.0, "request");
        response
    };
    CURRENT.scope(id, measured.instrument(span)).await
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
    let handled = async {
        match preflight(&method, request.headers(), &route) {
            true => StatusCode::NO_CONTENT.into_response(),
            false => next.run(request).await,
        }
    };
    let mut response = scope(&control, id.clone(), &method, &route, handled).await;
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
