//! The read-only root directory of a jailed program: the program, the libraries it links to and the data files it reads.
//!
//! Made once per program version and shared by all its processes, so starting one copies nothing.

use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
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

/// What a root is made of.
#[derive(Debug, Clone, Copy)]
pub struct RootContent<'a> {
    /// The program.
    pub program: &'a Path,
    /// Files it reads, put under `/firmware`.
    pub data: &'a [PathBuf],
    /// Empty directories, for what every process has of its own.
    pub directories: &'a [&'a str],
}

/// A complete root directory.
#[derive(Debug, Clone)]
pub struct JailRoot {
    path: PathBuf,
}

impl JailRoot {
    /// Makes the root at `path` unless it is there. Complete or absent: it is filled aside and renamed.
    pub fn ensure(path: &Path, content: &RootContent<'_>) -> Result<Self, RootError> {
        if !path.join("complete").exists() {
            Self::build(path, content)?;
        }
        Ok(Self { path: path.to_owned() })
    }

    fn build(path: &Path, content: &RootContent<'_>) -> Result<(), RootError> {
        let RootContent { program, data, directories } = *content;
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
        fs::create_dir_all(&aside).map_err(at(&aside))?;
        copy(program, &aside.join("program"), 0o555)?;
        if needs_loader(program).map_err(at(program))? {
            for directory in [LIBRARY_DIRECTORY, "lib64"] {
                fs::create_dir_all(aside.join(directory)).map_err(at(&aside))?;
            }
            copy(Path::new(LOADER), &aside.join(LOADER.trim_start_matches('/')), 0o555)?;
            for library in libraries(program)? {
                let name = library.file_name().unwrap_or_default().to_owned();
                copy(&library, &aside.join(LIBRARY_DIRECTORY).join(name), 0o444)?;
            }
        }
        for directory in directories {
            fs::create_dir_all(aside.join(directory)).map_err(at(&aside))?;
        }
        for file in data {
            fs::create_dir_all(aside.join("firmware")).map_err(at(&aside))?;
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

/// Whether a program names a loader. One that is linked statically has no libraries either.
fn needs_loader(program: &Path) -> io::Result<bool> {
    const PROGRAM_HEADERS_AT: u64 = 32;
    const HEADER_SIZE_AT: u64 = 54;
    const INTERPRETER: [u8; 4] = 3u32.to_le_bytes();
    let file = fs::File::open(program)?;
    let mut offset = [0; 8];
    file.read_exact_at(&mut offset, PROGRAM_HEADERS_AT)?;
    let mut size_and_count = [0; 4];
    file.read_exact_at(&mut size_and_count, HEADER_SIZE_AT)?;
    let [size_low, size_high, count_low, count_high] = size_and_count;
    let size = u64::from(u16::from_le_bytes([size_low, size_high]));
    for number in 0..u64::from(u16::from_le_bytes([count_low, count_high])) {
        let mut kind = [0; 4];
        file.read_exact_at(&mut kind, u64::from_le_bytes(offset).saturating_add(number * size))?;
        if kind == INTERPRETER {
            return Ok(true);
        }
    }
    Ok(false)
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
