//! When to try again what failed: later each time, so that what is in trouble is not kept busy by us.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// The rest after a first failure. Each further one is twice as long.
const REST: Duration = Duration::from_secs(30);
/// The longest rest: how long the archive may stay behind once its store answers again.
const REST_MAX: Duration = Duration::from_secs(10 * 60);

#[derive(Debug)]
struct Rest {
    failures: u32,
    over: Instant,
}

/// What failed, and until when each backoff.
#[derive(Debug)]
pub(super) struct Backoff<K> {
    backoff: HashMap<K, Rest>,
}

impl<K> Default for Backoff<K> {
    fn default() -> Self {
        Self { backoff: HashMap::new() }
    }
}

impl<K: Eq + Hash> Backoff<K> {
    /// Whether this may be tried now.
    pub(super) fn may_try(&self, key: &K, now: Instant) -> bool {
        self.backoff.get(key).is_none_or(|rest| rest.over <= now)
    }

    /// It was tried and failed.
    pub(super) fn failed(&mut self, key: K, now: Instant) {
        let rest = self.backoff.entry(key).or_insert(Rest { failures: 0, over: now });
        rest.over = now + rest_after(rest.failures);
        rest.failures += 1;
    }

    /// It went well.
    pub(super) fn succeeded(&mut self, key: &K) {
        self.backoff.remove(key);
    }

    /// Forgets those of which nothing is wanted any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(&K) -> bool) {
        self.backoff.retain(|key, _| wanted(key));
    }

    /// When something may be tried again that may not now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.backoff.values().map(|rest| rest.over).filter(|over| *over > now).min()
    }
}

fn rest_after(failures: u32) -> Duration {
    REST.saturating_mul(1 << failures.min(16)).min(REST_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_their_limit() {
        let backoff: Vec<u64> = (0..7).map(|failures| rest_after(failures).as_secs()).collect();
        assert_eq!(backoff, [30, 60, 120, 240, 480, 600, 600]);
        assert_eq!(rest_after(u32::MAX), REST_MAX);
    }

    #[test]
    fn each_rests_by_itself_until_it_may_be_tried_again() {
        let mut backoff = Backoff::default();
        let began = Instant::now();
        backoff.failed("store", began);
        assert!(!backoff.may_try(&"store", began) && backoff.may_try(&"other", began));
        let second = began + REST;
        assert_eq!(backoff.next(began), Some(second));
        assert!(backoff.may_try(&"store", second) && backoff.next(second).is_none());
        backoff.failed("store", second);
        assert!(!backoff.may_try(&"store", second + REST), "the second rest is longer");
        backoff.succeeded(&"store");
        backoff.failed("store", second);
        assert!(backoff.may_try(&"store", second + REST), "it began anew after it went well");
        backoff.failed("gone", second);
        backoff.retain(|key| *key != "gone");
        assert!(backoff.may_try(&"gone", second));
    }
}
