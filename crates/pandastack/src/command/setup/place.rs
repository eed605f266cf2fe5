//! Where a program is installed: one setup at a time, written aside, put there in one step, with a note of what it is.
//!
//! ```text
//! firecracker                    the program
//! .firecracker.release.json      what it is: decides whether there is anything to do
//! .firecracker.download, .new    of a setup that is under way, or was killed: the next one removes them
//! ```

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use image::Digest;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// Ending of the archive while it is downloaded.
pub(super) const ARCHIVE: &str = "download";
/// Ending of the program before it is in its place.
pub(super) const PROGRAM: &str = "new";
/// Ending of the note, and of the note before it is in its place.
const NOTE: &str = "release.json";
const NEW_NOTE: &str = "release.json.new";
const TEMPORARY: [&str; 3] = [ARCHIVE, PROGRAM, NEW_NOTE];
/// A longer note is none of ours.
const NOTE_BYTES_MAX: u64 = 4096;

/// What a program that was installed is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Note {
    pub(super) version: String,
    /// The archive it came from.
    pub(super) archive_sha256: String,
    /// The program itself.
    pub(super) program_sha256: String,
}

/// Where a program is, or will be.
#[derive(Debug)]
pub(super) struct Place {
    program: PathBuf,
    directory: PathBuf,
    name: String,
}

impl Place {
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        let name = program.file_name().and_then(|name| name.to_str());
        let name = name.with_context(|| format!("{} is no name for a program", program.display()))?;
        let directory = program.parent().context("a program is in a directory")?;
        ensure!(!program.is_dir(), "{} is a directory: --to names the program itself", program.display());
        Ok(Self { program: program.to_owned(), directory: directory.to_owned(), name: name.to_owned() })
    }

    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    fn beside(&self, ending: &str) -> PathBuf {
        self.directory.join(format!(".{}.{ending}", self.name))
    }

    /// What is there, when it came from this archive and is as it was.
    pub(super) fn found(&self, archive_sha256: &str) -> Option<Note> {
        let note = self.beside(NOTE);
        let length = fs::metadata(&note).ok()?.len();
        let text = (length <= NOTE_BYTES_MAX).then(|| fs::read(&note).ok()).flatten()?;
        let note: Note = serde_json::from_slice(&text).ok()?;
        let executable = fs::metadata(&self.program).ok()?.permissions().mode() & 0o111 != 0;
        let same = note.archive_sha256 == archive_sha256
            && executable
            && Digest::of_file(&self.program).ok()?.as_str() == note.program_sha256;
        same.then_some(note)
    }

    /// Makes the directory, keeps other setups out of it and removes what a killed one left.
    pub(super) fn enter(&self) -> anyhow::Result<Held<'_>> {
        let shown = self.directory.display();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.directory)
            .with_context(|| format!("make {shown}"))?;
        let lock = File::open(&self.directory).with_context(|| format!("open {shown}"))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .with_context(|| format!("keep {shown} to oneself: another setup may be under way"))?;
        self.sweep().with_context(|| format!("remove what an earlier setup left in {shown}"))?;
        Ok(Held { place: self, lock })
    }

    fn sweep(&self) -> std::io::Result<()> {
        for ending in TEMPORARY {
            match fs::remove_file(self.beside(ending)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }
}

/// A place that this setup has to itself. Dropping it removes what is not in place.
#[derive(Debug)]
pub(super) struct Held<'a> {
    place: &'a Place,
    lock: File,
}

impl Held<'_> {
    /// A new empty file beside the program; one of that ending from before is gone.
    pub(super) fn temporary(&self, ending: &str) -> anyhow::Result<File> {
        let path = self.place.beside(ending);
        let made = || {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)
        };
        made().with_context(|| format!("make {}", path.display()))
    }

    /// Makes a program of what was written to [`PROGRAM`], still beside its place.
    pub(super) fn make_program(&self, file: File) -> anyhow::Result<PathBuf> {
        let finish = || {
            file.set_permissions(Permissions::from_mode(0o755))?;
            file.sync_all()
        };
        finish().context("write the program")?;
        // A file that is open for writing cannot be run.
        drop(file);
        Ok(self.place.beside(PROGRAM))
    }

    /// Puts the program into its place, and says what it is. Killed in between, the next setup does it again.
    pub(super) fn put(&self, note: &Note) -> anyhow::Result<()> {
        let mut file = self.temporary(NEW_NOTE)?;
        let mut put = || {
            file.write_all(&serde_json::to_vec_pretty(note)?)?;
            file.set_permissions(Permissions::from_mode(0o644))?;
            file.sync_all()?;
            fs::rename(self.place.beside(PROGRAM), &self.place.program)?;
            fs::rename(self.place.beside(NEW_NOTE), self.place.beside(NOTE))?;
            self.lock.sync_all()
        };
        put().with_context(|| format!("put {} into its place", self.place.program.display()))
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next setup.
        drop(self.place.sweep());
    }
}
