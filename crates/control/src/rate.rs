//! How often a tenant may ask: a bucket of permissions that refills.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use domain::TenantId;

use crate::caller::Caller;
use crate::control::Control;
use crate::error::{ControlError, Kind};

/// How often a tenant's models may call tools: in the long run, and at once.
pub(crate) const TOOL_CALLS_PER_MINUTE: f64 = 60.0;

struct Bucket {
    left: f64,
    at: Instant,
}

/// Buckets of all tenants. One is forgotten when it is full again, so there are never more than there are busy tenants.
pub(crate) struct Rates {
    burst: f64,
    per_second: f64,
    buckets: Mutex<HashMap<TenantId, Bucket>>,
}

/// Above this many, full buckets are thrown away.
const BUCKETS_SWEEP: usize = 1024;

impl Rates {
    pub(crate) fn new(burst: f64, per_second: f64) -> Self {
        Self { burst, per_second, buckets: Mutex::default() }
    }

    /// Takes one permission.
    pub(crate) fn take(&self, tenant: &TenantId) -> Result<(), ControlError> {
        self.take_at(tenant, Instant::now())
    }

    fn take_at(&self, tenant: &TenantId, now: Instant) -> Result<(), ControlError> {
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let level = |bucket: &Bucket| {
            (bucket.left + now.saturating_duration_since(bucket.at).as_secs_f64() * self.per_second)
                .min(self.burst)
        };
        if buckets.len() > BUCKETS_SWEEP {
            buckets.retain(|_, bucket| level(bucket) < self.burst);
        }
        let left = buckets.get(tenant).map_or(self.burst, level);
        let taken = if left >= 1.0 { left - 1.0 } else { left };
        buckets.insert(tenant.clone(), Bucket { left: taken, at: now });
        if left >= 1.0 {
            return Ok(());
        }
        let message =
            format!("too many requests; at most {} per second are taken in the long run", self.per_second);
        Err(ControlError::new(Kind::Rate, message).retry_after(Duration::from_secs(1)))
    }
}

impl Control {
    /// Counts a tool that a model calls against its tenant's rate.
    pub fn count_tool_call(&self, caller: &Caller) -> Result<(), ControlError> {
        self.tool_rates().take(&caller.tenant).map_err(|mut error| {
            error.message =
                format!("too many tool calls; at most {TOOL_CALLS_PER_MINUTE} per minute are taken");
            error
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_taken_then_the_rate_holds() {
        let rates = Rates::new(3.0, 2.0);
        let (one, other) = (TenantId::from_random([1; 16]), TenantId::from_random([2; 16]));
        let start = Instant::now();
        for _ in 0..3 {
            rates.take_at(&one, start).unwrap();
        }
        let refused = rates.take_at(&one, start).unwrap_err();
        assert_eq!((refused.kind, refused.retry_after.is_some()), (Kind::Rate, true));
        rates.take_at(&other, start).unwrap();
        rates.take_at(&one, start + Duration::from_millis(600)).unwrap();
        rates.take_at(&one, start + Duration::from_millis(700)).unwrap_err();
    }
}
