//! What Firecracker logs, told in our log with the machine's name.
//!
//! It comes through a pipe in the machine's room. A guest can make its Firecracker log, so little of it is told, and what is too much for
//! the pipe is lost.

use std::io::ErrorKind;
use std::time::{Duration, Instant};

use tokio::net::unix::pipe::Receiver;

/// Lines of one machine that are told in the time below.
const LINES_MAX: u32 = 10;
const LINES_PERIOD: Duration = Duration::from_secs(60);
/// Longest line; what is longer is cut.
const LINE_BYTES_MAX: usize = 512;
/// Pause between reading what there is.
const PAUSE: Duration = Duration::from_millis(100);
/// How it begins to say that it refused a request. Whoever made that was told.
const REFUSAL: &str = "Received Error. Status code";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Warning,
    Error,
}

/// Tells lines until the process has ended.
pub(super) async fn tell(pipe: Receiver, machine: String) {
    let (mut lines, mut allowance) = (Lines::default(), Allowance::new(Instant::now()));
    let mut buffer = vec![0; 8 * 1024];
    loop {
        if pipe.readable().await.is_err() {
            return;
        }
        let count = match pipe.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        for line in lines.add(&buffer[..count]) {
            let Some((level, message)) = parse(&line) else { continue };
            match allowance.take(Instant::now()) {
                Allowed::Yes => {}
                Allowed::Again { withheld } => {
                    tracing::info!(machine, "{withheld} lines of machine {machine} were not told");
                }
                Allowed::No => continue,
            }
            match level {
                Level::Error => tracing::warn!(machine, "machine {machine}: {message}"),
                Level::Warning => tracing::info!(machine, "machine {machine}: {message}"),
            }
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Level and text of a line, in characters that are safe to show; `None` for one that is not worth telling.
fn parse(line: &[u8]) -> Option<(Level, String)> {
    let line = String::from_utf8_lossy(line);
    let (head, message) = line.split_once("] ")?;
    let level = match head.rsplit_once(':')?.1 {
        "ERROR" => Level::Error,
        "WARN" => Level::Warning,
        _ => return None,
    };
    if message.starts_with(REFUSAL) {
        return None;
    }
    Some((level, message.chars().filter(|character| !character.is_control()).collect()))
}

/// Puts lines together.
#[derive(Debug, Default)]
struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    fn add(&mut self, bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut complete = Vec::new();
        for &byte in bytes {
            match byte {
                b'\n' => complete.push(std::mem::take(&mut self.begun)),
                _ if self.begun.len() < LINE_BYTES_MAX => self.begun.push(byte),
                _ => {}
            }
        }
        complete
    }
}

/// How many lines may still be told.
#[derive(Debug)]
struct Allowance {
    since: Instant,
    told: u32,
    withheld: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Allowed {
    Yes,
    No,
    /// Yes, for the first time since some were not.
    Again {
        withheld: u64,
    },
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { since: now, told: 0, withheld: 0 }
    }

    fn take(&mut self, now: Instant) -> Allowed {
        if now.duration_since(self.since) >= LINES_PERIOD {
            *self = Self { withheld: self.withheld, ..Self::new(now) };
        }
        if self.told == LINES_MAX {
            self.withheld += 1;
            return Allowed::No;
        }
        self.told += 1;
        match std::mem::take(&mut self.withheld) {
            0 => Allowed::Yes,
            withheld => Allowed::Again { withheld },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(Level, &str)>) {
        let expected = expected.map(|(level, message)| (level, message.to_owned()));
        assert_eq!(parse(line.as_bytes()), expected, "{line}");
    }

    #[test]
    fn warnings_and_errors_are_told() {
        let time = "2026-11-16T10:54:44.123456789";
        check(
            &format!("{time} [pandastack-0a-1:main:ERROR] no [disk] here"),
            Some((Level::Error, "no [disk] here")),
        );
        check(
            &format!("{time} [pandastack-0a-1:fc_vcpu 0:WARN] odd\x1b[2J"),
            Some((Level::Warning, "odd[2J")),
        );
        check(&format!("{time} [pandastack-0a-1:main:INFO] fine"), None);
        check(&format!("{time} [a:fc_api:ERROR] {REFUSAL}: 400 Bad Request. Message: x"), None);
        check("something else", None);
        check("", None);
    }

    #[test]
    fn lines_come_in_pieces_and_are_cut() {
        let mut lines = Lines::default();
        assert!(lines.add(b"one").is_empty());
        assert_eq!(lines.add(b" and two\nthree\nfo"), [b"one and two".to_vec(), b"three".to_vec()]);
        lines.add(&vec![b'x'; 1 << 20]);
        assert_eq!(lines.begun.len(), LINE_BYTES_MAX);
        assert_eq!(lines.add(b"\n").len(), 1);
    }

    #[test]
    fn a_machine_that_talks_much_is_not_listened_to() {
        let now = Instant::now();
        let mut allowance = Allowance::new(now);
        for _ in 0..LINES_MAX {
            assert_eq!(allowance.take(now), Allowed::Yes);
        }
        assert_eq!((allowance.take(now), allowance.take(now)), (Allowed::No, Allowed::No));
        let later = now + LINES_PERIOD;
        assert_eq!(allowance.take(later), Allowed::Again { withheld: 2 });
        assert_eq!(allowance.take(later), Allowed::Yes);
    }
}
