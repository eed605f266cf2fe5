//! Request bodies as published clients send them: an empty body is `{}` whatever its content type, `null` too, unknown fields
//! are ignored.

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequest, Request};
use control::{ControlError, Kind};
use serde::de::DeserializeOwned;

use crate::answer::Failed;

/// Largest JSON body.
pub(crate) const JSON_BYTES_MAX: usize = 8 << 20;

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failed> {
        parse(request.into_body()).await.map(Json)
    }
}

async fn parse<T: DeserializeOwned>(body: Body) -> Result<T, Failed> {
    let bytes = to_bytes(body, JSON_BYTES_MAX).await.map_err(|_| {
        let message = format!("the body is larger than {JSON_BYTES_MAX} bytes, or was cut off");
        ControlError::new(Kind::TooLarge, message)
    })?;
    // All of it, unknown fields included.
    let text = std::str::from_utf8(&bytes)
        .map_err(|error| ControlError::invalid(format!("the body is not UTF-8: {error}")))?;
    let text = match text.trim_ascii() {
        "" | "null" => "{}",
        text => text,
    };
    // A list would be taken for an object's fields in their order.
    if !text.starts_with('{') {
        return Err(ControlError::invalid("the body must be a JSON object").into());
    }
    serde_json::from_str(text).map_err(|error| {
        ControlError::invalid(format!("the body is not the JSON expected here: {error}")).into()
    })
}
