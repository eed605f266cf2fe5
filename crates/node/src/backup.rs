//! A whole data directory in a directory elsewhere, and back.
//!
//! ```text
//! <target>/manifest.json   every file with its length and checksum; written last
//!         /control.db      rows
//!         /pool/…          sandboxes, snapshots, volumes, templates
//! ```
//!
//! Written aside and renamed when all of it is on the disk: a backup is complete or absent. Nothing may run in the data directory
//! meanwhile. Of a machine that does, its disk can be taken as it is after a loss of power; its sandbox has died then.

mod copy;
mod manifest;

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use domain::SandboxId;
use domain::lifecycle::{Phase, Recovery};
use serde::Serialize;
use storage::durable::sync_directory;
use storage::{Cloned, DataDir, Durability, LockError, Pool, PoolConfig, PoolError, write_file};

use self::manifest::{Entry, Manifest, What};
use crate::hibernation::{self, Image};
use crate::instance::{self, RESTORING};
use crate::paths::{Paths, make_directory, remove_directory};
use crate::recovery::{self, Finding};
use crate::snapshots::DISK;

const DATABASE: &str = "control.db";
const POOL: &str = "pool";
const UNFINISHED: &str = ".unfinished";
/// Where disks of machines that run are cloned, in the pool. Machines without a sandbox are there, and a start clears it.
const ASIDE: &str = "waiting/.backup";
/// What in the pool is made again when it is needed, or is nothing at all.
const LEFT_OUT: [&str; 3] = ["waiting", "chunks", "lost+found"];
/// Beginnings and ends of names of what was being made or removed.
const UNNAMED: [&str; 3] = [".staging", ".trash", ".probe-"];

/// What is done about sandboxes that run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Running {
    /// There is no backup.
    Refuse,
    /// Their disks are taken, their memory is not: in the backup their machines have died.
    DiskOnly,
}

/// Why there is no backup, or no restored data directory. Nothing is left of it.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// A server or another command works in the data directory.
    #[error(transparent)]
    InUse(LockError),
    /// There is no data directory.
    #[error("{} is not a data directory of PandaStack", path.display())]
    NotOurs {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Sandboxes run.
    #[error("sandboxes run: {}", list(ids))]
    Running {
        /// Which.
        ids: Vec<SandboxId>,
    },
    /// The disk of a sandbox that runs cannot be taken at one instant.
    #[error(
        "the pool has no reflinks: the disk of sandbox {id}, which runs, cannot be copied at one instant"
    )]
    NoInstant {
        /// Which.
        id: SandboxId,
    },
    /// Something is there already.
    #[error("{} is there already and not empty", path.display())]
    TargetExists {
        /// Where.
        path: PathBuf,
    },
    /// The target lies in what is to be copied.
    #[error("{} lies in the data directory itself", path.display())]
    TargetInside {
        /// Where.
        path: PathBuf,
    },
    /// It is no backup, or one of a newer version.
    #[error("{} is not a backup that this version can read: {reason}", path.display())]
    NoBackup {
        /// Where it was looked for.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A file is not the one that was written.
    #[error("{} is damaged: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// The pool cannot be used.
    #[error("could not use the pool")]
    Pool(#[from] PoolError),
    /// The rows could not be copied.
    #[error("could not copy the database")]
    Database(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A step failed.
    #[error("could not {action} {}", path.display())]
    Host {
        /// The step.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

fn list(ids: &[SandboxId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

fn host(action: &'static str, path: &Path) -> impl Fn(io::Error) -> BackupError {
    move |source| BackupError::Host { action, path: path.to_owned(), source }
}

/// What a backup holds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Contents {
    /// Sandboxes that sleep.
    pub hibernated: Vec<SandboxId>,
    /// Sandboxes with a disk and no memory.
    pub disk_only: Vec<SandboxId>,
    /// Those of them that ran: their memory is not in the backup.
    pub ran: Vec<SandboxId>,
    /// Files.
    pub files: usize,
    /// Bytes of files that are not holes.
    pub bytes: u64,
}

/// How rows are copied: from a database to a file that is not there.
pub type CopyDatabase<'a> = &'a dyn Fn(&Path, &Path) -> Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A pool that is closed again if it was not open before.
struct OpenPool {
    pool: Option<Pool>,
    was_mounted: bool,
}

impl OpenPool {
    fn open(lock: &DataDir, config: &PoolConfig) -> Result<Self, BackupError> {
        let mounts =
            storage::pool::mounts_below(lock.path()).map_err(host("look for mounts in", lock.path()))?;
        Ok(Self { pool: Some(Pool::open(lock, config)?), was_mounted: !mounts.is_empty() })
    }

    fn path(&self) -> &Path {
        self.pool.as_ref().expect("it is open until it is dropped").path()
    }
}

impl Drop for OpenPool {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take().filter(|_| !self.was_mounted)
            && let Err(error) = pool.close()
        {
            tracing::warn!(%error, "the pool stays mounted");
        }
    }
}

/// Copies a data directory into `target`, which must not be there. Needs a runtime; blocks.
pub fn back_up(
    data_dir: &Path,
    target: &Path,
    running: Running,
    copy_database: CopyDatabase<'_>,
) -> Result<Contents, BackupError> {
    if !instance::is_data_directory(data_dir) {
        return Err(BackupError::NotOurs { path: data_dir.to_owned() });
    }
    let lock = DataDir::lock(data_dir).map_err(BackupError::InUse)?;
    if data_dir.join(RESTORING).exists() {
        return Err(BackupError::NotOurs { path: data_dir.to_owned() });
    }
    require_absent(target)?;
    let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let parent = parent.canonicalize().map_err(host("find the directory of", target))?;
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    if parent.starts_with(lock.path()) {
        return Err(BackupError::TargetInside { path: target.to_owned() });
    }
    let pool = OpenPool::open(&lock, &PoolConfig::default())?;
    let paths = Paths::new(pool.path()).map_err(host("open", pool.path()))?;
    let findings = recovery::survey(&paths).map_err(host("look for sandboxes in", pool.path()))?;
    let ran: Vec<_> =
        findings.iter().filter(|finding| finding.runs()).map(|finding| finding.record().id.clone()).collect();
    if running == Running::Refuse && !ran.is_empty() {
        return Err(BackupError::Running { ids: ran });
    }

    let unfinished = parent.join(format!(".{name}{UNFINISHED}"));
    let made = remove_directory(&unfinished).and_then(|()| make_directory(&unfinished));
    made.map_err(host("make", &unfinished))?;
    let aside = pool.path().join(ASIDE);
    let outcome = Writer { pool: pool.path(), target: &unfinished, aside: &aside, entries: Vec::new() }
        .write(lock.path(), &findings, copy_database)
        .and_then(|contents| {
            // An empty directory may be in its place.
            fs::rename(&unfinished, target).map_err(host("name", target))?;
            sync_directory(&parent).map_err(host("sync", &parent))?;
            Ok(contents)
        });
    drop(remove_directory(&aside));
    if outcome.is_err()
        && let Err(error) = remove_directory(&unfinished)
    {
        tracing::warn!(%error, "an unfinished backup stays at {}", unfinished.display());
    }
    outcome
}

fn require_absent(path: &Path) -> Result<(), BackupError> {
    let is_free = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    };
    if is_free { Ok(()) } else { Err(BackupError::TargetExists { path: path.to_owned() }) }
}

struct Writer<'a> {
    pool: &'a Path,
    target: &'a Path,
    aside: &'a Path,
    entries: Vec<Entry>,
}

impl Writer<'_> {
    fn write(
        mut self,
        data_dir: &Path,
        findings: &[Finding],
        copy_database: CopyDatabase<'_>,
    ) -> Result<Contents, BackupError> {
        let mut contents = Contents::default();
        self.directory(Path::new(POOL), 0o700)?;
        let sandboxes = Path::new("sandboxes");
        for entry in sorted(self.pool)? {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !LEFT_OUT.contains(&name.as_str()) && name != "sandboxes" {
                self.tree(Path::new(&name))?;
            }
        }
        self.directory(&Path::new(POOL).join(sandboxes), 0o700)?;
        for finding in findings {
            self.sandbox(finding, &mut contents)?;
        }
        let database = data_dir.join(DATABASE);
        if database.exists() {
            let target = self.target.join(DATABASE);
            copy_database(&database, &target).map_err(BackupError::Database)?;
            fs::set_permissions(&target, fs::Permissions::from_mode(0o600))
                .map_err(host("protect", &target))?;
            let file = fs::File::open(&target).map_err(host("open", &target))?;
            file.sync_all().map_err(host("sync", &target))?;
            let sum = copy::sum(&file).map_err(host("read", &target))?;
            self.entries.push(Entry { path: DATABASE.into(), what: What::File { mode: 0o600, sum } });
        }
        // Directories hold the names of their files: from the innermost to the outermost.
        for entry in self.entries.iter().rev().filter(|entry| matches!(entry.what, What::Directory { .. })) {
            let path = self.target.join(&entry.path);
            sync_directory(&path).map_err(host("sync", &path))?;
        }
        for entry in &self.entries {
            if let What::File { sum, .. } = &entry.what {
                contents.files += 1;
                contents.bytes += sum.data_bytes;
            }
        }
        let manifest = Manifest::new(self.entries);
        let bytes = serde_json::to_vec_pretty(&manifest).map_err(io::Error::from);
        let written =
            bytes.and_then(|bytes| write_file(&self.target.join(manifest::FILE), &bytes, Durability::Synced));
        written.map_err(host("write the manifest of", self.target))?;
        Ok(contents)
    }

    fn directory(&mut self, path: &Path, mode: u32) -> Result<(), BackupError> {
        let place = self.target.join(path);
        let made = fs::DirBuilder::new().mode(mode).create(&place);
        made.map_err(host("make", &place))?;
        self.entries.push(Entry { path: path.to_owned(), what: What::Directory { mode } });
        Ok(())
    }

    fn file(&mut self, source: &Path, path: &Path) -> Result<(), BackupError> {
        let place = self.target.join(path);
        let (mode, sum) = copy::copy(source, &place).map_err(|failure| failure.explain(source, &place))?;
        self.entries.push(Entry { path: path.to_owned(), what: What::File { mode, sum } });
        Ok(())
    }

    /// A file or a directory of the pool, with all that is in it.
    fn tree(&mut self, path: &Path) -> Result<(), BackupError> {
        let (source, place) = (self.pool.join(path), Path::new(POOL).join(path));
        let about = fs::symlink_metadata(&source).map_err(host("look at", &source))?;
        if about.is_symlink() {
            let target = fs::read_link(&source).map_err(host("read", &source))?;
            std::os::unix::fs::symlink(&target, self.target.join(&place)).map_err(host("make", &place))?;
            self.entries.push(Entry { path: place, what: What::Link { target } });
            return Ok(());
        }
        if about.is_file() {
            return self.file(&source, &place);
        }
        if !about.is_dir() {
            // Sockets of machines, which are made anew.
            return Ok(());
        }
        self.directory(&place, about.permissions().mode() & 0o7777)?;
        for entry in sorted(&source)? {
            let name = entry.file_name().unwrap_or_default();
            let text = name.to_string_lossy();
            let is_staging = path == Path::new("builds") && text == crate::paths::BUILDS_STAGING;
            if !is_staging && !UNNAMED.iter().any(|unnamed| text.starts_with(unnamed)) {
                self.tree(&path.join(name))?;
            }
        }
        Ok(())
    }

    fn sandbox(&mut self, finding: &Finding, contents: &mut Contents) -> Result<(), BackupError> {
        let (source, record) = (finding.directory(), finding.record());
        if finding.recovery() == Recovery::Remove {
            return Ok(());
        }
        let place = Path::new(POOL).join("sandboxes").join(record.id.as_str());
        self.directory(&place, 0o700)?;
        let is_asleep = finding.recovery() == Recovery::Hibernated;
        let mut record = record.clone();
        (record.vm, record.slot) = (None, None);
        record.generation += 1;
        match (is_asleep, Image::read(source)) {
            (true, Some(image)) => {
                for name in hibernation::files(&image, source) {
                    self.file(&source.join(&name), &place.join(&name))?;
                }
                self.file(&source.join(DISK), &place.join(DISK))?;
                record.phase = Phase::Hibernated;
                contents.hibernated.push(record.id.clone());
            }
            _ if finding.runs() => {
                let clone = self.aside.join(DISK);
                let failed = host("clone the disk in", source);
                make_directory(self.aside).map_err(&failed)?;
                let cloned = storage::clone_file(&source.join(DISK), &clone);
                match cloned.map_err(|error| failed(io::Error::other(error)))? {
                    (_, Cloned::Shared) => self.file(&clone, &place.join(DISK))?,
                    (_, Cloned::Copied) => return Err(BackupError::NoInstant { id: record.id }),
                }
                remove_directory(self.aside).map_err(&failed)?;
                record.died = Some("it ran when the backup was made, which holds its disk only".to_owned());
                record.phase = Phase::Died;
                contents.ran.push(record.id.clone());
                contents.disk_only.push(record.id.clone());
            }
            _ => {
                self.file(&source.join(DISK), &place.join(DISK))?;
                record.died.get_or_insert_with(|| "its machine was gone when the backup was made".to_owned());
                record.phase = Phase::Died;
                contents.disk_only.push(record.id.clone());
            }
        }
        let target = self.target.join(&place);
        record.write(&target, Durability::Synced).map_err(host("write the record in", &target))?;
        let path = place.join(crate::record::FILE);
        let file = fs::File::open(self.target.join(&path)).map_err(host("open", &path))?;
        let sum = copy::sum(&file).map_err(host("read", &path))?;
        self.entries.push(Entry { path, what: What::File { mode: 0o600, sum } });
        Ok(())
    }
}

fn sorted(directory: &Path) -> Result<Vec<PathBuf>, BackupError> {
    let read = fs::read_dir(directory)
        .and_then(|entries| entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>());
    let mut paths = read.map_err(host("list", directory))?;
    paths.sort();
    Ok(paths)
}

/// Makes a data directory from a backup. It must not be there; its instance is a new one, which may run beside the first. Every file is
/// compared with its checksum as it is copied. Blocks.
pub fn restore(source: &Path, data_dir: &Path, config: &PoolConfig) -> Result<Contents, BackupError> {
    let manifest = Manifest::read(source)?;
    require_absent(data_dir)?;
    let before = crate::fresh::Fresh::before(data_dir);
    let outcome = restore_into(source, &manifest, data_dir, config);
    if outcome.is_err() {
        before.undo();
    }
    outcome
}

fn restore_into(
    source: &Path,
    manifest: &Manifest,
    data_dir: &Path,
    config: &PoolConfig,
) -> Result<Contents, BackupError> {
    let lock = DataDir::lock(data_dir).map_err(BackupError::InUse)?;
    let marker = lock.path().join(RESTORING);
    write_file(&marker, b"", Durability::Synced).map_err(host("write", &marker))?;
    let pool = OpenPool::open(&lock, config)?;
    let mut contents = Contents::default();
    for Entry { path, what } in &manifest.entries {
        let from = source.join(path);
        let to = match path.strip_prefix(POOL) {
            Ok(inside) => pool.path().join(inside),
            Err(_) => lock.path().join(path),
        };
        match what {
            What::Directory { mode } => {
                let made = fs::DirBuilder::new().recursive(true).mode(*mode).create(&to);
                let made = made.and_then(|()| fs::set_permissions(&to, fs::Permissions::from_mode(*mode)));
                made.map_err(host("make", &to))?;
            }
            What::Link { target } => {
                std::os::unix::fs::symlink(target, &to).map_err(host("make", &to))?;
            }
            What::File { mode, sum } => {
                let (_, found) = copy::copy(&from, &to).map_err(|failure| failure.explain(&from, &to))?;
                if found != *sum {
                    let reason = "its bytes are not those that were backed up".to_owned();
                    return Err(BackupError::Damaged { path: from, reason });
                }
                fs::set_permissions(&to, fs::Permissions::from_mode(*mode)).map_err(host("protect", &to))?;
                contents.files += 1;
                contents.bytes += found.data_bytes;
            }
        }
    }
    let paths = Paths::new(pool.path()).map_err(host("open", pool.path()))?;
    for finding in recovery::survey(&paths).map_err(host("look for sandboxes in", pool.path()))? {
        let id = finding.record().id.clone();
        match finding.recovery() {
            Recovery::Hibernated => contents.hibernated.push(id),
            _ => contents.disk_only.push(id),
        }
    }
    let directory = fs::File::open(pool.path()).map_err(host("open", pool.path()))?;
    rustix::fs::syncfs(&directory).map_err(|errno| host("sync", pool.path())(errno.into()))?;
    drop(directory);
    let directory = fs::File::open(lock.path()).map_err(host("open", lock.path()))?;
    rustix::fs::syncfs(&directory).map_err(|errno| host("sync", lock.path())(errno.into()))?;
    fs::remove_file(&marker).map_err(host("remove", &marker))?;
    sync_directory(lock.path()).map_err(host("sync", lock.path()))?;
    Ok(contents)
}
