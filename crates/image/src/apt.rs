//! Asks this host's apt: which package holds the kernel, where packages come from, how they are reached. The only
//! caller of `apt-get`, `apt-cache` and `apt-config`; never changes the host's own package state.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::ImageError;
use crate::tool::{Run, Tool, ToolError};

/// Reading local lists.
const QUERY_LIMIT: Duration = Duration::from_secs(60);
/// Fetching lists or one package, on a slow line.
const DOWNLOAD_LIMIT: Duration = Duration::from_secs(20 * 60);
/// How many packages that only point to another one are followed.
const INDIRECTIONS_MAX: usize = 3;

/// A package that can be downloaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) architecture: String,
    pub(crate) length: u64,
}

/// Which package lists are read.
#[derive(Debug, Clone)]
pub(crate) enum Lists {
    /// Those the host has, as old as its last update.
    Host,
    /// Our own copy in this folder, fetched from the host's sources.
    Own(PathBuf),
}

impl Lists {
    fn options(&self) -> Vec<String> {
        match self {
            Self::Host => Vec::new(),
            Self::Own(folder) => vec![
                format!("-oDir::State::Lists={}", folder.join("lists").display()),
                format!("-oDir::Cache={}", folder.join("cache").display()),
            ],
        }
    }

    /// Fetches our own lists; the host's are left as they are. Sources that do not answer are passed over: what they
    /// would have had is then reported as missing.
    pub(crate) async fn refresh(&self) -> Result<(), ImageError> {
        let Self::Own(folder) = self else { return Ok(()) };
        for part in ["lists/partial", "cache/archives/partial"] {
            let part = folder.join(part);
            fs::create_dir_all(&part)
                .map_err(|error| ImageError::io("making a folder for package lists", error))?;
        }
        let update = Run::new(Tool::AptGet, DOWNLOAD_LIMIT).args(self.options()).args([
            "-oAPT::Sandbox::User=root",
            "-qq",
            "update",
        ]);
        match update.output().await {
            Err(ToolError::Failed { tail, .. }) => {
                tracing::warn!(tail, "some package sources did not answer");
                Ok(())
            }
            other => Ok(other.map(drop)?),
        }
    }
}

/// The package that really holds the kernel, following packages that only depend on it. `None`: not in the lists.
pub(crate) async fn resolve_kernel(package: &str, lists: &Lists) -> Result<Option<Package>, ImageError> {
    let mut name = package.to_owned();
    for _ in 0..=INDIRECTIONS_MAX {
        let query = Run::new(Tool::AptCache, QUERY_LIMIT)
            .args(lists.options())
            .args(["show", "--no-all-versions", "--"])
            .arg(&name);
        let text = match query.output().await {
            Ok(answer) => String::from_utf8_lossy(&answer).into_owned(),
            Err(ToolError::Failed { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let Some(record) = Record::first(&text) else { return Ok(None) };
        match record.kernel_dependency() {
            Some(next) if next != name => name = next,
            _ => return Ok(record.package()),
        }
    }
    Ok(None)
}

/// Downloads a package into `folder` and returns its path.
pub(crate) async fn download(package: &Package, folder: &Path, lists: &Lists) -> Result<PathBuf, ImageError> {
    Run::new(Tool::AptGet, DOWNLOAD_LIMIT)
        .args(lists.options())
        .args(["-oAPT::Sandbox::User=root", "-q", "download"])
        .arg(format!("{}:{}={}", package.name, package.architecture, package.version))
        .in_folder(folder)
        .output()
        .await?;
    let listing =
        fs::read_dir(folder).map_err(|error| ImageError::io("looking for the downloaded package", error))?;
    listing
        .filter_map(Result::ok)
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .ok_or_else(|| ImageError::KernelPackageIncomplete { package: package.name.clone(), missing: "file" })
}

/// One place packages come from, as the host's apt knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) site: String,
    pub(crate) release: String,
    pub(crate) components: Vec<String>,
    pub(crate) origin: String,
}

/// The host's own sources of binary packages.
pub(crate) async fn sources() -> Result<Vec<Source>, ImageError> {
    let answer = Run::new(Tool::AptGet, QUERY_LIMIT)
        .args([
            "indextargets",
            "--format",
            "$(SITE)\t$(RELEASE)\t$(COMPONENT)\t$(ORIGIN)",
            "Created-By: Packages",
        ])
        .output()
        .await?;
    Ok(parse_sources(&String::from_utf8_lossy(&answer)))
}

fn parse_sources(text: &str) -> Vec<Source> {
    let mut sources: Vec<Source> = Vec::new();
    for line in text.lines() {
        let mut fields = line.split('\t');
        let (Some(site), Some(release), Some(component)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        // A field apt knows nothing for is left as it was asked.
        let origin = fields.next().filter(|origin| !origin.starts_with("$(")).unwrap_or_default();
        match sources.iter_mut().find(|known| known.site == site && known.release == release) {
            Some(known) if known.components.iter().any(|other| other == component) => {}
            Some(known) => known.components.push(component.to_owned()),
            None => sources.push(Source {
                site: site.to_owned(),
                release: release.to_owned(),
                components: vec![component.to_owned()],
                origin: origin.to_owned(),
            }),
        }
    }
    sources
}

/// The host's settings that decide whether its sources can be reached: proxies, and how old lists may be. In the
/// syntax of `apt.conf`.
pub(crate) async fn reachability_settings() -> Result<String, ImageError> {
    let answer = Run::new(Tool::AptConfig, QUERY_LIMIT).arg("dump").output().await?;
    Ok(select_settings(&String::from_utf8_lossy(&answer)))
}

fn select_settings(dump: &str) -> String {
    let wanted = |line: &&str| {
        let name = line.split_whitespace().next().unwrap_or_default().to_ascii_lowercase();
        name == "acquire::check-valid-until"
            || ["acquire::http::", "acquire::https::", "acquire::ftp::"].iter().any(|start| {
                name.strip_prefix(start)
                    .is_some_and(|rest| rest == "proxy" || rest.starts_with("proxy::") || rest == "cainfo")
            })
    };
    dump.lines().filter(wanted).flat_map(|line| [line, "\n"]).collect()
}

/// A paragraph of `apt-cache show`.
struct Record<'a>(BTreeMap<&'a str, &'a str>);

impl<'a> Record<'a> {
    fn first(text: &'a str) -> Option<Self> {
        let fields: BTreeMap<_, _> = text
            .lines()
            .skip_while(|line| line.is_empty())
            .take_while(|line| !line.is_empty())
            .filter(|line| !line.starts_with(' '))
            .filter_map(|line| line.split_once(": "))
            .collect();
        (!fields.is_empty()).then_some(Self(fields))
    }

    /// What a package without files of its own leads to: `linux-image-6.1.0-54-cloud-amd64`.
    fn kernel_dependency(&self) -> Option<String> {
        self.0.get("Depends")?.split(',').find_map(|dependency| {
            let name = dependency.split_whitespace().next()?;
            let after = name.strip_prefix("linux-image-")?;
            after.starts_with(|first: char| first.is_ascii_digit()).then(|| name.to_owned())
        })
    }

    fn package(&self) -> Option<Package> {
        Some(Package {
            name: (*self.0.get("Package")?).to_owned(),
            version: (*self.0.get("Version")?).to_owned(),
            architecture: (*self.0.get("Architecture")?).to_owned(),
            length: self.0.get("Size").and_then(|size| size.parse().ok()).unwrap_or(0),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointing_package_leads_to_the_real_one() {
        let text = "Package: linux-image-cloud-amd64\nVersion: 6.1.190-1\nArchitecture: amd64\n\
                    Depends: linux-image-6.1.0-54-cloud-amd64 (= 6.1.190-1), other\nDescription: a\n b: c\n\nPackage: x\n";
        let record = Record::first(text).unwrap();
        assert_eq!(record.kernel_dependency().as_deref(), Some("linux-image-6.1.0-54-cloud-amd64"));
        assert_eq!(record.package().unwrap().version, "6.1.190-1");
        assert!(Record::first("").is_none());
    }

    #[test]
    fn sources_are_gathered_by_suite() {
        let text = "http://a/debian\tbookworm\tmain\tDebian\nhttp://a/debian\tbookworm\tcontrib\tDebian\n\
                    http://b/x\tstable\tmain\t$(ORIGIN)\nbroken\n";
        let sources = parse_sources(text);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].components, ["main", "contrib"]);
        assert_eq!((sources[1].site.as_str(), sources[1].origin.as_str()), ("http://b/x", ""));
    }

    #[test]
    fn only_reachability_is_taken_over() {
        let dump = "APT \"\";\nAcquire::http::Proxy \"http://proxy:3128\";\nAcquire::Check-Valid-Until \"false\";\n\
                    Acquire::http::Proxy::mirror \"DIRECT\";\nAcquire::http::Timeout \"3\";\nDPkg::Pre-Invoke:: \"x\";\n";
        let expected = "Acquire::http::Proxy \"http://proxy:3128\";\nAcquire::Check-Valid-Until \"false\";\n\
                        Acquire::http::Proxy::mirror \"DIRECT\";\n";
        assert_eq!(select_settings(dump), expected);
    }
}
