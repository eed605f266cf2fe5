//! A file that grows holds two ideas. Tests are not counted.

use crate::Findings;
use crate::shown;
use crate::source::code_only;
use crate::tree::TextFile;

/// From here on look for the second idea.
const LINES_WARNED: usize = 500;
/// From here on there is one.
const LINES_MAX: usize = 800;

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    if file.is_test() {
        return;
    }
    let path = shown(&file.path);
    match lines_without_tests(&file.text) {
        lines if lines > LINES_MAX => {
            findings.errors.push(format!("{path}: {lines} lines without tests, {LINES_MAX} is the limit"));
        }
        lines if lines > LINES_WARNED => {
            findings
                .warnings
                .push(format!("{path}: {lines} lines without tests; is there a second concept in it?"));
        }
        _ => {}
    }
}

/// Lines outside modules that are compiled for tests only. As formatted: such a module ends at the next brace that stands as far
/// left as its attribute.
fn lines_without_tests(text: &str) -> usize {
    let code = code_only(text);
    let lines: Vec<&str> = code.lines().collect();
    let mut counted = 0;
    let mut at = 0;
    while at < lines.len() {
        let line = lines[at];
        let opens = lines.get(at + 1).is_some_and(|next| {
            let next = next.trim();
            next.starts_with("mod ") && next.ends_with('{')
        });
        if line.trim() == "#[cfg(test)]" && opens {
            let close = format!("{}}}", &line[..line.len() - line.trim_start().len()]);
            let length = lines[at..].iter().position(|line| *line == close);
            at += length.map_or(lines.len() - at, |length| length + 1);
        } else {
            counted += 1;
            at += 1;
        }
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn counts(path: &str, text: &str) -> (usize, usize) {
        let mut findings = Findings::default();
        check(&file(path, text), &mut findings);
        (findings.errors.len(), findings.warnings.len())
    }

    #[test]
    fn limits() {
        let lines = |count: usize| "fn f() {}\n".repeat(count);
        assert_eq!(counts("a.rs", &lines(500)), (0, 0));
        assert_eq!(counts("a.rs", &lines(501)), (0, 1));
        assert_eq!(counts("a.rs", &lines(801)), (1, 0));
        assert_eq!(counts("crates/a/tests/all.rs", &lines(801)), (0, 0));
        assert_eq!(counts("crates/a/src/b/tests.rs", &lines(801)), (0, 0));
    }

    #[test]
    fn tests_are_not_counted_and_what_follows_them_is() {
        let text = "a\n#[cfg(test)]\nmod tests {\n    fn f() {\n    }\n    \"\n}\n\"\n}\nb\nc\n";
        assert_eq!(lines_without_tests(text), 3);
        assert_eq!(lines_without_tests("#[cfg(test)]\nmod tests;\n#[cfg(test)]\nfn f() {}\n"), 4);
    }
}
