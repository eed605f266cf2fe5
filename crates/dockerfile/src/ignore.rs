//! `.dockerignore`: what of a context a build does not see.
//!
//! One pattern per line, relative to the root of the context, a leading `/` making no difference. `#` in the first column is a comment.
//! `!` takes back what an earlier line left out; the last line that matches decides. What matches a directory matches all in it.

use crate::glob::Glob;
use crate::limits::{IGNORE_BYTES_MAX, IGNORE_PATTERNS_MAX};

/// A `.dockerignore` that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of .dockerignore: {problem}")]
pub struct IgnoreError {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub problem: String,
}

/// The patterns of a `.dockerignore`.
#[derive(Debug, Clone, Default)]
pub struct IgnoreFile {
    patterns: Vec<Pattern>,
}

#[derive(Debug, Clone)]
struct Pattern {
    glob: Glob,
    takes_back: bool,
}

impl IgnoreFile {
    /// Reads the text of a `.dockerignore`.
    pub fn parse(text: &str) -> Result<Self, IgnoreError> {
        let error = |line, problem: String| IgnoreError { line, problem };
        if text.len() > IGNORE_BYTES_MAX {
            return Err(error(1, format!("the file is larger than {IGNORE_BYTES_MAX} bytes")));
        }
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut file = Self::default();
        for (at, line) in text.lines().enumerate() {
            if line.starts_with('#') || line.trim().is_empty() {
                continue;
            }
            let line = line.trim();
            let (takes_back, pattern) = match line.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, line),
            };
            if pattern.is_empty() {
                return Err(error(at + 1, "`!` takes back nothing".to_owned()));
            }
            if file.patterns.len() == IGNORE_PATTERNS_MAX {
                return Err(error(at + 1, format!("there are more than {IGNORE_PATTERNS_MAX} patterns")));
            }
            let cleaned = clean(pattern);
            let cleaned = match cleaned.strip_prefix('/') {
                Some(rest) if !rest.is_empty() => rest,
                _ => &cleaned,
            };
            let glob = Glob::parse_ignore(cleaned)
                .map_err(|_| error(at + 1, format!("`{pattern}` is not a good pattern")))?;
            file.patterns.push(Pattern { glob, takes_back });
        }
        Ok(file)
    }

    /// Whether the build does not see `path`, which is relative to the root of the context.
    pub fn ignores(&self, path: &str) -> bool {
        let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
        let whole: Vec<&str> = std::iter::once(path).chain(parents).collect();
        let mut ignored = false;
        for pattern in &self.patterns {
            // Only a pattern that would change the answer has to be looked at.
            if pattern.takes_back == ignored && whole.iter().any(|path| pattern.glob.matches(path)) {
                ignored = !pattern.takes_back;
            }
        }
        ignored
    }
}

/// The shortest way to write a path, as Go's `filepath.Clean` does.
fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            ".." if rooted => {}
            _ => parts.push(part),
        }
    }
    match (rooted, parts.is_empty()) {
        (true, _) => format!("/{}", parts.join("/")),
        (false, true) => ".".to_owned(),
        (false, false) => parts.join("/"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ignores(text: &str, path: &str) -> bool {
        IgnoreFile::parse(text).unwrap().ignores(path)
    }

    /// The documented meaning of patterns, and the corners where implementations are known to differ.
    #[test]
    fn one_pattern() {
        for (pattern, path, expected) in [
            ("**", "file", true),
            ("**", "dir/file", true),
            ("**/", "file", true),
            ("**/**", "dir/file", true),
            ("dir/**", "dir/file", true),
            ("dir/**", "dir/dir2/file", true),
            ("dir/**", "dir", false),
            ("**/dir", "dir", true),
            ("**/dir", "dir/file", true),
            ("**/dir2/*", "dir/dir2/file", true),
            ("**/dir2/*", "dir/dir2/dir2/file", true),
            ("**/dir2/**", "dir/dir2/dir2/file", true),
            ("**file", "file", true),
            ("**file", "dir/file", true),
            ("**file", "dir/dir/myfile", true),
            ("**/file", "dir/file", true),
            ("**/file", "dir/dir/file", true),
            ("**/file", "dir/myfile", false),
            ("**/file*", "dir/dir/file.txt", true),
            ("**/file*txt", "dir/dir/file.txt", true),
            ("**/file*.txt*", "dir/dir/file.txt", true),
            ("**/**/*.txt", "dir/dir/file.txt", true),
            ("**/*.txt", "file.txt", true),
            ("**/**/*.txt2", "dir/dir/file.txt", false),
            ("**/a/**/b", "x/a/y/z/b", true),
            ("a/**/b", "a/b", true),
            ("a/**/b", "ab", false),
            ("a[b-d]e", "ace", true),
            ("a[^b-d]e", "aae", true),
            ("a[^b-d]e", "abe", false),
            ("a\\*b", "a*b", true),
            ("a\\*b", "axb", false),
            (".*", ".foo", true),
            (".*", "foo", false),
            ("abc.def", "abcdef", false),
            ("abc.def", "abc.def", true),
            ("abc?def", "abcZdef", true),
            ("a\\b", "ab", true),
            ("**/foo/bar", "in/foo/bar", true),
            ("**/foo/bar", "foo", false),
            ("abc/**", "abc/def/ghi", true),
            ("**/.foo", "bar/.foo", true),
            ("**/.foo", ".foo", true),
            ("a(b)c/def", "a(b)c/def", true),
            ("a.|)$(}+{bc", "a.|)$(}+{bc", true),
            (
                "dist/proxy.py-2.4.0rc3.dev36+g08acad9-py3-none-any.whl",
                "dist/proxy.py-2.4.0rc3.dev36+g08acad9-py3-none-any.whl",
                true,
            ),
            ("node_modules", "node_modules/a/b.js", true),
            ("node_modules", "web/node_modules", false),
            ("/node_modules/", "node_modules", true),
            ("./src/../out", "out/x", true),
            ("*/temp*", "dir/temporary.txt", true),
            ("*/temp*", "a/b/temp", false),
            ("*/*/temp*", "a/b/temp", true),
            ("temp?", "tempa", true),
            ("temp?", "temp", false),
            ("../x", "x", false),
            (".", "x", false),
            ("/", "x", false),
            ("*", ".git/config", true),
        ] {
            assert_eq!(ignores(pattern, path), expected, "{pattern} {path}");
        }
    }

    #[test]
    fn the_last_match_decides() {
        for (text, path, expected) in [
            ("*.md\n!README.md", "README.md", false),
            ("*.md\n!README.md", "x.md", true),
            ("*.md\n!README*.md\nREADME-secret.md", "README-secret.md", true),
            ("*.md\nREADME-secret.md\n!README*.md", "README-secret.md", false),
            ("*\n!src", "src/main.rs", false),
            ("*\n!src/**/*.rs", "src/a/b.rs", false),
            ("*\n!src/**/*.rs", "src/a/b.md", true),
            ("dir\n!dir/keep", "dir/keep", false),
            ("dir\n!dir/keep", "dir/other", true),
            ("! src\nsrc", "src", true),
            ("src\n! src", "src", false),
            ("src\n!/src", "src/x", false),
            ("!x", "x", false),
        ] {
            assert_eq!(ignores(text, path), expected, "{text:?} {path}");
        }
    }

    #[test]
    fn lines() {
        assert!(ignores("\u{feff}a\r\nb\r\n", "b"));
        assert!(ignores("  a  \n", "a"));
        assert!(!ignores("#a\n", "#a"));
        assert!(ignores(" #a\n", "#a"));
        assert!(!ignores("\n\n", "a"));
        assert!(ignores("a b", "a b"));
        assert_eq!(IgnoreFile::parse("a\n!\n").unwrap_err().line, 2);
        assert_eq!(
            IgnoreFile::parse("a\n[x\n").unwrap_err().to_string(),
            "line 2 of .dockerignore: `[x` is not a good pattern"
        );
    }
}
