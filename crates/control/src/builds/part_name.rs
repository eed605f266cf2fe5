//! Names of parts that are files of a context: paths that strangers chose.

use std::path::PathBuf;

use crate::error::ControlError;
use crate::names;

/// Longest path.
const PATH_BYTES_MAX: usize = 1024;
/// Longest part of a path; file systems take no more.
const NAME_BYTES_MAX: usize = 255;
/// Directories within each other.
const DEPTH_MAX: usize = 64;

/// A path below the context, as its field name says.
pub(crate) fn context_path(text: &str) -> Result<PathBuf, ControlError> {
    let refuse = |why: &str| {
        Err(ControlError::invalid(format!("{} is not a path in the context: {why}", names::shown(text))))
    };
    if text.is_empty() || text.len() > PATH_BYTES_MAX {
        return refuse("it is empty or too long");
    }
    if text.starts_with('/') {
        return refuse("it is absolute");
    }
    if text.contains(['\0', '\\']) || text.chars().any(char::is_control) {
        return refuse("it has characters that no path should have");
    }
    let mut path = PathBuf::new();
    for (depth, part) in text.split('/').enumerate() {
        match part {
            "" | "." | ".." => return refuse("one of its parts is empty, `.` or `..`"),
            _ if part.len() > NAME_BYTES_MAX => return refuse("one of its parts is too long"),
            _ if depth >= DEPTH_MAX => return refuse("it is too deep"),
            _ => path.push(part),
        }
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn honest_paths_are_taken() {
        for text in
            ["app.py", "src/deep/er/main.rs", ".dockerignore", "a b/ü.txt", "..a/b..", "rootfs", "name"]
        {
            assert_eq!(context_path(text).unwrap(), PathBuf::from(text));
        }
    }

    #[test]
    fn hostile_paths_are_refused() {
        let long = "a".repeat(300);
        let deep = vec!["a"; 65].join("/");
        let hostile = [
            "",
            "/",
            "/etc/passwd",
            "..",
            "../x",
            "a/../b",
            "a/..",
            ".",
            "./a",
            "a//b",
            "a/",
            "a\0b",
            "a\nb",
            "a\\b",
            &long,
            &deep,
        ];
        for text in hostile {
            assert!(context_path(text).is_err(), "{text:?}");
        }
    }
}
