//! Checks keys. A key is looked up by its hash; recent answers are remembered, and forgotten the moment a key is revoked.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest, Sha256};
use store::TokenRow;

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::{ControlError, Kind};

/// Keys remembered; beyond that all are forgotten and looked up again.
const KNOWN_MAX: usize = 4096;
/// Longest key worth hashing.
const KEY_BYTES_MAX: usize = 256;

#[derive(Default)]
pub(crate) struct KnownTokens {
    by_hash: Mutex<HashMap<[u8; 32], TokenRow>>,
}

impl KnownTokens {
    fn lock(&self) -> MutexGuard<'_, HashMap<[u8; 32], TokenRow>> {
        self.by_hash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything: something was revoked.
    pub(crate) fn clear(&self) {
        self.lock().clear();
    }
}

pub(crate) fn hash(key: &str) -> [u8; 32] {
    Sha256::digest(key.as_bytes()).into()
}

fn unauthorized() -> ControlError {
    ControlError::new(Kind::Unauthorized, "unauthorized: the API key is missing, unknown, expired or revoked")
        .hint("send `Authorization: Bearer pds_…`")
}

impl Control {
    /// Who a key belongs to; also counts the request against the tenant's rate.
    pub async fn authenticate(&self, key: Option<&str>) -> Result<Caller, ControlError> {
        let key = key
            .filter(|key| key.len() <= KEY_BYTES_MAX && key.starts_with("pds_"))
            .ok_or_else(unauthorized)?;
        let hash = hash(key);
        let known = self.known_tokens().lock().get(&hash).cloned();
        let token = match known {
            Some(token) => token,
            None => {
                let token = self.store().token_by_hash(hash).await?.ok_or_else(unauthorized)?;
                let mut remembered = self.known_tokens().lock();
                if remembered.len() >= KNOWN_MAX {
                    remembered.clear();
                }
                remembered.insert(hash, token.clone());
                token
            }
        };
        let works = token.revoked_ms.is_none() && token.expires_ms.is_none_or(|expires| expires > now_ms());
        if !works {
            return Err(unauthorized());
        }
        self.rates().take(&token.tenant)?;
        Ok(Caller { tenant: token.tenant, token: token.prefix, scope: token.scope })
    }

    /// Whether a caller that was let in earlier would be let in now. For connections that last.
    pub async fn authenticate_again(&self, caller: &Caller) -> Result<(), ControlError> {
        let tokens = self.store().tokens(&caller.tenant).await?;
        let now = now_ms();
        let works = |token: &TokenRow| {
            token.prefix == caller.token && token.expires_ms.is_none_or(|expires| expires > now)
        };
        if tokens.iter().any(works) { Ok(()) } else { Err(unauthorized()) }
    }
}
