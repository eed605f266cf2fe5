//! Server, command line and SDKs are released together and have one version: the workspace's.

use std::path::Path;

use crate::Findings;
use crate::tree::TextFile;

/// Where a version is written, and how to read it there.
struct Place {
    path: &'static str,
    /// What stands between the quotes behind this, each time it occurs within `lines`.
    key: &'static str,
    /// Only the beginning of a file: locks go on with the versions of other packages.
    lines: usize,
    /// How often it has to be there.
    times: usize,
}

const WORKSPACE: Place = Place { path: "Cargo.toml", key: "version = ", lines: 12, times: 1 };
const OTHERS: [Place; 4] = [
    Place { path: "sdk/python/pyproject.toml", key: "version = ", lines: 10, times: 1 },
    Place { path: "sdk/python/src/pandastack/_version.py", key: "__version__ = ", lines: 10, times: 1 },
    Place { path: "sdk/typescript/package.json", key: "\"version\": ", lines: 10, times: 1 },
    Place { path: "sdk/typescript/package-lock.json", key: "\"version\": ", lines: 12, times: 2 },
];
/// Says what goes with the version.
const CHANGELOG: &str = "CHANGELOG.md";

impl Place {
    fn versions<'a>(&self, text: &'a str) -> Vec<&'a str> {
        let lines = text.lines().take(self.lines).map(str::trim_start);
        let values = lines.filter_map(|line| line.strip_prefix(self.key));
        values.filter_map(|value| value.strip_prefix('"')?.split('"').next()).collect()
    }
}

pub(super) fn check(files: &[TextFile], findings: &mut Findings) {
    let text = |path: &str| {
        files.iter().find(|file| file.path == Path::new(path)).map_or("", |file| file.text.as_str())
    };
    let Some(&version) = WORKSPACE.versions(text(WORKSPACE.path)).first() else { return };
    for place in OTHERS {
        let found = place.versions(text(place.path));
        if found.len() != place.times || found.iter().any(|one| *one != version) {
            findings.errors.push(format!(
                "{}: its version is {found:?}, that of the workspace is {version:?}; they are released together",
                place.path
            ));
        }
    }
    if !text(CHANGELOG).contains(version) {
        findings.errors.push(format!("{CHANGELOG}: says nothing about version {version}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn errors(python: &str, locked: &str, changelog: &str) -> Vec<String> {
        let files = [
            file("Cargo.toml", "[workspace.package]\nversion = \"0.2.0\"\n[workspace.dependencies]\n"),
            file("sdk/python/pyproject.toml", "[project]\nversion = \"0.2.0\"\n"),
            file("sdk/python/src/pandastack/_version.py", &format!("__version__ = \"{python}\"\n")),
            file("sdk/typescript/package.json", "{\n  \"version\": \"0.2.0\",\n"),
            file(
                "sdk/typescript/package-lock.json",
                &format!("{{\n  \"version\": \"0.2.0\",\n      \"version\": \"{locked}\",\n"),
            ),
            file("CHANGELOG.md", changelog),
        ];
        let mut findings = Findings::default();
        check(&files, &mut findings);
        findings.errors
    }

    #[test]
    fn all_have_the_version_of_the_workspace() {
        assert_eq!(errors("0.2.0", "0.2.0", "## 0.2.0"), Vec::<String>::new());
        for (python, locked, changelog, path) in [
            ("1.0.0", "0.2.0", "0.2.0", "_version.py"),
            ("0.2.0", "0.1.0", "0.2.0", "package-lock.json"),
            ("0.2.0", "0.2.0", "0.1.0", "CHANGELOG.md"),
        ] {
            let found = errors(python, locked, changelog);
            assert!(found.len() == 1 && found[0].contains(path), "{found:?}");
        }
    }

    #[test]
    fn a_place_without_a_version_is_an_error() {
        let mut findings = Findings::default();
        check(&[file("Cargo.toml", "version = \"0.2.0\"\n")], &mut findings);
        assert_eq!(findings.errors.len(), OTHERS.len() + 1, "{:?}", findings.errors);
    }
}
