//! Request bodies as published clients send them: an empty body is `{}` whatever its content type, `null` too, unknown fields
//! are ignored.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use control::{ControlError, Kind};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::answer::Failed;

/// Largest JSON body.
pub(crate) const JSON_BYTES_MAX: usize = 8 << 20;

/// What is still read of a body that is too large, and for how long.
const REST_BYTES_MAX: usize = 64 << 20;
const REST_PATIENCE: Duration = Duration::from_secs(5);

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Failed;

    async fn from_request(request: Request, _: &S) -> Result<Self, Failed> {
        parse(request.into_body()).await.map(Json)
    }
}

async fn parse<T: DeserializeOwned>(body: Body) -> Result<T, Failed> {
    let bytes = read(body, JSON_BYTES_MAX).await?;
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

/// A whole body.
pub(crate) async fn read(mut body: Body, bytes_max: usize) -> Result<Bytes, ControlError> {
    match Limited::new(&mut body, bytes_max).collect().await {
        Ok(read) => Ok(read.to_bytes()),
        Err(error) => {
            if error.is::<LengthLimitError>() {
                pass_over_rest(body).await;
            }
            let message = format!("the body is larger than {bytes_max} bytes, or was cut off");
            Err(ControlError::new(Kind::TooLarge, message))
        }
    }
}

/// A client that is still sending when its connection is closed hears that it broke, and not why.
async fn pass_over_rest(mut body: Body) {
    let passing = async {
        let mut passed = 0;
        while passed < REST_BYTES_MAX
            && let Some(Ok(frame)) = body.frame().await
        {
            passed += frame.data_ref().map_or(0, Bytes::len);
        }
    };
    drop(tokio::time::timeout(REST_PATIENCE, passing).await);
}
