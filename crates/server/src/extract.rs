//! Paths and queries, refused in the same form as everything else.

use axum::extract::{FromRequestParts, rejection};
use axum::http::request::Parts;
use control::ControlError;
use serde::de::DeserializeOwned;

use crate::answer::ApiError;

/// Parts of a path.
pub(crate) struct Path<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Path::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Path(value)) => Ok(Self(value)),
            Err(rejection::PathRejection::FailedToDeserializePathParams(error)) => {
                Err(ControlError::not_found(format!("malformed path: {}", error.body_text())).into())
            }
            Err(error) => Err(ControlError::internal(error).into()),
        }
    }
}

/// A query.
pub(crate) struct Query<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        match axum::extract::Query::<T>::from_request_parts(parts, state).await {
            Ok(axum::extract::Query(value)) => Ok(Self(value)),
            Err(error) => {
                Err(ControlError::invalid(format!("malformed query: {}", error.body_text())).into())
            }
        }
    }
}
