//! What apt has answered, kept beside the images, so that finished images are found again without asking it: each question
//! costs seconds, and a server that was restarted has people waiting.
//!
//! Answers hold while the host's package sources and settings stay as they were. The one about the newest kernel also ages:
//! after a day it is still given, and whoever uses the store is told to ask again when there is time. What cannot be read or
//! written is only a question more.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::apt::{Package, Source};
use crate::digest::{Digest, KeyBuilder};

/// An older answer about the newest kernel should be asked for again.
const AGE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// A longer file is none of ours.
const LENGTH_MAX: u64 = 1 << 20;
/// A longer settings file counts by its beginning.
const SETTINGS_LENGTH_MAX: u64 = 1 << 20;
const VERSION: &str = "answers-1";

/// What the host's administrator decides about packages.
const SETTINGS: [&str; 6] = [
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d",
    "/etc/apt/apt.conf",
    "/etc/apt/apt.conf.d",
    "/etc/apt/preferences",
    "/etc/apt/preferences.d",
];
/// Lists that were fetched; what a source says about itself is known from then on.
const LISTS: &str = "/var/lib/apt/lists";

/// The file of answers.
#[derive(Debug, Clone)]
pub(crate) struct Answers {
    path: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    /// Digest of what the answers depend on.
    settings: Digest,
    #[serde(default)]
    kernels: BTreeMap<String, KeptKernel>,
    #[serde(default)]
    sources: Option<Vec<Source>>,
}

#[derive(Debug, Serialize, Deserialize)]
struct KeptKernel {
    package: Package,
    asked: SystemTime,
}

impl Answers {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Which package holds the kernel that `package` leads to.
    pub(crate) fn kernel(&self, package: &str) -> Option<Package> {
        Some(self.load()?.kernels.remove(package)?.package)
    }

    /// Whether the answer about this kernel should be asked for again. Not when there is none.
    pub(crate) fn is_kernel_old(&self, package: &str) -> bool {
        let kept = self.load().and_then(|mut kept| kept.kernels.remove(package));
        // A time in the future is a clock that was set back.
        kept.is_some_and(|kept| kept.asked.elapsed().map_or(true, |age| age > AGE_MAX))
    }

    pub(crate) fn keep_kernel(&self, package: &str, found: &Package) {
        self.change(|kept| {
            let answer = KeptKernel { package: found.clone(), asked: SystemTime::now() };
            kept.kernels.insert(package.to_owned(), answer);
        });
    }

    /// Where the host's packages come from.
    pub(crate) fn sources(&self) -> Option<Vec<Source>> {
        self.load()?.sources
    }

    pub(crate) fn keep_sources(&self, sources: &[Source]) {
        self.change(|kept| kept.sources = Some(sources.to_vec()));
    }

    /// Forgets everything.
    pub(crate) fn forget(&self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    fn load(&self) -> Option<Kept> {
        let mut text = Vec::new();
        fs::File::open(&self.path).ok()?.take(LENGTH_MAX).read_to_end(&mut text).ok()?;
        let kept: Kept = serde_json::from_slice(&text).ok()?;
        (kept.settings == settings_digest()).then_some(kept)
    }

    fn change(&self, change: impl FnOnce(&mut Kept)) {
        let empty = || Kept { settings: settings_digest(), kernels: BTreeMap::new(), sources: None };
        let mut kept = self.load().unwrap_or_else(empty);
        change(&mut kept);
        if let Err(error) = self.save(&kept) {
            tracing::warn!(%error, "what apt answered could not be written down; it will be asked again");
        }
    }

    /// Two processes that write at once cost one of them its answer, which is then asked for again.
    fn save(&self, kept: &Kept) -> io::Result<()> {
        let aside = self.path.with_extension(format!("{}.new", std::process::id()));
        let mut file = fs::File::create(&aside)?;
        file.write_all(&serde_json::to_vec(kept)?)?;
        file.sync_all()?;
        fs::rename(aside, &self.path)
    }
}

/// Everything on this host that decides what apt answers, except what its sources offer at the moment.
fn settings_digest() -> Digest {
    let mut key = KeyBuilder::new(VERSION);
    for place in SETTINGS {
        let place = Path::new(place);
        let mut files = names(place).into_iter().map(|name| place.join(name)).collect::<Vec<_>>();
        files.push(place.to_owned());
        for path in files {
            let mut content = Vec::new();
            let read = fs::File::open(&path)
                .and_then(|file| file.take(SETTINGS_LENGTH_MAX).read_to_end(&mut content));
            if read.is_ok() {
                key.add(path.as_os_str().as_encoded_bytes());
                key.add(content);
            }
        }
    }
    for name in names(Path::new(LISTS)).into_iter().filter(|name| name.ends_with("Release")) {
        key.add(name);
    }
    key.finish()
}

/// The names in a folder, in order; none if there is no such folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package() -> Package {
        Package {
            name: "linux-image-6.1.0-54-cloud-amd64".to_owned(),
            version: "6.1.190-1".to_owned(),
            architecture: "amd64".to_owned(),
            length: 7,
        }
    }

    #[test]
    fn answers_hold_age_and_are_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let answers = Answers::new(dir.path().join("answers.json"));
        assert_eq!(answers.kernel("linux-image-cloud-amd64"), None);
        assert!(!answers.is_kernel_old("linux-image-cloud-amd64"));
        answers.keep_kernel("linux-image-cloud-amd64", &package());
        answers.keep_sources(&[]);
        assert_eq!(answers.kernel("linux-image-cloud-amd64"), Some(package()));
        assert_eq!(answers.kernel("another"), None);
        assert_eq!(answers.sources(), Some(Vec::new()));
        assert!(!answers.is_kernel_old("linux-image-cloud-amd64"));

        let yesterday = SystemTime::now() - 2 * AGE_MAX;
        answers.change(|kept| {
            for kernel in kept.kernels.values_mut() {
                kernel.asked = yesterday;
            }
        });
        assert!(answers.is_kernel_old("linux-image-cloud-amd64"));
        assert_eq!(answers.kernel("linux-image-cloud-amd64"), Some(package()));
        answers.forget().unwrap();
        answers.forget().unwrap();
        assert_eq!(answers.kernel("linux-image-cloud-amd64"), None);
    }

    #[test]
    fn other_settings_and_damage_make_it_ask_again() {
        let dir = tempfile::tempdir().unwrap();
        let answers = Answers::new(dir.path().join("answers.json"));
        answers.keep_kernel("a", &package());
        answers.change(|kept| kept.settings = Digest::of_bytes(b"other"));
        assert_eq!(answers.kernel("a"), None);
        fs::write(dir.path().join("answers.json"), b"{\"settings\":").unwrap();
        assert_eq!(answers.kernel("a"), None);
        answers.keep_kernel("a", &package());
        assert_eq!(answers.kernel("a"), Some(package()));
    }
}
