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
    remembered: Mutex<Remembered>,
}

#[derive(Default)]
struct Remembered {
    by_hash: HashMap<[u8; 32], TokenRow>,
    /// How often everything was forgotten.
    generation: u64,
}

impl KnownTokens {
    fn lock(&self) -> MutexGuard<'_, Remembered> {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is remembered of a key, and the generation that a later answer of the store would belong to.
    fn find(&self, hash: &[u8; 32]) -> (Option<TokenRow>, u64) {
        let remembered = self.lock();
        (remembered.by_hash.get(hash).cloned(), remembered.generation)
    }

    /// Remembers an answer of the store, unless something was revoked since it was asked: the answer may be from before.
    fn remember(&self, hash: [u8; 32], token: TokenRow, generation: u64) {
        let mut remembered = self.lock();
        if remembered.generation != generation {
            return;
        }
        if remembered.by_hash.len() >= KNOWN_MAX {
            remembered.by_hash.clear();
        }
        remembered.by_hash.insert(hash, token);
    }

    /// Forgets everything: something was revoked.
    pub(crate) fn clear(&self) {
        let mut remembered = self.lock();
        remembered.by_hash.clear();
        remembered.generation += 1;
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
        let (known, generation) = self.known_tokens().find(&hash);
        let token = match known {
            Some(token) => token,
            None => {
                let token = self.store().token_by_hash(hash).await?.ok_or_else(unauthorized)?;
                self.known_tokens().remember(hash, token.clone(), generation);
                token
            }
        };
        let works = token.revoked_ms.is_none() && token.expires_ms.is_none_or(|expires| expires > now_ms());
        if !works {
            return Err(unauthorized());
        }
        self.rates().take(&token.tenant)?;
        Ok(Caller::new(token.tenant, token.prefix, token.scope))
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

#[cfg(test)]
mod tests {
    use domain::TenantId;
    use store::Scope;

    use super::*;

    #[test]
    fn an_answer_from_before_a_revocation_is_not_remembered() {
        let (known, hash) = (KnownTokens::default(), hash("pds_key"));
        let token = TokenRow {
            hash,
            prefix: "pds_key".to_owned(),
            tenant: TenantId::from_random([1; 16]),
            label: String::new(),
            scope: Scope::Read,
            created_ms: 0,
            expires_ms: None,
            revoked_ms: None,
        };
        let (_, before) = known.find(&hash);
        known.clear();
        known.remember(hash, token.clone(), before);
        assert!(known.find(&hash).0.is_none());
        let (_, now) = known.find(&hash);
        known.remember(hash, token, now);
        assert!(known.find(&hash).0.is_some());
    }
}
