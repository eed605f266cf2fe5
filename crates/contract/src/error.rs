//! What every failed request answers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A failed request. `error` is a sentence the caller can act on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// What is wrong, and what to do about it.
    pub error: String,
    /// A stable word for programs, such as `not_found`.
    pub code: String,
    /// What may help.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// Names this request in the server's log.
    pub request_id: String,
}
