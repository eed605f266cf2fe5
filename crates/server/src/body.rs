//! Request bodies as published clients send them: an empty body is `{}` whatever its content type, `null` too. A field that
//! nobody knows is refused by name: the types of the contract say which there are.

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use control::{ControlError, Kind};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;

use crate::answer::ApiError;

/// Largest JSON body.
pub(crate) const JSON_BYTES_MAX: usize = 8 << 20;

/// What is still read of a body that is too large, and for how long.
const REST_BYTES_MAX: usize = 64 << 20;
const REST_TIMEOUT: Duration = Duration::from_secs(5);

/// How much of a field's name is shown back.
const FIELD_LENGTH_MAX: usize = 64;

/// A JSON body.
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Result<Self, ApiError> {
        parse(request.into_body()).await.map(Json)
    }
}

async fn parse<T: DeserializeOwned>(body: Body) -> Result<T, ApiError> {
    let bytes = read(body, JSON_BYTES_MAX).await?;
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
        let message = unknown_field(&error)
            .unwrap_or_else(|| format!("the body is not the JSON expected here: {error}"));
        ControlError::invalid(message).into()
    })
}

/// How a field is refused that nobody knows. The name is shown cut and escaped.
pub(crate) fn unknown(field: &str, known: &[&str]) -> String {
    let field: String = field.chars().take(FIELD_LENGTH_MAX).collect();
    let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
    format!("unknown field {field:?}; known fields: {known}")
}

/// The same, out of what the parser says: "unknown field `x`, expected one of `a`, `b` at line 1 column 2".
fn unknown_field(error: &serde_json::Error) -> Option<String> {
    let text = error.to_string();
    let rest = text.strip_prefix("unknown field `")?;
    // From the end: the field's name is the caller's, and may hold anything.
    let (field, expected) =
        rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no fields"))?;
    let known: Vec<_> = expected.split('`').skip(1).step_by(2).collect();
    Some(unknown(field, &known))
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
    drop(tokio::time::timeout(REST_TIMEOUT, passing).await);
}

#[cfg(test)]
mod tests {
    use contract::file::FileChange;
    use contract::lifecycle::StartRequest;
    use contract::sandbox::CreateSandbox;
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}

    fn check<T: DeserializeOwned + std::fmt::Debug>(text: &str, expected: &str) {
        let error = serde_json::from_str::<T>(text).unwrap_err();
        assert_eq!(unknown_field(&error).unwrap_or_else(|| error.to_string()), expected);
    }

    #[test]
    fn fields_that_nobody_knows_are_named() {
        check::<FileChange>(r#"{"bogus": 1}"#, r#"unknown field "bogus"; known fields: path, to, mode"#);
        check::<StartRequest>(r#"{"cold": true, "x": 1}"#, r#"unknown field "x"; known fields: cold"#);
        check::<Nothing>(r#"{"x": 1}"#, r#"unknown field "x"; known fields: none"#);
        let odd = r#"{"a`, expected `b\n\"": 1}"#;
        check::<StartRequest>(odd, r#"unknown field "a`, expected `b\n\""; known fields: cold"#);
        let long = format!("{{\"{}\": 1}}", "x".repeat(1000));
        check::<StartRequest>(&long, &format!("unknown field {:?}; known fields: cold", "x".repeat(64)));
        let nested = r#"{"volumes": [{"name": "data", "mode": "ro"}]}"#;
        let error = serde_json::from_str::<CreateSandbox>(nested).unwrap_err();
        assert!(
            unknown_field(&error)
                .is_some_and(|text| text.starts_with("unknown field \"mode\"; known fields: name"))
        );
    }
}
