//! Checks keys, from the header or, for browsers that cannot set one, from the query.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use control::Control;

use crate::access_log::Tenant;
use crate::answer::ApiError;
use crate::audit;

/// The name of the query parameter that holds a key.
pub(crate) const QUERY_KEY: &str = "access_token";

/// The key in a header.
pub(crate) fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(key.trim())
}

/// The key in a query, percent-decoding not needed: keys are letters, digits and `_`.
fn in_query(query: Option<&str>) -> Option<&str> {
    query?.split('&').find_map(|pair| pair.strip_prefix(QUERY_KEY)?.strip_prefix('='))
}

/// Around every request that needs a key.
pub(crate) async fn layer(State(control): State<Control>, mut request: Request, next: Next) -> Response {
    let key = bearer(request.headers()).or_else(|| in_query(request.uri().query())).map(str::to_owned);
    match control.authenticate(key.as_deref()).await {
        Ok(caller) => {
            let (method, path) = (request.method().clone(), request.uri().path().to_owned());
            request.extensions_mut().insert(caller.clone());
            tracing::Span::current().record("tenant.id", caller.tenant.as_str());
            let mut response = next.run(request).await;
            if let Some(id) = caller.resolved() {
                tracing::Span::current().record("sandbox.id", id.as_str());
            }
            response.extensions_mut().insert(Tenant(caller.tenant.clone()));
            audit::note(&control, &caller, &method, &path, response.status()).await;
            response
        }
        Err(error) => ApiError(error).into_response(),
    }
}
