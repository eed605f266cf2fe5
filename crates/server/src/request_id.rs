//! Names each request, logs how it ended, and lets browsers call from anywhere.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use control::Control;
use tracing::Instrument;

const HEADER: HeaderName = HeaderName::from_static("x-request-id");
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

fn fresh() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{:x}-{:x}", now.as_micros(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Around every request.
pub(crate) async fn layer(State(control): State<Control>, request: Request, next: Next) -> Response {
    let given = request.headers().get(&HEADER).and_then(|value| value.to_str().ok());
    let plain = |text: &&str| {
        text.len() <= LENGTH_MAX && !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    let id = given.filter(plain).map_or_else(fresh, str::to_owned);
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().map_or("unmatched", MatchedPath::as_str).to_owned();
    let span = tracing::info_span!("request", request.id = %id, http.method = %method, http.route = %route);
    let started = Instant::now();
    let handled = async {
        let mut response = match method {
            // What browsers ask before they call from another page.
            Method::OPTIONS => StatusCode::NO_CONTENT.into_response(),
            _ => next.run(request).await,
        };
        let took = started.elapsed();
        let status = response.status().as_u16();
        control.measurements().requested(method.as_str(), &route, status, took);
        tracing::debug!(http.status = status, took_ms = took.as_secs_f64() * 1000.0, "request");
        let headers = response.headers_mut();
        if let Ok(value) = HeaderValue::from_str(&id) {
            headers.insert(HEADER, value);
        }
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_METHODS,
            HeaderValue::from_static("GET, POST, PUT, PATCH, DELETE, OPTIONS"),
        );
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static(
                "authorization, content-type, x-request-id, x-pandastack-org, x-stub-user, x-fcs-workspace",
            ),
        );
        headers.insert(
            header::ACCESS_CONTROL_EXPOSE_HEADERS,
            HeaderValue::from_static("x-request-id, retry-after"),
        );
        response
    };
    CURRENT.scope(id.clone(), handled.instrument(span)).await
}
