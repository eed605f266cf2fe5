//! `HEALTHCHECK [--interval=…] CMD command` and `HEALTHCHECK NONE`.

use std::time::Duration;

use super::command;
use crate::error::Problem;
use crate::image_config::{Command, HealthProbe, Healthcheck};
use crate::words::Parts;

pub(super) fn parse(parts: &mut Parts) -> Result<Healthcheck, Problem> {
    let (kind, rest) = match parts.rest.split_once(char::is_whitespace) {
        Some((kind, rest)) => (kind, rest.trim()),
        None => (parts.rest.as_str(), ""),
    };
    match kind.to_ascii_uppercase().as_str() {
        "NONE" if rest.is_empty() => return Ok(Healthcheck::Disabled),
        "NONE" => return Err(Problem::new("HEALTHCHECK NONE takes nothing more")),
        "CMD" => {}
        _ => {
            return Err(Problem::new(format!("HEALTHCHECK has no kind `{kind}`"))
                .hint("write `HEALTHCHECK CMD command` or `HEALTHCHECK NONE`"));
        }
    }
    let command = match command(rest)? {
        Command::Shell(text) if text.is_empty() => {
            return Err(Problem::new("HEALTHCHECK CMD needs a command"));
        }
        Command::Exec(argv) if argv.is_empty() => {
            return Err(Problem::new("the list of HEALTHCHECK CMD is empty"));
        }
        command => command,
    };
    let mut time = |name: &str| match parts.flags.one(name)? {
        Some(text) => duration(&text).ok_or_else(|| {
            Problem::new(format!("`--{name}={text}` is not a length of time"))
                .hint("write it as `30s`, `1m30s` or `500ms`; at least a millisecond")
        }),
        None => Ok(None),
    };
    let interval = time("interval")?;
    let timeout = time("timeout")?;
    let start_period = time("start-period")?;
    let start_interval = time("start-interval")?;
    let retries = match parts.flags.one("retries")? {
        Some(text) => match text.parse::<u32>() {
            Ok(0) => None,
            Ok(retries) => Some(retries),
            Err(_) => return Err(Problem::new(format!("`--retries={text}` is not a number"))),
        },
        None => None,
    };
    Ok(Healthcheck::Probe(HealthProbe { command, interval, timeout, start_period, start_interval, retries }))
}

/// A time such as `1h2m3.5s`. Zero is as if nothing was said. `None` for what is no time.
fn duration(text: &str) -> Option<Option<Duration>> {
    if text == "0" {
        return Some(None);
    }
    let mut rest = text;
    let mut seconds = 0.0;
    while !rest.is_empty() {
        let digits = rest.find(|ch: char| !ch.is_ascii_digit() && ch != '.')?;
        let number: f64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let units =
            [("ms", 1e-3), ("us", 1e-6), ("µs", 1e-6), ("ns", 1e-9), ("h", 3600.0), ("m", 60.0), ("s", 1.0)];
        let (unit, scale) = units.into_iter().find(|(unit, _)| rest.starts_with(unit))?;
        rest = &rest[unit.len()..];
        seconds += number * scale;
    }
    if text.is_empty() {
        return None;
    }
    match Duration::try_from_secs_f64(seconds).ok()? {
        Duration::ZERO => Some(None),
        time if time < Duration::from_millis(1) => None,
        time => Some(Some(time)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, expected) in [
            ("30s", Some(Some(30_000))),
            ("1m30s", Some(Some(90_000))),
            ("1.5h", Some(Some(5_400_000))),
            ("500ms", Some(Some(500))),
            ("0s", Some(None)),
            ("0", Some(None)),
            ("", None),
            ("30", None),
            ("s", None),
            ("-1s", None),
            ("10us", None),
            ("1e9s", None),
            ("99999999999999999999h", None),
        ] {
            let found = duration(text).map(|time| time.map(|time| time.as_millis()));
            assert_eq!(found, expected, "{text}");
        }
    }
}
