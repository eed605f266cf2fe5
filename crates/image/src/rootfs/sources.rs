//! Where the packages of a root file system come from: the sources this host uses, or those the operator names.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::spec::{SpecError, SuiteName};
use crate::answers::Answers;
use crate::apt::{self, Source};
use crate::error::ImageError;

const LINES_MAX: usize = 50;
const LINE_LENGTH_MAX: usize = 1000;
/// Releases in the making have neither updates nor security fixes beside them.
const ROLLING: [&str; 3] = ["sid", "unstable", "experimental"];
/// Who signs what. These files exist in the guest under the same names.
const KEYRINGS: [(&str, &str); 2] = [
    ("Debian", "/usr/share/keyrings/debian-archive-keyring.gpg"),
    ("Ubuntu", "/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
];

/// Where packages come from.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageSources {
    /// From where this host gets its own.
    #[default]
    Host,
    /// From these sources, each a `deb …` line as in `sources.list`.
    Lines(Vec<String>),
}

impl PackageSources {
    pub(super) fn check(&self) -> Result<(), SpecError> {
        let Self::Lines(lines) = self else { return Ok(()) };
        if lines.len() > LINES_MAX {
            return Err(SpecError::TooMany { what: "package sources", limit: LINES_MAX });
        }
        let fine = |line: &&String| {
            line.starts_with("deb ") && line.len() <= LINE_LENGTH_MAX && !line.contains(char::is_control)
        };
        match lines.iter().find(|line| !fine(line)) {
            Some(line) => Err(SpecError::BadName { kind: "package source", text: line.clone() }),
            None => Ok(()),
        }
    }
}

/// The suite this host itself runs, where it is a Debian or something like it.
pub fn host_suite() -> Option<SuiteName> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    SuiteName::parse(codename.trim_matches('"')).ok()
}

/// The `deb` lines for `suite`.
pub(super) async fn lines(
    answers: &Answers,
    sources: &PackageSources,
    suite: &SuiteName,
) -> Result<Vec<String>, ImageError> {
    let lines = match sources {
        PackageSources::Lines(lines) => lines.clone(),
        PackageSources::Host => {
            let host = match answers.sources() {
                Some(known) => known,
                None => {
                    let found = apt::sources().await?;
                    answers.keep_sources(&found);
                    found
                }
            };
            from_host(&host, suite.as_str(), |path| Path::new(path).exists())
        }
    };
    if lines.is_empty() {
        return Err(ImageError::NoPackageSource { suite: suite.to_string() });
    }
    Ok(lines)
}

/// What the host has for the suite, its updates and its security fixes. Where it has nothing for the suite itself, but
/// sources for another release of the same distribution, the same places are asked for this one.
fn from_host(sources: &[Source], suite: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let parts = ["", "-updates", "-security"];
    let wanted = |source: &&Source| parts.iter().any(|part| source.release == format!("{suite}{part}"));
    let line = |source: &Source, release: &str| {
        let signed_by = KEYRINGS
            .iter()
            .find(|(origin, keyring)| source.origin == *origin && exists(keyring))
            .map_or_else(String::new, |(_, keyring)| format!("[signed-by={keyring}] "));
        format!("deb {signed_by}{} {release} {}", source.site, source.components.join(" "))
    };
    if sources.iter().any(|source| source.release == suite) {
        return sources.iter().filter(wanted).map(|source| line(source, &source.release)).collect();
    }
    let Some(base) = sources.iter().find(|source| source.origin == "Debian" && !source.release.contains('-'))
    else {
        return Vec::new();
    };
    let mut lines = vec![line(base, suite)];
    if !ROLLING.contains(&suite) {
        for part in &parts[1..] {
            let sibling = sources.iter().find(|source| source.release == format!("{}{part}", base.release));
            lines.extend(sibling.map(|source| line(source, &format!("{suite}{part}"))));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(site: &str, release: &str, origin: &str) -> Source {
        Source {
            site: site.to_owned(),
            release: release.to_owned(),
            components: vec!["main".to_owned()],
            origin: origin.to_owned(),
        }
    }

    fn host() -> Vec<Source> {
        vec![
            source("http://m/debian", "bookworm", "Debian"),
            source("http://m/debian", "bookworm-updates", "Debian"),
            source("http://m/security", "bookworm-security", "Debian"),
            source("http://m/debian", "bookworm-backports", "Debian Backports"),
            source("http://vendor/apt", "stable", "Vendor"),
        ]
    }

    fn check(suite: &str, expected: &[&str]) {
        assert_eq!(from_host(&host(), suite, |_| false), expected, "{suite}");
    }

    #[test]
    fn the_hosts_sources_serve_its_own_and_other_releases() {
        check(
            "bookworm",
            &[
                "deb http://m/debian bookworm main",
                "deb http://m/debian bookworm-updates main",
                "deb http://m/security bookworm-security main",
            ],
        );
        check(
            "trixie",
            &[
                "deb http://m/debian trixie main",
                "deb http://m/debian trixie-updates main",
                "deb http://m/security trixie-security main",
            ],
        );
        check("sid", &["deb http://m/debian sid main"]);
        assert!(from_host(&host()[4..], "bookworm", |_| true).is_empty());
        let signed = from_host(&host()[..1], "bookworm", |_| true);
        let keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";
        assert_eq!(signed, [format!("deb [signed-by={keyring}] http://m/debian bookworm main")]);
    }

    #[test]
    fn lines_of_the_operator_are_checked() {
        let check = |line: &str| PackageSources::Lines(vec![line.to_owned()]).check();
        assert!(check("deb [signed-by=/k.gpg] https://mirror/debian bookworm main").is_ok());
        assert!(check("/etc/apt/sources.list").is_err());
        assert!(check("deb http://x y main\ndeb http://z y main").is_err());
    }
}
