//! This program's own files for SSH: a key, the host keys of sandboxes, what `ssh` is told. They are beside the contexts.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};

use crate::context_file;

/// The files.
pub(super) struct SshFiles {
    folder: PathBuf,
}

impl SshFiles {
    /// Where they are; the directory is made if missing.
    pub(super) fn open() -> anyhow::Result<Self> {
        let path = context_file::path()?;
        let folder = path.parent().context("it has no directory")?.to_owned();
        let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.with_context(|| format!("make the directory {}", folder.display()))?;
        Ok(Self { folder })
    }

    pub(super) fn key(&self) -> PathBuf {
        self.folder.join("id_ed25519")
    }

    pub(super) fn known_hosts(&self) -> PathBuf {
        self.folder.join("known_hosts")
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.join("ssh_config")
    }

    /// The public key, made with the private one at first use.
    pub(super) fn public_key(&self) -> anyhow::Result<String> {
        let _alone = self.lock()?;
        let key = self.key();
        if !key.exists() {
            let words = ["-q", "-t", "ed25519", "-N", "", "-C", "pandastack", "-f"];
            keygen(&words, &key).context("make a key for SSH")?;
        }
        let public =
            keygen(&["-y", "-f"], &key).with_context(|| format!("read the key {}", key.display()))?;
        let public: Vec<&str> = public.split_whitespace().take(2).collect();
        ensure!(public.len() == 2, "{} is no key", key.display());
        // Without a comment of its owner's: it goes into sandboxes.
        Ok(format!("{} pandastack", public.join(" ")))
    }

    /// Whether host keys of a sandbox were noted.
    pub(super) fn knows(&self, alias: &str) -> anyhow::Result<bool> {
        let known = read(&self.known_hosts())?;
        Ok(known.lines().any(|line| line.split_whitespace().next() == Some(alias)))
    }

    /// Notes the host keys of a sandbox in place of earlier ones.
    pub(super) fn know(&self, alias: &str, keys: &[String]) -> anyhow::Result<()> {
        let _alone = self.lock()?;
        let path = self.known_hosts();
        let known = read(&path)?;
        let wanted = known_with(&known, alias, keys);
        if wanted != known {
            self.replace(&path, &wanted)?;
        }
        Ok(())
    }

    /// Replaces one of the files as a whole.
    pub(super) fn replace(&self, path: &Path, text: &str) -> anyhow::Result<()> {
        let aside = path.with_extension(format!("{}.part", std::process::id()));
        let written = fs::write(&aside, text).and_then(|()| fs::rename(&aside, path));
        if written.is_err() {
            drop(fs::remove_file(&aside));
        }
        written.with_context(|| format!("write {}", path.display()))
    }

    /// Keeps other calls of this program waiting that would change the same files.
    fn lock(&self) -> anyhow::Result<File> {
        let path = self.folder.join("ssh.lock");
        let locked = || {
            let file = OpenOptions::new().create(true).write(true).truncate(false).mode(0o600).open(&path)?;
            file.lock().map(|()| file)
        };
        locked().with_context(|| format!("lock {}", path.display()))
    }
}

/// The text of a file; empty when there is none.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        text => text.with_context(|| format!("read {}", path.display())),
    }
}

fn keygen(words: &[&str], key: &Path) -> anyhow::Result<String> {
    let ran = Command::new("ssh-keygen").args(words).arg(key).stdin(Stdio::null()).output();
    let ran = match ran {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("there is no ssh-keygen here: install the OpenSSH client")
        }
        ran => ran?,
    };
    ensure!(ran.status.success(), "ssh-keygen: {}", String::from_utf8_lossy(&ran.stderr).trim());
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Known hosts with these keys for this alias.
fn known_with(known: &str, alias: &str, keys: &[String]) -> String {
    let others = known.lines().filter(|line| line.split_whitespace().next() != Some(alias));
    let own = keys.iter().map(|key| format!("{alias} {key}"));
    others.map(str::to_owned).chain(own).map(|line| line + "\n").collect()
}

/// Public keys among lines of a guest's: what is none is passed over.
pub(super) fn host_keys(text: &str) -> Vec<String> {
    let key = |line: &str| {
        let mut words = line.split_whitespace();
        let (kind, key) = (words.next()?, words.next()?);
        let named = ["ssh-ed25519", "ssh-rsa"].contains(&kind) || kind.starts_with("ecdsa-sha2-");
        let base64 = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
        (named && base64 && kind.len() <= 64 && key.len() <= 4096).then(|| format!("{kind} {key}"))
    };
    let mut keys: Vec<String> = text.lines().filter_map(key).collect();
    keys.sort();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_known_by_their_newest_keys() {
        let keys = host_keys(
            "ssh-ed25519 AAAA root@x\nnonsense\nssh-rsa BB+/= y\nssh-ed25519 AAAA again\nssh-ed25519 $(x)\n\
             cert-authority * AAAA\n",
        );
        assert_eq!(keys, ["ssh-ed25519 AAAA", "ssh-rsa BB+/="]);
        let known = known_with("a ssh-rsa OLD\nb ssh-rsa KEPT\na ssh-ed25519 OLD\n", "a", &keys);
        assert_eq!(known, "b ssh-rsa KEPT\na ssh-ed25519 AAAA\na ssh-rsa BB+/=\n");
        assert_eq!(known_with(&known, "a", &keys), known);
    }
}
