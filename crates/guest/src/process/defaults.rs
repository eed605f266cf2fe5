//! What a template's image says about processes, where their callers say nothing. In memory, so that it is part of every
//! snapshot, and in a file on the disk, for guests that are booted from it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use guest_link::message::{self, Failure, ProcessDefaults, ProcessFailure};

use super::account;

/// Where they are.
const FILE: &str = "/etc/pandastack/process-defaults";
/// How the file begins. Another format would begin otherwise.
const MAGIC: &[u8] = b"pandastack process defaults 1\n";
/// Longest file; more than that is refused, and a longer one is no such file.
const FILE_BYTES_MAX: usize = 1024 * 1024;

static CURRENT: RwLock<Option<Arc<ProcessDefaults>>> = RwLock::new(None);

/// What holds now.
pub(crate) fn current() -> Option<Arc<ProcessDefaults>> {
    CURRENT.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn put(defaults: Option<ProcessDefaults>) {
    *CURRENT.write().unwrap_or_else(PoisonError::into_inner) = defaults.map(Arc::new);
}

/// Finds what an earlier boot of this disk was told. `Err`: there is something, and it cannot be used.
pub(crate) fn load() -> io::Result<()> {
    let file = match File::open(FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut bytes = Vec::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    put(Some(decoded(&bytes).ok_or(io::ErrorKind::InvalidData)?));
    Ok(())
}

fn decoded(bytes: &[u8]) -> Option<ProcessDefaults> {
    let message = bytes.strip_prefix(MAGIC).filter(|_| bytes.len() <= FILE_BYTES_MAX)?;
    message::decode(message).filter(are_usable)
}

fn are_usable(defaults: &ProcessDefaults) -> bool {
    defaults
        .env
        .iter()
        .all(|(name, value)| !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0'))
}

/// Sets them, on the disk first. Only the program that booted the machine has a disk to write.
pub(crate) fn set(defaults: ProcessDefaults) -> Result<(), Failure> {
    let known = |user: &str| account::in_image(user).is_some();
    if !are_usable(&defaults) {
        return Err(Failure::Process(ProcessFailure::InvalidCommand));
    }
    if !defaults.user.as_deref().is_none_or(known) {
        return Err(Failure::Process(ProcessFailure::UnknownUser));
    }
    let bytes = message::encode(&defaults);
    if bytes.len() + MAGIC.len() > FILE_BYTES_MAX {
        return Err(Failure::Limit { what: "bytes of process defaults".into() });
    }
    if std::process::id() == 1 {
        write(&bytes).map_err(|error| Failure::File(crate::file::file_failure(&error)))?;
    }
    put(Some(defaults));
    Ok(())
}

/// Written aside and renamed: the file is whole or the one before.
fn write(message: &[u8]) -> io::Result<()> {
    let path = Path::new(FILE);
    if let Some(parent) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o755).create(parent)?;
    }
    let aside = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o644).open(&aside)?;
    file.write_all(MAGIC)?;
    file.write_all(message)?;
    file.sync_all()?;
    fs::rename(&aside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_holds_no_defaults() {
        let defaults = ProcessDefaults {
            env: vec![("A".into(), "b c".into())],
            cwd: guest_link::GuestPath::parse("/srv").ok(),
            user: Some("1000:1000".into()),
        };
        let whole = [MAGIC, &message::encode(&defaults)].concat();
        assert_eq!(decoded(&whole), Some(defaults.clone()));
        assert_eq!(decoded(&whole[..whole.len() - 1]), None);
        assert_eq!(decoded(&whole[1..]), None);
        assert_eq!(decoded(b""), None);
        let unusable = ProcessDefaults { env: vec![("A=".into(), String::new())], ..defaults };
        assert_eq!(decoded(&[MAGIC, &message::encode(&unusable)].concat()), None);
    }
}
