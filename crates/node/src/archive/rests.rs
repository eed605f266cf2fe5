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

/// What failed, and until when each rests.
#[derive(Debug)]
pub(super) struct Rests<K> {
    rests: HashMap<K, Rest>,
}

impl<K> Default for Rests<K> {
    fn default() -> Self {
        Self { rests: HashMap::new() }
    }
}

impl<K: Eq + Hash> Rests<K> {
    /// Whether this may be tried now.
    pub(super) fn may_try(&self, key: &K, now: Instant) -> bool {
        self.rests.get(key).is_none_or(|rest| rest.over <= now)
    }

    /// It was tried and failed.
    pub(super) fn failed(&mut self, key: K, now: Instant) {
        let rest = self.rests.entry(key).or_insert(Rest { failures: 0, over: now });
        rest.over = now + rest_after(rest.failures);
        rest.failures += 1;
    }

    /// It went well.
    pub(super) fn succeeded(&mut self, key: &K) {
        self.rests.remove(key);
    }

    /// Forgets those of which nothing is wanted any more.
    pub(super) fn retain(&mut self, wanted: impl Fn(&K) -> bool) {
        self.rests.retain(|key, _| wanted(key));
    }

    /// When something may be tried again that may not now.
    pub(super) fn next(&self, now: Instant) -> Option<Instant> {
        self.rests.values().map(|rest| rest.over).filter(|over| *over > now).min()
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
        let rests: Vec<u64> = (0..7).map(|failures| rest_after(failures).as_secs()).collect();
        assert_eq!(rests, [30, 60, 120, 240, 480, 600, 600]);
        assert_eq!(rest_after(u32::MAX), REST_MAX);
    }

    #[test]
    fn each_rests_by_itself_until_it_may_be_tried_again() {
        let mut rests = Rests::default();
        let began = Instant::now();
        rests.failed("store", began);
        assert!(!rests.may_try(&"store", began) && rests.may_try(&"other", began));
        let second = began + REST;
        assert_eq!(rests.next(began), Some(second));
        assert!(rests.may_try(&"store", second) && rests.next(second).is_none());
        rests.failed("store", second);
        assert!(!rests.may_try(&"store", second + REST), "the second rest is longer");
        rests.succeeded(&"store");
        rests.failed("store", second);
        assert!(rests.may_try(&"store", second + REST), "it began anew after it went well");
        rests.failed("gone", second);
        rests.retain(|key| *key != "gone");
        assert!(rests.may_try(&"gone", second));
    }
}
