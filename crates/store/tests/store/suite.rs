//! What every store promises, whatever it keeps its rows in. Each function gets an empty store.

pub(crate) mod history;
pub(crate) mod owners;
pub(crate) mod sandboxes;
pub(crate) mod templates;
pub(crate) mod things;
pub(crate) mod whole;

use store::StoreError;

/// Whether a result says that something is there already.
fn exists<T>(result: Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Exists { .. }))
}

/// The limit that was reached, in words.
fn limit<T>(result: Result<T, StoreError>) -> Option<(&'static str, u64)> {
    match result {
        Err(StoreError::Quota { what, limit }) => Some((what, limit)),
        _ => None,
    }
}
