//! `cargo xtask tidy`: what reviews would otherwise have to look for. One rule per file.

mod commits;
mod direction;
mod opening;
mod size;
mod unfinished;
mod unsafe_code;
mod versions;

use std::path::Path;

use crate::Findings;
use crate::tree::text_files;

/// Looks at the whole tree.
pub(crate) fn check(root: &Path) -> anyhow::Result<Findings> {
    let files = text_files(root)?;
    let mut findings = Findings { looked_at: format!("{} files", files.len()), ..Findings::default() };
    direction::check(&files, &mut findings);
    for file in &files {
        unfinished::check(file, &mut findings);
        if file.is_rust() {
            opening::check(file, &mut findings);
            size::check(file, &mut findings);
            unsafe_code::check(file, &mut findings);
        }
    }
    unsafe_code::check_list(&files, &mut findings);
    versions::check(&files, &mut findings);
    commits::check(root, &mut findings);
    Ok(findings)
}

/// A file of a test's tree.
#[cfg(test)]
fn file(path: &str, text: &str) -> crate::tree::TextFile {
    crate::tree::TextFile { path: path.into(), text: text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One tree that breaks every rule once, and its mended twin.
    #[test]
    fn each_rule_is_applied_to_the_tree() {
        let unfinished = concat!("//! Doc.\n// TO", "DO: later\n");
        let (_guard, root) = crate::small_tree(&[
            (
                "crates/domain/Cargo.toml",
                "[package]\nname = \"domain\"\n[dependencies]\nnode.workspace = true\n",
            ),
            ("crates/domain/src/lib.rs", "fn f() {}\n"),
            ("crates/domain/src/later.rs", unfinished),
            ("crates/domain/src/foo/mod.rs", "//! Doc.\n"),
            ("crates/domain/src/big.rs", &format!("//! Doc.\n{}", "fn f() {}\n".repeat(800))),
            ("crates/domain/src/raw.rs", "//! Doc.\nunsafe fn f() {}\n"),
        ]);
        let found = check(&root).unwrap().errors.join("\n");
        for part in [
            "crates/domain/Cargo.toml: `domain` may not depend on `node`",
            "crates/domain/src/lib.rs: does not open with `//!`",
            "crates/domain/src/later.rs:2: ",
            "crates/domain/src/foo/mod.rs: ",
            "crates/domain/src/big.rs: 801 lines",
            "crates/domain/src/raw.rs:2: ",
        ] {
            assert!(found.contains(part), "{part} not in:\n{found}");
        }

        let (_guard, root) = crate::small_tree(&[
            ("crates/domain/Cargo.toml", "[package]\nname = \"domain\"\n"),
            ("crates/domain/src/lib.rs", "//! Doc.\nfn f() {}\n"),
        ]);
        let errors = check(&root).unwrap().errors;
        assert!(errors.iter().all(|error| error.contains("xtask/src/tidy/unsafe_code.rs")), "{errors:?}");
    }
}
