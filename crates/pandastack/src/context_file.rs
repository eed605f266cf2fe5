//! Named contexts: which servers a person works with, and the keys to them. Only its owner may read the file.
//!
//! The SDKs, and other programs that speak to such servers, look into the same file for `api_url` and `token`: there they find the
//! server and the key of the current context.

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

/// The contexts there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ContextFile {
    /// The context that is used when none is named.
    pub(crate) current: Option<String>,
    /// By name.
    pub(crate) contexts: BTreeMap<String, Context>,
}

/// What the file holds. Members that are not known are other programs'.
#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct Content {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    contexts: BTreeMap<String, Context>,
}

/// The name of what a program that knows no contexts has written.
const UNNAMED: &str = "default";

impl From<&ContextFile> for Content {
    fn from(file: &ContextFile) -> Self {
        let current = file.current.as_ref().and_then(|name| file.contexts.get(name));
        Self {
            api_url: current.map(|context| context.api.clone()),
            token: current.and_then(|context| context.api_key.clone()),
            current: file.current.clone(),
            contexts: file.contexts.clone(),
        }
    }
}

impl From<Content> for ContextFile {
    fn from(content: Content) -> Self {
        let Content { api_url, token, current, contexts } = content;
        match (api_url, contexts.is_empty()) {
            (Some(api), true) => Self {
                current: Some(UNNAMED.to_owned()),
                contexts: BTreeMap::from([(UNNAMED.to_owned(), Context { api, api_key: token })]),
            },
            _ => Self { current, contexts },
        }
    }
}

/// Where the file is: `$XDG_CONFIG_HOME/pandastack/config.json`, by default below `~/.config`.
pub(crate) fn path() -> anyhow::Result<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let base = match (set("XDG_CONFIG_HOME").filter(|path| path.is_absolute()), set("HOME")) {
        (Some(base), _) => base,
        (None, Some(home)) => home.join(".config"),
        (None, None) => bail!("neither HOME nor XDG_CONFIG_HOME is set, so there is no place for contexts"),
    };
    Ok(base.join("pandastack/config.json"))
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
            Ok(text) => serde_json::from_str::<Content>(&text)
                .map(Self::from)
                .with_context(|| format!("understand {}", path.display())),
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
        let aside = folder.join(format!(".config.json.{}", std::process::id()));
        let written = (|| {
            let mut file =
                fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
            file.write_all(&serde_json::to_vec_pretty(&Content::from(self))?)?;
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
        let path = folder.join("deep/config.json");
        assert_eq!(ContextFile::read_from(&path).unwrap(), ContextFile::default());
        let context = Context { api: "http://127.0.0.1:1".to_owned(), api_key: Some("pds_1".to_owned()) };
        let contexts = BTreeMap::from([("a name".to_owned(), context)]);
        let file = ContextFile { current: Some("a name".to_owned()), contexts };
        file.write_to(&path).unwrap();
        file.write_to(&path).unwrap();
        assert_eq!(ContextFile::read_from(&path).unwrap(), file);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let text = fs::read_to_string(&path).unwrap();
        let seen: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&seen["api_url"], &seen["token"]), (&"http://127.0.0.1:1".into(), &"pds_1".into()));
        fs::write(&path, "nonsense = 1").unwrap();
        assert!(ContextFile::read_from(&path).is_err());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_programs_without_contexts_write_is_a_context() {
        let content = r#"{"api_url": "http://127.0.0.1:2", "token": "pds_2", "expires_at": "never"}"#;
        let file = ContextFile::from(serde_json::from_str::<Content>(content).unwrap());
        let context = Context { api: "http://127.0.0.1:2".to_owned(), api_key: Some("pds_2".to_owned()) };
        assert_eq!(file.current.as_deref(), Some(UNNAMED));
        assert_eq!(file.contexts, BTreeMap::from([(UNNAMED.to_owned(), context)]));
    }
}
