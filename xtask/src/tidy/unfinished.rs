//! Unfinished work is written down where somebody will look for it: a marker in the text names an issue by its address.

use crate::Findings;
use crate::shown;
use crate::source::has_word;
use crate::tree::TextFile;

/// Markers, put together here so that this file does not hold them.
const MARKERS: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const MACROS: [&str; 2] = [concat!("todo", "!("), concat!("unimplemented", "!(")];
/// A line with an address of an issue may hold a marker.
const ISSUE: &str = "/issues/";

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    for (number, line) in file.text.lines().enumerate() {
        let marker = MARKERS.iter().find(|marker| has_word(line, marker) && !line.contains(ISSUE));
        let marker = marker.or(MACROS.iter().find(|name| file.is_rust() && line.contains(**name)));
        if let Some(marker) = marker {
            let path = shown(&file.path);
            findings
                .errors
                .push(format!("{path}:{}: `{marker}` without the address of an issue", number + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn markers_need_an_issue() {
        for (line, errors) in [
            (format!("// {}: later", MARKERS[0]), 1),
            (format!("# {}", MARKERS[1]), 1),
            (format!("// {} https://example.com/issues/7", MARKERS[0]), 0),
            (format!("{})", MACROS[0]), 1),
            ("mktemp -d /tmp/x.XXXXXX".to_owned(), 0),
            ("a todo list".to_owned(), 0),
        ] {
            let mut findings = Findings::default();
            check(&file("a.rs", &line), &mut findings);
            assert_eq!(findings.errors.len(), errors, "{line}");
        }
    }
}
