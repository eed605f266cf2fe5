//! Kernel settings under `/proc/sys/net`, of the network namespace the calling thread is in.

use std::{fs, io, path::Path};

const ROOT: &str = "/proc/sys/net";

/// A setting of the host itself that was changed, outside anything that vanishes with a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostChange {
    /// The setting, such as `net/ipv4/conf/eth0/forwarding`.
    pub setting: String,
    /// Its value before.
    pub before: String,
    /// Its value now.
    pub after: String,
}

/// Reads a setting; `key` is relative to `/proc/sys/net`.
pub(crate) fn get(key: &str) -> io::Result<String> {
    let value = fs::read_to_string(Path::new(ROOT).join(key))?;
    Ok(value.trim_end().to_owned())
}

/// Writes a setting.
pub(crate) fn set(key: &str, value: &str) -> io::Result<()> {
    fs::write(Path::new(ROOT).join(key), value)
}

/// Writes a setting that a kernel without the feature does not have.
pub(crate) fn set_if_present(key: &str, value: &str) -> io::Result<()> {
    match set(key, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
