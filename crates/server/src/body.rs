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
    let text: &[u8] = match bytes.trim_ascii() {
        b"" | b"null" => b"{}",
        text => text,
    };
    serde_json::from_slice(text).map_err(|error| {
        ControlError::invalid(format!("the body is not the JSON expected here: {error}")).into()
    })
}
