//! Opens connections: one that writes, some that only read.

use std::fs::{File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use crate::StoreError;

/// How long a connection waits for another program that holds the database, such as `sqlite3` in an operator's shell. Then it fails.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Statements kept prepared by each connection; more are prepared anew.
const STATEMENTS_KEPT_MAX: usize = 64;
/// Pages kept by each connection, in KiB.
const CACHE_KIB: i64 = 16 * 1024;
/// To what the log is cut after it has grown beyond.
const LOG_BYTES_KEPT_MAX: i64 = 64 * 1024 * 1024;

/// Opens the database for writing; makes it, readable by its owner alone, when it is not there.
pub(super) fn writer(path: &Path) -> Result<Connection, StoreError> {
    own(path).map_err(|error| StoreError::Database(error.into()))?;
    let db = open(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    let mode: String = db.query_row("PRAGMA journal_mode = WAL", (), |row| row.get(0))?;
    if mode != "wal" {
        return Err(StoreError::Database(format!("the file system cannot hold its log: mode {mode}").into()));
    }
    db.pragma_update(None, "journal_size_limit", LOG_BYTES_KEPT_MAX)?;
    db.pragma_update(None, "synchronous", "NORMAL")?;
    Ok(db)
}

/// Opens a database that [`writer`] has opened before, for reading.
pub(super) fn reader(path: &Path) -> Result<Connection, StoreError> {
    open(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn open(path: &Path, access: OpenFlags) -> Result<Connection, StoreError> {
    let db = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY_TIMEOUT)?;
    db.set_prepared_statement_cache_capacity(STATEMENTS_KEPT_MAX);
    db.pragma_update(None, "cache_size", -CACHE_KIB)?;
    db.pragma_update(None, "trusted_schema", false)?;
    Ok(db)
}

/// Makes the file where it is absent and takes it from everybody but its owner. Log and index files get the same mode from SQLite.
///
/// A file that exists is not opened: closing it again would drop the locks SQLite holds on it in this process.
fn own(path: &Path) -> io::Result<()> {
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => {
            let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
        }
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::set_permissions(path, Permissions::from_mode(0o600))
        }
        Err(error) => Err(error),
    }
}
