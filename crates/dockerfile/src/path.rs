//! Paths as text: always with `/`, never looked up.

/// `path` seen from `directory`, absolute and without `.`, `..` and doubled slashes.
pub(crate) fn absolute(directory: &str, path: &str) -> String {
    let from = if path.starts_with('/') { "" } else { directory };
    let mut parts: Vec<&str> = Vec::new();
    for part in from.split('/').chain(path.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// A destination: absolute, and ending with `/` when only a directory can be meant.
pub(crate) fn destination(directory: &str, path: &str) -> String {
    let last = path.rsplit('/').next().unwrap_or_default();
    let absolute = absolute(directory, path);
    if matches!(last, "" | "." | "..") && absolute != "/" { absolute + "/" } else { absolute }
}

/// A source: relative to the root of where it is copied from. `None` when it leaves it. Empty is the root itself.
pub(crate) fn source(path: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The last part of a path.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// One path below another.
pub(crate) fn join(directory: &str, name: &str) -> String {
    match directory {
        "" => name.to_owned(),
        _ => format!("{}/{name}", directory.trim_end_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (directory, path, expected) in [
            ("/app", "x", "/app/x"),
            ("/app", "/x/", "/x"),
            ("/app", ".", "/app"),
            ("/app", "../../../x", "/x"),
            ("", "", "/"),
            ("/", "a//b/./c/../d", "/a/b/d"),
        ] {
            assert_eq!(absolute(directory, path), expected, "{directory} {path}");
        }
        for (path, expected) in
            [(".", "/app/"), ("./", "/app/"), ("x", "/app/x"), ("x/", "/app/x/"), ("..", "/"), ("/", "/")]
        {
            assert_eq!(destination("/app", path), expected, "{path}");
        }
        for (path, expected) in
            [("a/b", Some("a/b")), ("/a/", Some("a")), (".", Some("")), ("a/..", Some("")), ("../a", None)]
        {
            assert_eq!(source(path).as_deref(), expected, "{path}");
        }
    }
}
