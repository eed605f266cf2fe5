//! Every Rust file opens with what it is for, and modules are `foo.rs` beside `foo/`, never `foo/mod.rs`.

use crate::Findings;
use crate::shown;
use crate::tree::TextFile;

pub(super) fn check(file: &TextFile, findings: &mut Findings) {
    let path = shown(&file.path);
    if !file.text.starts_with("//!") {
        findings.errors.push(format!("{path}: does not open with `//!`"));
    }
    if file.path.file_name().is_some_and(|name| name == "mod.rs") {
        findings.errors.push(format!("{path}: name the module's file after the module, beside its folder"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    #[test]
    fn the_first_line_counts() {
        for (path, text, errors) in [
            ("a.rs", "//! For something.\nfn f() {}\n", 0),
            ("a.rs", "\n//! Too late.\n", 1),
            ("a.rs", "", 1),
            ("foo/mod.rs", "//! Named badly.\n", 1),
            ("foo/mod.rs", "", 2),
        ] {
            let mut findings = Findings::default();
            check(&file(path, text), &mut findings);
            assert_eq!(findings.errors.len(), errors, "{path} {text:?}");
        }
    }
}
