//! Installs Debian into a folder. The only caller of `mmdebstrap`.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::registries;
use super::spec::RootfsSpec;
use crate::apt;
use crate::error::ImageError;
use crate::progress::Reporter;
use crate::store::Staging;
use crate::tool::{Run, Tool, ToolError};

/// A large template on a slow line and a slow machine.
const LIMIT: Duration = Duration::from_secs(60 * 60);
const SETTINGS: &str = "apt.conf";

/// Serve the installation only; `customise` removes them from the finished system. Lists and packages are fetched by
/// root, because no other user may look into the staging folder.
const BUILD_SETTINGS: &str =
    "APT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\nAcquire::Retries \"3\";\n";

/// What mmdebstrap shall not do: refuse the folder because we put something there, guess keys we name ourselves,
/// throw away downloaded packages.
const SKIP: &str = "--skip=check/empty,check/signed-by,essential/unlink,cleanup/apt/cache";

/// Installs what `spec` asks for into `root` of the staging folder.
pub(super) async fn install(
    staging: &Staging,
    spec: &RootfsSpec,
    sources: &[String],
    reporter: Reporter<'_>,
) -> Result<(), ImageError> {
    let settings = staging.path().join(SETTINGS);
    let content = format!("{}{BUILD_SETTINGS}", apt::reachability_settings().await?);
    fs::write(&settings, content).map_err(|error| ImageError::io("writing settings for apt", error))?;

    let packages: Vec<&str> = spec.packages.iter().map(|package| package.as_str()).collect();
    let mut run = Run::new(Tool::Mmdebstrap, LIMIT)
        .args(["--mode=root", "--format=directory", "--variant=minbase", "--verbose", SKIP])
        .arg(format!("--aptopt={}", settings.display()))
        .arg(format!("--include={}", packages.join(",")))
        .args(registries::hook(spec))
        .arg(spec.suite.as_str())
        .arg(staging.path().join("root"))
        .args(sources)
        .in_own_namespace();
    if let Some(lock) = staging.lock() {
        run = run.holding(lock);
    }
    let mut stages = Stages::default();
    let result = run
        .output_watched(|line| {
            if let Some((fraction, message)) = stages.read(line) {
                reporter.at(fraction, message);
            }
        })
        .await;
    let forget_packages = match &result {
        Err(ToolError::DiskFull { .. }) => true,
        // A package that we kept may be damaged: the next try downloads all of them again.
        Err(ToolError::Failed { tail, .. }) => tail.contains("dpkg-deb"),
        _ => false,
    };
    if forget_packages {
        let archives = staging.path().join(crate::store::PackageCache::IN_STAGING);
        let forgotten = fs::remove_dir_all(archives).and_then(|()| staging.packages().clear());
        forgotten.map_err(|error| ImageError::io("forgetting downloaded packages", error))?;
    }
    result.map(drop).map_err(ImageError::from)
}

/// Removes what only the installation needed.
pub(super) fn clean_up(folder: &Path) -> io::Result<()> {
    fs::remove_file(folder.join(SETTINGS))
}

/// Follows mmdebstrap by what it says. Most of the time goes into unpacking and setting up packages, twice: first the
/// essential ones, then the rest.
#[derive(Debug, Default)]
struct Stages {
    range: (f32, f32),
    /// How many packages there are to install, where that is known.
    packages: u32,
    done: u32,
    /// How often each verb was seen since the stage began.
    counts: [u32; VERBS.len()],
    /// Which client's lines follow.
    client: Option<Client>,
}

/// What happens to packages, by what dpkg and apt say, and how it is told.
const VERBS: [(&str, &str); 3] = [
    ("Get:", "downloading packages"),
    ("Unpacking ", "unpacking packages"),
    ("Setting up ", "installing packages"),
];

/// Clients of other registries, that say how far they are in ways of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Client {
    Pip(&'static str),
    Npm,
}

impl Stages {
    fn read(&mut self, line: &str) -> Option<(f32, String)> {
        if let Some(stage) = line.strip_prefix("I: ") {
            let (range, message) = if stage.starts_with("running apt-get update") {
                ((0.02, 0.08), "fetching package lists")
            } else if stage.starts_with("downloading packages") {
                ((0.08, 0.2), "downloading essential packages")
            } else if stage.starts_with("extracting archives") {
                ((0.2, 0.3), "unpacking essential packages")
            } else if stage.starts_with("installing essential") {
                ((0.3, 0.5), "installing essential packages")
            } else if stage.starts_with("installing remaining") {
                ((0.5, 0.7), "downloading and installing packages")
            } else if stage.starts_with("installing Node.js") {
                ((0.7, 0.72), "installing Node.js")
            } else if stage.starts_with("installing Go") {
                ((0.72, 0.72), "installing Go")
            } else if stage.starts_with("installing Python packages") {
                ((0.72, 0.78), "installing Python packages")
            } else if stage.starts_with("installing npm packages") {
                ((0.78, 0.83), "installing npm packages")
            } else if stage.starts_with("cleaning") {
                ((0.83, 0.85), "cleaning up")
            } else {
                return None;
            };
            self.client = match message {
                "installing npm packages" => Some(Client::Npm),
                "installing Node.js" | "installing Go" | "installing Python packages" => {
                    Some(Client::Pip(message))
                }
                _ => None,
            };
            self.range = range;
            self.done = 0;
            self.counts = [0; VERBS.len()];
            return Some((range.0, message.to_owned()));
        }
        if let Some(count) =
            line.split_once(" newly installed").and_then(|(before, _)| before.rsplit(' ').next())
        {
            self.packages = count.parse().ok()?;
            return None;
        }
        if let Some(client) = self.client {
            return self.client_step(client, line);
        }
        let verb = package_verb(line)?;
        self.counts[verb] += 1;
        let message = match self.packages {
            0 => format!("{}: {}", VERBS[verb].1, self.counts[verb]),
            all => format!("{}: {} of {all}", VERBS[verb].1, self.counts[verb]),
        };
        self.done += 1;
        // Each package is fetched, unpacked and set up.
        let share = self.done as f32 / (3 * self.packages.max(1)) as f32;
        let (from, to) = self.range;
        Some((from + (to - from) * share.min(1.0), message))
    }
}

impl Stages {
    /// How far pip or npm is. What they say names the host's registries, so only counts are told.
    fn client_step(&mut self, client: Client, line: &str) -> Option<(f32, String)> {
        let message = match client {
            Client::Pip(what) => {
                let line = line.trim_start();
                let installing = line.starts_with("Installing collected packages");
                if !installing && !["Collecting ", "Downloading "].iter().any(|start| line.starts_with(start))
                {
                    return None;
                }
                self.done += u32::from(!installing);
                match installing {
                    true => format!("{what}: unpacking"),
                    false => format!("{what}: download {}", self.done),
                }
            }
            Client::Npm => {
                line.starts_with("npm http ").then_some(())?;
                self.done += 1;
                format!("installing npm packages: download {}", self.done)
            }
        };
        Some((self.range.0, message))
    }
}

/// Which of the verbs a line about a package begins with.
fn package_verb(line: &str) -> Option<usize> {
    let verb = VERBS.iter().position(|(start, _)| line.starts_with(start))?;
    // Number, site, suite, architecture, name, architecture, version, size, unit. Lists have fewer words.
    let is_list = verb == 0 && line.split_whitespace().count() != 9;
    (!is_list).then_some(verb)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_only_moves_forward() {
        let mut stages = Stages::default();
        let mut last = 0.0;
        let mut messages = Vec::new();
        for line in [
            "I: running apt-get update...",
            "Get:1 http://m/debian bookworm InRelease [151 kB]",
            "Get:2 http://m/debian bookworm/main amd64 Packages [8793 kB]",
            "I: downloading packages with apt...",
            "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.",
            "Get:1 http://m/debian bookworm/main amd64 zlib1g amd64 1:1.2.13.dfsg-1 [86.7 kB]",
            "I: extracting archives...",
            "I: installing essential packages...",
            "0 upgraded, 2 newly installed, 0 to remove and 0 not upgraded.",
            "Unpacking zlib1g:amd64 (1:1.2) ...",
            "Setting up zlib1g:amd64 (1:1.2) ...",
            "something else",
            "I: installing remaining packages inside the chroot...",
            "I: installing Python packages",
            "Collecting numpy==2.0",
            "Installing collected packages: numpy",
            "I: installing npm packages",
            "npm http fetch GET 200 http://m/typescript 12ms",
            "npm http fetch GET 200 http://m/other 12ms",
            "added 2 packages in 1s",
            "I: cleaning package lists...",
        ] {
            if let Some((fraction, message)) = stages.read(line) {
                assert!(fraction >= last, "{line}");
                last = fraction;
                messages.push(message);
            }
        }
        assert!(messages.contains(&"installing packages: 1 of 2".to_owned()), "{messages:?}");
        assert!(messages.contains(&"downloading packages: 1 of 2".to_owned()), "{messages:?}");
        assert!(messages.contains(&"installing npm packages: download 2".to_owned()), "{messages:?}");
        assert!(messages.contains(&"installing Python packages: download 1".to_owned()), "{messages:?}");
        assert!(!messages.iter().any(|message| message.contains("http")), "{messages:?}");
    }
}
