//! How requests fail on the wire.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use contract::error::ErrorBody;
use control::{ControlError, Kind};

use crate::request_id;

/// A failed request.
#[derive(Debug)]
pub(crate) struct ApiError(pub(crate) ControlError);

/// What handlers return.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

impl From<ControlError> for ApiError {
    fn from(error: ControlError) -> Self {
        Self(error)
    }
}

pub(crate) fn status(kind: Kind) -> StatusCode {
    match kind {
        Kind::Invalid => StatusCode::BAD_REQUEST,
        Kind::Unauthorized => StatusCode::UNAUTHORIZED,
        Kind::Forbidden => StatusCode::FORBIDDEN,
        Kind::NotFound => StatusCode::NOT_FOUND,
        Kind::Conflict => StatusCode::CONFLICT,
        Kind::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        Kind::Method => StatusCode::METHOD_NOT_ALLOWED,
        Kind::Quota | Kind::Rate => StatusCode::TOO_MANY_REQUESTS,
        Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        Kind::Upstream | Kind::NotListening => StatusCode::BAD_GATEWAY,
        Kind::Unavailable | Kind::Preparing => StatusCode::SERVICE_UNAVAILABLE,
        Kind::Timeout => StatusCode::GATEWAY_TIMEOUT,
        Kind::NoSpace => StatusCode::INSUFFICIENT_STORAGE,
    }
}

/// An error as callers are told of it.
pub(crate) fn body(error: ControlError) -> ErrorBody {
    ErrorBody {
        error: error.message,
        code: error.kind.code().to_owned(),
        hint: error.hint,
        request_id: request_id::current(),
        partial: error.partial.map(|partial| *partial),
        progress: error.progress.map(|progress| *progress),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(error) = self;
        let cause = error.cause();
        if error.kind == Kind::Internal {
            tracing::error!(cause, "a request failed: {error}");
        } else if let Some(cause) = cause {
            tracing::info!(cause, "a request failed: {error}");
        }
        let (status, retry_after) = (status(error.kind), error.retry_after);
        let mut response = (status, axum::Json(body(error))).into_response();
        if let Some(after) = retry_after {
            let seconds = after.as_secs().max(1);
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}
