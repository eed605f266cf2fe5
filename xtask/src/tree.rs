//! Walks the project's own files: what a person wrote, not what a build made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

/// Folders that hold no text of the project.
const SKIPPED: [&str; 6] = [".git", "target", "node_modules", "results", "artifacts", "corpus"];

/// Files larger than this are data, not text.
const TEXT_BYTES_MAX: u64 = 1 << 20;

/// A file of the project.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// Relative to the root.
    pub(crate) path: PathBuf,
    pub(crate) text: String,
}

impl TextFile {
    pub(crate) fn is_rust(&self) -> bool {
        self.path.extension().is_some_and(|extension| extension == "rs")
    }

    /// Whether it holds nothing but tests.
    pub(crate) fn is_test(&self) -> bool {
        self.path.components().any(|part| part.as_os_str() == "tests")
            || self.path.file_name().is_some_and(|name| name == "tests.rs")
    }
}

/// Every text file below `root`, in the order of their paths. Links are not followed.
pub(crate) fn text_files(root: &Path) -> anyhow::Result<Vec<TextFile>> {
    let mut files = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("list {}", folder.display()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                if !SKIPPED.iter().any(|skipped| entry.file_name() == *skipped) {
                    folders.push(entry.path());
                }
            } else if kind.is_file() && entry.metadata()?.len() <= TEXT_BYTES_MAX {
                // What is not UTF-8 is not text.
                if let Ok(text) = String::from_utf8(fs::read(entry.path())?) {
                    let path = entry.path().strip_prefix(root).unwrap_or(&entry.path()).to_owned();
                    files.push(TextFile { path, text });
                }
            }
        }
    }
    files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_build_made_is_passed_over() {
        let (_guard, root) =
            crate::small_tree(&[("b.rs", ""), ("target/x.rs", ""), ("a/tests/c.rs", ""), (".git/HEAD", "")]);
        std::fs::write(root.join("image.bin"), [0xff, 0xfe]).unwrap();
        let files = text_files(&root).unwrap();
        let paths: Vec<_> = files.iter().map(|file| crate::shown(&file.path)).collect();
        assert_eq!(paths, ["a/tests/c.rs", "b.rs"]);
        assert!(files[0].is_test() && !files[1].is_test());
    }
}
