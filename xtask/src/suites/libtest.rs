//! What a test program writes: a line for each test, then what the failed ones said.

/// How one test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    Ignored,
}

/// One test of a program's report.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Reported {
    pub(super) name: String,
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
}

/// Reads `test NAME ... ok <1.234s>`; a program that does not time its tests leaves the end out.
pub(super) fn line(text: &str) -> Option<Reported> {
    let (name, rest) = text.strip_prefix("test ")?.split_once(" ... ")?;
    let (word, time) = rest.split_once(" <").map_or((rest, None), |(word, time)| (word, Some(time)));
    let outcome = match word.split([' ', ',']).next()? {
        "ok" => Outcome::Passed,
        "FAILED" => Outcome::Failed,
        "ignored" => Outcome::Ignored,
        _ => return None,
    };
    let seconds = time.and_then(|time| time.trim_end().strip_suffix("s>")?.parse().ok()).unwrap_or(0.0);
    // A test that must panic has a note behind its name.
    let name = name.split(" - should panic").next().unwrap_or(name);
    Some(Reported { name: name.to_owned(), outcome, seconds })
}

/// The names in the answer to `--list --format terse`.
pub(super) fn listed(text: &str) -> Vec<String> {
    text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_with_and_without_their_time() {
        let read = |text: &str| line(text).map(|test| (test.name, test.outcome, test.seconds));
        assert_eq!(read("test a::b ... ok <1.250s>"), Some(("a::b".to_owned(), Outcome::Passed, 1.25)));
        assert_eq!(read("test a::b ... FAILED"), Some(("a::b".to_owned(), Outcome::Failed, 0.0)));
        let ignored = Some(("slow".to_owned(), Outcome::Ignored, 0.0));
        assert_eq!(read("test slow ... ignored, run by hand"), ignored);
        let panics = Some(("dies".to_owned(), Outcome::Passed, 0.5));
        assert_eq!(read("test dies - should panic ... ok <0.500s>"), panics);
        assert_eq!(read("test result: ok. 3 passed; 0 failed"), None);
        assert_eq!(read("running 3 tests"), None);
    }

    #[test]
    fn only_tests_are_listed() {
        assert_eq!(listed("a::b: test\nspeed: benchmark\n\n1 test, 1 benchmark\n"), ["a::b"]);
    }
}
