//! Uploads. Replacing is atomic: the new contents are written beside the old file and renamed over it at the end.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use guest_link::WRITTEN_ASIDE;
use guest_link::message::{Failure, FileFailure, Parents, Response, WriteMode, WriteSpec};

use super::change::{ids, make_parents};
use super::{Input, Step, as_path, failure};

/// Permission bits of a new file nobody spoke about.
const FILE_MODE: u32 = 0o644;

/// Symbolic links followed to the file that is replaced, as the kernel does.
const LINKS_MAX: usize = 40;

/// Makes names of temporary files distinct.
static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct WriteTask {
    spec: WriteSpec,
    target: Option<Target>,
    written: u64,
}

struct Target {
    file: File,
    /// Set while the contents lie aside.
    aside: Option<Aside>,
}

/// A temporary file, removed unless it was renamed.
struct Aside {
    temporary: PathBuf,
    destination: PathBuf,
    renamed: bool,
}

impl Drop for Aside {
    fn drop(&mut self) {
        if !self.renamed {
            // It may be gone already, with its directory.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

impl WriteTask {
    pub(super) fn new(spec: WriteSpec) -> WriteTask {
        WriteTask { spec, target: None, written: 0 }
    }

    pub(super) fn step(&mut self, input: Input) -> Result<Step, Failure> {
        if self.target.is_none() {
            self.target = Some(open(&self.spec)?);
        }
        let Some(target) = &mut self.target else { return Err(Failure::Unsupported) };
        for piece in &input.data {
            target.file.write_all(piece).map_err(|error| failure(&error))?;
            self.written += piece.len() as u64;
        }
        let mut step = Step::default();
        if input.end {
            if let Some(mut aside) = target.aside.take() {
                fs::rename(&aside.temporary, &aside.destination).map_err(|error| failure(&error))?;
                aside.renamed = true;
            }
            step.outcome = Some(Ok(Response::Transferred { bytes: self.written }));
        }
        Ok(step)
    }
}

fn open(spec: &WriteSpec) -> Result<Target, Failure> {
    let path = as_path(&spec.path);
    let owner = spec.owner.as_ref().map(ids).transpose()?;
    if spec.parents == Parents::Create
        && let Some(parent) = path.parent()
    {
        make_parents(parent, owner).map_err(|error| failure(&error))?;
    }
    let present = match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(Failure::File(FileFailure::IsDirectory)),
        Ok(metadata) => Some(metadata),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failure(&error)),
    };
    let target = match spec.how {
        WriteMode::Replace if present.as_ref().is_none_or(fs::Metadata::is_file) => {
            match open_aside(path).map_err(|error| failure(&error)) {
                Ok(target) => target,
                // Files of `/proc` and `/sys` exist in directories that take no others.
                Err(_) if present.is_some() => {
                    open_in_place(path, spec.how).map_err(|error| failure(&error))?
                }
                Err(error) => return Err(error),
            }
        }
        how => open_in_place(path, how).map_err(|error| failure(&error))?,
    };
    let aside = target.aside.is_some();
    let mode = spec.mode.or(match (&present, aside) {
        (Some(metadata), true) => Some(metadata.mode()),
        (None, _) => Some(FILE_MODE),
        // In place the file keeps what it has.
        (Some(_), false) => None,
    });
    let owner = owner.or(match (&present, aside) {
        (Some(metadata), true) => Some((metadata.uid(), metadata.gid())),
        _ => None,
    });
    if let Some((uid, gid)) = owner {
        fchown(&target.file, Some(uid), Some(gid)).map_err(|error| failure(&error))?;
    }
    // After the owner, whose change clears the set-user-id bits.
    if let Some(mode) = mode
        && target.file.metadata().map(|metadata| metadata.mode() & 0o7777).ok() != Some(mode & 0o7777)
    {
        target
            .file
            .set_permissions(Permissions::from_mode(mode & 0o7777))
            .map_err(|error| failure(&error))?;
    }
    Ok(target)
}

fn open_in_place(path: &Path, how: WriteMode) -> io::Result<Target> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).mode(FILE_MODE).custom_flags(libc::O_NOCTTY);
    match how {
        WriteMode::Append => options.append(true),
        WriteMode::At { .. } => &mut options,
        WriteMode::Replace | WriteMode::Truncate => options.truncate(true),
    };
    let mut file = options.open(path)?;
    if let WriteMode::At { offset } = how {
        file.seek(SeekFrom::Start(offset))?;
    }
    Ok(Target { file, aside: None })
}

fn open_aside(path: &Path) -> io::Result<Target> {
    let destination = follow(path)?;
    let invalid = || io::Error::from_raw_os_error(libc::EISDIR);
    let directory = destination.parent().ok_or_else(invalid)?;
    destination.file_name().ok_or_else(invalid)?;
    for _ in 0..16 {
        let name = format!("{WRITTEN_ASIDE}{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let temporary = directory.join(name);
        // Not readable by others until it has its owner and mode.
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary) {
            Ok(file) => {
                return Ok(Target { file, aside: Some(Aside { temporary, destination, renamed: false }) });
            }
            // Left by a machine that was stopped in the middle.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EEXIST))
}

/// Where a chain of symbolic links ends, whether or not anything is there.
fn follow(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(text) => path = path.parent().unwrap_or(Path::new("/")).join(text),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}
