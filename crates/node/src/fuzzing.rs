//! What `fuzz/` reaches of this crate besides its public part. Not part of any build that is shipped.

use crate::hibernation::Image;

/// Reads `hibernation.json`; whether it was one.
#[must_use]
pub fn hibernation(json: &[u8]) -> bool {
    serde_json::from_slice::<Image>(json).is_ok()
}
