//! Times on the command line: `90`, `10m`, `1h30m`, `1.5h`; and times as people say them.

use std::time::Duration;

/// Seconds of the units that may be named.
const UNITS: [(char, f64); 5] = [('s', 1.0), ('m', 60.0), ('h', 3600.0), ('d', 86_400.0), ('w', 604_800.0)];
const EXPECTED: &str = "expected a time such as 90, 90s, 10m, 1h30m or 7d (without a unit: seconds)";

/// Seconds; may be negative, and may have a fraction.
pub(crate) fn seconds(text: &str) -> Result<f64, String> {
    let wrong = || EXPECTED.to_owned();
    if text.is_empty() {
        return Err(wrong());
    }
    if let Ok(seconds) = text.parse::<f64>() {
        return if seconds.is_finite() { Ok(seconds) } else { Err(wrong()) };
    }
    let (mut total, mut number, mut smaller_than) = (0.0, String::new(), f64::INFINITY);
    let text = text.strip_suffix("ms").map_or_else(
        // Milliseconds stand alone or last.
        || Ok(text.to_owned()),
        |rest| {
            let at = rest.rfind(|one: char| !one.is_ascii_digit()).map_or(0, |at| at + 1);
            let (rest, milliseconds) = rest.split_at(at);
            milliseconds.parse::<f64>().map(|count| total += count / 1000.0).map_err(|_| wrong())?;
            Ok::<_, String>(rest.to_owned())
        },
    )?;
    for one in text.chars() {
        match UNITS.iter().find(|(unit, _)| *unit == one) {
            None => number.push(one),
            Some((_, seconds)) => {
                let digits = number.chars().all(|one| one.is_ascii_digit() || one == '.');
                // `1h2h` and `1m1h` are slips.
                if !digits || *seconds >= smaller_than {
                    return Err(wrong());
                }
                total += number.parse::<f64>().map_err(|_| wrong())? * seconds;
                number.clear();
                smaller_than = *seconds;
            }
        }
    }
    if number.is_empty() && total.is_finite() { Ok(total) } else { Err(wrong()) }
}

/// Whole seconds, a fraction rounded up.
pub(crate) fn whole_seconds(text: &str) -> Result<i64, String> {
    seconds(text).map(|seconds| seconds.ceil() as i64)
}

/// A time in its largest unit, as a column of a table has room for: `8s`, `3m`, `5h`, `12d`.
pub(crate) fn short(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago an RFC 3339 time was; nothing for one that cannot be read.
pub(crate) fn age(time: &str, now_unix_ms: i64) -> Option<String> {
    let ms = now_unix_ms.saturating_sub(contract::time::parse(time)?);
    Some(short(u64::try_from(ms).unwrap_or(0) / 1000))
}

/// How long ago a time was, as a column of a table has room for; the time itself where it cannot be read.
pub(crate) fn since(time: &str) -> String {
    age(time, now_unix_ms()).unwrap_or_else(|| time.to_owned())
}

/// How long ago milliseconds of Unix time were.
pub(crate) fn age_of(unix_ms: u64) -> String {
    let now = u64::try_from(now_unix_ms()).unwrap_or(0);
    short(now.saturating_sub(unix_ms) / 1000)
}

/// How long it is until an RFC 3339 time, such as `in 5h`; `over` for one that has been.
pub(crate) fn until(time: &str, now_unix_ms: i64) -> Option<String> {
    let ms = contract::time::parse(time)?.saturating_sub(now_unix_ms);
    let left = u64::try_from(ms).ok().filter(|ms| *ms > 0);
    Some(left.map_or_else(|| "over".to_owned(), |ms| format!("in {}", short(ms / 1000))))
}

/// Milliseconds of Unix time, now.
pub(crate) fn now_unix_ms() -> i64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// A time as clocks show it: `0:23`, `12:05`, `1:02:03`.
pub(crate) fn clock(time: Duration) -> String {
    let (hours, minutes, seconds) = (time.as_secs() / 3600, time.as_secs() / 60 % 60, time.as_secs() % 60);
    if hours == 0 { format!("{minutes}:{seconds:02}") } else { format!("{hours}:{minutes:02}:{seconds:02}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        for (text, expected) in [
            ("600", 600.0),
            ("-5", -5.0),
            ("0.5", 0.5),
            ("90s", 90.0),
            ("10m", 600.0),
            ("1h30m", 5400.0),
            ("1.5h", 5400.0),
            ("7d", 604_800.0),
            ("1w2d", 777_600.0),
            ("250ms", 0.25),
            ("2s250ms", 2.25),
        ] {
            assert_eq!(seconds(text), Ok(expected), "{text}");
        }
        for text in ["", "m", "10 m", "10x", "1h5", "1m1h", "1h1h", "-1m", "ms", "inf", "nan", "1e400", "é"]
        {
            assert!(seconds(text).is_err(), "{text}");
        }
        assert_eq!((whole_seconds("1.2"), whole_seconds("2m")), (Ok(2), Ok(120)));
    }

    #[test]
    fn times_are_said() {
        let said = [0, 59, 60, 3599, 3600, 172_799, 172_800].map(short);
        assert_eq!(said, ["0s", "59s", "1m", "59m", "1h", "47h", "2d"]);
        let said = [23, 725, 3723].map(|seconds| clock(Duration::from_secs(seconds)));
        assert_eq!(said, ["0:23", "12:05", "1:02:03"]);
        assert_eq!(age("1970-01-01T00:00:01.000Z", 200_000).as_deref(), Some("3m"));
        assert_eq!(age("1970-01-01T00:00:09.000Z", 1000).as_deref(), Some("0s"));
        assert_eq!(age("yesterday", 0), None);
        assert_eq!(since("yesterday"), "yesterday");
        assert_eq!(until("1970-01-01T05:00:00.000Z", 0).as_deref(), Some("in 5h"));
        assert_eq!(until("1970-01-01T05:00:00.000Z", 18_000_000).as_deref(), Some("over"));
    }
}
