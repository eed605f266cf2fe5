//! Finds out which commit the program is built from and when, for `--version` and `GET /version`.
//!
//! Runs again only when `HEAD` moves, so a program that is built again while files change keeps what was found. The time of a
//! clean tree is that of its commit: the same commit gives the same program. `PANDASTACK_BUILD_COMMIT` and `SOURCE_DATE_EPOCH`
//! come first, for sources that were taken out of their repository.

#![allow(clippy::print_stdout, reason = "cargo reads the standard output of a build script")]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

const COMMIT: &str = "PANDASTACK_BUILD_COMMIT";
const EPOCH: &str = "SOURCE_DATE_EPOCH";
const UNKNOWN: &str = "unknown";
/// As many characters of a commit as people read.
const SHORT: usize = 7;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    for variable in [COMMIT, EPOCH] {
        println!("cargo::rerun-if-env-changed={variable}");
    }
    let repository = Repository::of_workspace();
    if let Some(repository) = &repository {
        repository.watch();
    }
    let dirty = repository.as_ref().is_some_and(Repository::is_dirty);
    let given = env::var(COMMIT).ok().filter(|commit| !commit.trim().is_empty());
    let (commit, suffix) = match (given, &repository) {
        (Some(given), _) => (given.trim().to_owned(), ""),
        (None, Some(repository)) => (repository.commit.clone(), if dirty { "-dirty" } else { "" }),
        (None, None) => (UNKNOWN.to_owned(), ""),
    };
    let seconds = match env::var(EPOCH) {
        Ok(given) => Some(given.trim().parse().unwrap_or_else(|_| panic!("{EPOCH} is no number: {given}"))),
        Err(_) if dirty => SystemTime::now().duration_since(UNIX_EPOCH).ok().map(|since| since.as_secs()),
        Err(_) => repository.as_ref().map(|repository| repository.committed_at),
    };
    let built_at = seconds.map_or_else(|| UNKNOWN.to_owned(), rfc3339);
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets the version");
    let short: String = commit.chars().take(SHORT).collect();
    let known = [
        (commit != UNKNOWN).then(|| format!("{short}{suffix}")),
        seconds.map(|_| built_at.chars().take(10).collect()),
    ];
    let known: Vec<String> = known.into_iter().flatten().collect();
    let line = if known.is_empty() { version } else { format!("{version} ({})", known.join(", ")) };
    println!("cargo::rustc-env=PANDASTACK_BUILT_FROM={commit}{suffix}");
    println!("cargo::rustc-env=PANDASTACK_BUILT_AT={built_at}");
    println!("cargo::rustc-env=PANDASTACK_VERSION_LINE={line}");
}

/// The repository that this workspace is the root of.
struct Repository {
    root: PathBuf,
    commit: String,
    committed_at: u64,
}

impl Repository {
    /// None without git, without a repository, and where the workspace only lies in the repository of another project.
    fn of_workspace() -> Option<Self> {
        let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR")?);
        let root = manifest.ancestors().nth(2)?.canonicalize().ok()?;
        let top = git(&root, &["rev-parse", "--show-toplevel"])?;
        if Path::new(&top).canonicalize().ok()? != root {
            return None;
        }
        let told = git(&root, &["log", "-1", "--format=%H %ct"])?;
        let (commit, committed_at) = told.split_once(' ')?;
        Some(Self { commit: commit.to_owned(), committed_at: committed_at.parse().ok()?, root })
    }

    fn is_dirty(&self) -> bool {
        git(&self.root, &["status", "--porcelain", "--untracked-files=no"])
            .is_some_and(|said| !said.is_empty())
    }

    /// Has cargo run this again when `HEAD` moves. A file that is not there would have it run every time.
    fn watch(&self) {
        let branch = git(&self.root, &["symbolic-ref", "--quiet", "HEAD"]);
        for name in [Some("HEAD"), Some("logs/HEAD"), branch.as_deref()].into_iter().flatten() {
            let path = git(&self.root, &["rev-parse", "--git-path", name]);
            if let Some(path) = path.map(|path| self.root.join(path)).filter(|path| path.exists()) {
                println!("cargo::rerun-if-changed={}", path.display());
            }
        }
    }
}

/// What git answers, or nothing when it fails. The tree may belong to another user than the one who builds.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*", "--no-optional-locks", "-C"]).arg(root).args(arguments);
    let ran = command.env_remove("GIT_DIR").env_remove("GIT_WORK_TREE").output().ok()?;
    ran.status.success().then(|| String::from_utf8_lossy(&ran.stdout).trim().to_owned())
}

/// Seconds since 1970 as a date and time in UTC.
fn rfc3339(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Days since 1 March of year 0, in eras of 400 years, years that end with February.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
