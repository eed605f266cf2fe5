//! How long a template that is being prepared is waited for. Decisions only: waiting and asking are the caller's.

use std::time::{Duration, Instant};

use contract::error::Progress;

use crate::error::Refusal;

/// What a refusal says while a template is being prepared.
const CODE: &str = "template_preparing";
/// How often it is asked, where the server does not say.
const INTERVAL: Duration = Duration::from_secs(2);
/// Longest time between two questions, whatever the server says.
const INTERVAL_MAX: Duration = Duration::from_secs(30);

/// How far the template is that a refusal says has to be prepared first.
pub(crate) fn progress_of(refusal: &Refusal) -> Option<&Progress> {
    refusal.progress.as_ref().filter(|_| refusal.code == CODE)
}

/// When a template was last seen to move.
#[derive(Debug, Default)]
pub(crate) struct Preparing {
    seen: Option<(String, Instant)>,
}

impl Preparing {
    /// How long to wait before asking again; nothing when the template has not moved for too long.
    pub(crate) fn delay(
        &mut self,
        refusal: &Refusal,
        progress: &Progress,
        stuck_timeout: Duration,
        now: Instant,
    ) -> Option<Duration> {
        let moved = match &self.seen {
            Some((changed_at, seen)) if *changed_at == progress.changed_at => *seen,
            _ => {
                self.seen = Some((progress.changed_at.clone(), now));
                now
            }
        };
        let asked = refusal.retry_after_seconds.and_then(|after| Duration::try_from_secs_f64(after).ok());
        let still = now.saturating_duration_since(moved);
        (still < stuck_timeout).then(|| asked.unwrap_or(INTERVAL).min(INTERVAL_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_is_waited_for() {
        let progress = |at: &str| Progress {
            step: "installing".to_owned(),
            started_at: "2026-01-01T00:00:00Z".to_owned(),
            changed_at: at.to_owned(),
        };
        let mut refusal = Refusal::said("being prepared", None);
        (refusal.code, refusal.retry_after_seconds) = (CODE.to_owned(), Some(2.0));
        assert_eq!(progress_of(&refusal), None);
        refusal.progress = Some(progress("1"));
        assert_eq!(progress_of(&refusal), Some(&progress("1")));
        let (minutes, start) = (|count: u64| Duration::from_secs(60 * count), Instant::now());
        let (mut preparing, wait) = (Preparing::default(), Some(Duration::from_secs(2)));
        let mut check = |at: &str, after: Duration, expected| {
            let found = preparing.delay(&refusal, &progress(at), minutes(10), start + after);
            assert_eq!(found, expected, "{at} after {after:?}");
        };
        check("1", minutes(0), wait);
        check("1", minutes(9), wait);
        check("2", minutes(11), wait);
        check("2", minutes(20), wait);
        check("2", minutes(21), None);
        refusal.code = "unavailable".to_owned();
        assert_eq!(progress_of(&refusal), None);
        assert_eq!(Preparing::default().delay(&refusal, &progress("1"), Duration::ZERO, start), None);
    }
}
