//! Named contexts: which servers a person works with, and the keys to them. Only its owner may read the file.

use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::{Deserialize, Serialize};

/// A server and the key to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Context {
    /// Where the server is.
    pub(crate) api: String,
    /// The key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) api_key: Option<String>,
}

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ContextFile {
    /// The context that is used when none is named.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// By name.
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// Where the file is: `$XDG_CONFIG_HOME/pandastack/config.toml`, by default below `~/.config`.
pub(crate) fn path() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = match (set("XDG_CONFIG_HOME").filter(|path| path.is_absolute()), set("HOME")) {
        (Some(base), _) => base,
        (None, Some(home)) => home.join(".config"),
        (None, None) => bail!("neither HOME nor XDG_CONFIG_HOME is set, so there is no place for contexts"),
    };
    Ok(base.join("pandastack/config.toml"))
}

impl ContextFile {
    /// Reads it. One that does not exist is empty.
    pub(crate) fn read() -> anyhow::Result<Self> {
        // Whoever has no home has no contexts either.
        path().map_or_else(|_| Ok(Self::default()), |path| Self::read_from(&path))
    }

    fn read_from(path: &Path) -> anyhow::Result<Self> {
        match fs::read_to_string(path) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error).with_context(|| format!("read {}", path.display())),
            Ok(text) => toml::from_str(&text).with_context(|| format!("understand {}", path.display())),
        }
    }

    /// Replaces it as a whole.
    pub(crate) fn write(&self) -> anyhow::Result<PathBuf> {
        let path = path()?;
        self.write_to(&path).with_context(|| format!("write {}", path.display()))?;
        Ok(path)
    }

    fn write_to(&self, path: &Path) -> anyhow::Result<()> {
        let folder = path.parent().context("it has no directory")?;
        fs::create_dir_all(folder)?;
        let aside = folder.join(format!(".config.toml.{}", std::process::id()));
        let written = (|| {
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
            file.write_all(toml::to_string(self)?.as_bytes())?;
            file.sync_all()?;
            fs::rename(&aside, path)?;
            anyhow::Ok(())
        })();
        if written.is_err() {
            drop(fs::remove_file(&aside));
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_is_written_is_read_again_and_by_nobody_else() {
        let folder = std::env::temp_dir().join(format!("pandastack-contexts-{}", std::process::id()));
        let path = folder.join("deep/config.toml");
        assert_eq!(ContextFile::read_from(&path).unwrap(), ContextFile::default());
        let context = Context { api: "http://127.0.0.1:1".to_owned(), api_key: Some("pds_1".to_owned()) };
        let contexts = BTreeMap::from([("a name".to_owned(), context)]);
        let file = ContextFile { current: Some("a name".to_owned()), contexts };
        file.write_to(&path).unwrap();
        file.write_to(&path).unwrap();
        assert_eq!(ContextFile::read_from(&path).unwrap(), file);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        fs::write(&path, "nonsense = 1").unwrap();
        assert!(ContextFile::read_from(&path).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
