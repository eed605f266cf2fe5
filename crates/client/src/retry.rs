//! When a refused creation is asked for again. Decisions only: waiting and sending are the caller's.
//!
//! Only a refusal that says nothing was made is tried again: 503 with `Retry-After` and an error of the server's own, 429 with
//! `Retry-After`, 507. Never anything that may have followed a success.

use std::time::Duration;

use crate::error::Refusal;

const CAP_FIRST_SECONDS: f64 = 1.0;
const CAP_MOST_SECONDS: f64 = 15.0;
const FULL_LEAST_SECONDS: f64 = 0.5;

/// How long to wait before asking again; nothing when it is not to be asked again. `attempt` counts from 0, `luck` lies
/// between 0 and 1.
pub(crate) fn delay(refusal: &Refusal, attempt: u32, remaining: Duration, luck: f64) -> Option<Duration> {
    let after = refusal.retry_after_seconds;
    let floor = match refusal.status {
        429 => after?,
        503 if !refusal.code.is_empty() || !refusal.message.is_empty() => after?,
        507 => after.unwrap_or(0.0).max(FULL_LEAST_SECONDS),
        _ => return None,
    };
    let cap = (CAP_FIRST_SECONDS * f64::from(2_u32.saturating_pow(attempt.min(16)))).min(CAP_MOST_SECONDS);
    let remaining = remaining.as_secs_f64();
    if !floor.is_finite() || floor < 0.0 || floor > remaining {
        return None;
    }
    Some(Duration::from_secs_f64((floor + cap * luck.clamp(0.0, 1.0)).min(remaining)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, retry_after_seconds: Option<f64>) -> Refusal {
        let message = "no room".to_owned();
        Refusal {
            status,
            message,
            code: "unavailable".to_owned(),
            hint: None,
            request_id: None,
            retry_after_seconds,
            partial: None,
            progress: None,
        }
    }

    #[test]
    fn only_what_made_nothing_is_asked_for_again() {
        let minute = Duration::from_secs(60);
        let check = |status, after, expected: Option<u64>| {
            let found = delay(&refusal(status, after), 0, minute, 0.0).map(|delay| delay.as_millis() as u64);
            assert_eq!(found, expected, "{status} {after:?}");
        };
        check(503, Some(5.0), Some(5000));
        check(503, None, None);
        check(429, Some(1.0), Some(1000));
        check(429, None, None);
        check(507, None, Some(500));
        check(500, Some(1.0), None);
        check(503, Some(61.0), None);
        check(503, Some(f64::NAN), None);
        assert_eq!(delay(&refusal(503, Some(50.0)), 9, minute, 1.0), Some(minute));
    }
}
