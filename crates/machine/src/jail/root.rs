//! The read-only root directory of a jailed program: the program, the libraries it links to and the data files it reads.
//!
//! Made once per program version and shared by all its processes, so starting one copies nothing.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the dynamic loader looks without a cache or a configuration file.
const LIBRARY_DIRECTORY: &str = "lib/x86_64-linux-gnu";
const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
/// Names that machines may bind their own files onto.
const BINDING_POINTS: [&str; 3] = ["memory", "kernel", "initramfs"];

/// Why the root of a jail could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RootError {
    /// The program's libraries could not be listed.
    #[error("could not list the libraries of {}: {reason}", program.display())]
    Libraries {
        /// The program.
        program: PathBuf,
        /// What the loader said.
        reason: String,
    },
    /// A file could not be copied.
    #[error("could not put {} into the jail", path.display())]
    Copy {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// A complete root directory.
#[derive(Debug, Clone)]
pub struct JailRoot {
    path: PathBuf,
}

impl JailRoot {
    /// Makes the root at `path` unless it is there. `data` are files the program reads, put under `/firmware`.
    /// Complete or absent: it is filled aside and renamed.
    pub fn ensure(path: &Path, program: &Path, data: &[PathBuf]) -> Result<Self, RootError> {
        if !path.join("complete").exists() {
            Self::build(path, program, data)?;
        }
        Ok(Self { path: path.to_owned() })
    }

    fn build(path: &Path, program: &Path, data: &[PathBuf]) -> Result<(), RootError> {
        let aside = path.with_extension("partial");
        let at = |path: &Path| {
            let path = path.to_owned();
            move |source| RootError::Copy { path, source }
        };
        for stale in [&aside, &path.to_owned()] {
            match fs::remove_dir_all(stale) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(at(stale)(error)),
                _ => {}
            }
        }
        for directory in [LIBRARY_DIRECTORY, "lib64", "firmware"] {
            fs::create_dir_all(aside.join(directory)).map_err(at(&aside))?;
        }
        copy(program, &aside.join("program"), 0o555)?;
        copy(Path::new(LOADER), &aside.join(LOADER.trim_start_matches('/')), 0o555)?;
        for library in libraries(program)? {
            let name = library.file_name().unwrap_or_default().to_owned();
            copy(&library, &aside.join(LIBRARY_DIRECTORY).join(name), 0o444)?;
        }
        for file in data {
            let name = file.file_name().unwrap_or_default().to_owned();
            copy(file, &aside.join("firmware").join(name), 0o444)?;
        }
        for point in BINDING_POINTS {
            fs::write(aside.join(point), b"").map_err(at(&aside))?;
        }
        fs::write(aside.join("complete"), b"").map_err(at(&aside))?;
        fs::set_permissions(&aside, fs::Permissions::from_mode(0o555)).map_err(at(&aside))?;
        fs::rename(&aside, path).map_err(at(path))
    }

    /// Where it is on the host.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<(), RootError> {
    let at = |source| RootError::Copy { path: from.to_owned(), source };
    fs::copy(from, to).map_err(at)?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode)).map_err(at)
}

/// The libraries the loader would map, by asking the loader itself.
fn libraries(program: &Path) -> Result<Vec<PathBuf>, RootError> {
    let failed = |reason: String| RootError::Libraries { program: program.to_owned(), reason };
    let output = Command::new(LOADER)
        .arg("--list")
        .arg(program)
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()));
    }
    let listing = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut found = Vec::new();
    for line in listing.lines() {
        let Some((name, rest)) = line.split_once("=>") else { continue };
        let path = rest.split_whitespace().next().unwrap_or_default();
        if !path.starts_with('/') {
            return Err(failed(format!("{} was not found", name.trim())));
        }
        if path != LOADER {
            found.push(PathBuf::from(path));
        }
    }
    Ok(found)
}
