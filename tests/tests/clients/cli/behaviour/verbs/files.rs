//! Files of sandboxes.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;

use super::{all, options, text};
use crate::cli::behaviour::{Outcome, Runner, failed};
use crate::cli::program::Went;

impl Runner {
    pub(super) async fn write(&self, id: &str, with: &Value) -> Result<Outcome> {
        let once = match with["base64"].as_str() {
            Some(encoded) => decoded(encoded).await?,
            None => text(with, "text").as_bytes().to_vec(),
        };
        let content = once.repeat(with["repeat"].as_u64().unwrap_or(1) as usize);
        self.call_with(&self.cli, &["fs", "write", id, text(with, "path")], &content).await
    }

    pub(super) async fn read(&self, id: &str, with: &Value) -> Result<Outcome> {
        let went = self.cli.run(&["--output", "json", "fs", "cat", id, text(with, "path")]).await?;
        if went.code != 0 {
            return Ok(Err(failed(&went)?));
        }
        let sum: String = Sha256::digest(&went.bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        let encoded = encoded(&went).await?;
        let text = String::from_utf8(went.bytes.clone()).ok();
        Ok(Ok(json!({ "base64": encoded, "bytes": went.bytes.len(), "sha256": sum, "text": text })))
    }

    pub(super) async fn files(&self, id: &str, with: &Value) -> Result<Outcome> {
        let path = text(with, "path");
        match text(with, "op") {
            "list" => Ok(self.call(&["fs", "ls", id, path]).await?.map(|mut listing| {
                listing["names"] = all(&listing["entries"], "name");
                listing
            })),
            "stat" => self.call(&["fs", "stat", id, path]).await,
            "exists" => match self.call(&["fs", "stat", id, path]).await? {
                Ok(_) => Ok(Ok(json!({ "exists": true }))),
                Err(failed) if failed.kind == "not_found" => Ok(Ok(json!({ "exists": false }))),
                other => Ok(other),
            },
            "mkdir" => self.call(&["fs", "mkdir", id, path]).await,
            "remove" => self.call(&["fs", "rm", id, path]).await,
            "rename" => self.call(&["fs", "mv", id, path, text(with, "to")]).await,
            other => bail!("`{other}` is new in the table: map it to a command"),
        }
    }

    pub(super) async fn transfer(&self, id: &str, with: &Value) -> Result<Outcome> {
        let (sent, fetched) = (self.cli.home().join("sent"), self.cli.home().join("fetched"));
        let files = with["files"].as_object().context("no files")?;
        for (name, content) in files {
            let path = sent.join(name);
            fs::create_dir_all(path.parent().context("no directory")?)?;
            fs::write(path, content.as_str().unwrap_or_default())?;
        }
        for (name, target) in with["links"].as_object().into_iter().flatten() {
            symlink(target.as_str().context("a link to nothing")?, sent.join(name))?;
        }
        let there = format!("{id}:{}", text(with, "path"));
        let mut progress = true;
        for words in [["sandbox", "cp", "sent", &there], ["sandbox", "cp", &there, "fetched"]] {
            let went = self.cli.run(&words).await?;
            ensure!(went.code == 0, "{went:?}");
            progress &= went.stderr.contains(&format!("{} files", files.len()));
        }
        let (mut files, mut links) = (Map::new(), Map::new());
        gather(&fetched, &fetched, &mut files, &mut links)?;
        Ok(Ok(json!({ "files": files, "links": links, "progress": progress })))
    }

    /// Asks for a link to a file, and has curl use it.
    pub(super) async fn link(&self, id: &str, with: &Value) -> Result<Outcome> {
        let mut words = ["fs", "url", id, text(with, "path")].map(str::to_owned).to_vec();
        words.extend(options(with, &[("expires_in_seconds", "--expires")]));
        let is_upload = text(with, "op") == "upload";
        if is_upload {
            words.push("--write".to_owned());
        }
        let link = match self.call_words(&words).await? {
            Ok(link) => link,
            refused => return Ok(refused),
        };
        let sent = self.cli.home().join("linked");
        let mut arguments = ["-sS", "-w", "\n%{http_code}", text(&link, "url")].map(OsStr::new).to_vec();
        if is_upload {
            fs::write(&sent, text(with, "text"))?;
            arguments.extend([OsStr::new("-T"), sent.as_os_str()]);
        }
        let said = String::from_utf8(tests::command::run("/usr/bin/curl", &arguments)?.stdout)?;
        let (text, status) = said.rsplit_once('\n').context("no status")?;
        Ok(Ok(json!({ "url": link["url"], "status": status.parse::<u16>()?, "text": text })))
    }
}

/// The host's own `base64`, so that both sides are not ours.
async fn filtered(arguments: &[&str], input: &[u8]) -> Result<Vec<u8>> {
    let mut command = tokio::process::Command::new("/usr/bin/base64");
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    let input = input.to_vec();
    let writing = tokio::spawn(async move { stdin.write_all(&input).await });
    let output = child.wait_with_output().await?;
    writing.await??;
    Ok(output.stdout)
}

async fn decoded(encoded: &str) -> Result<Vec<u8>> {
    filtered(&["-d"], encoded.as_bytes()).await
}

async fn encoded(went: &Went) -> Result<String> {
    Ok(String::from_utf8(filtered(&["-w0"], &went.bytes).await?)?)
}

/// Files with their contents, and links with what they lead to.
fn gather(
    root: &Path,
    folder: &Path,
    files: &mut Map<String, Value>,
    links: &mut Map<String, Value>,
) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.strip_prefix(root)?.to_str().context("not UTF-8")?.to_owned();
        if path.is_symlink() {
            links.insert(name, fs::read_link(&path)?.to_str().context("not UTF-8")?.into());
        } else if path.is_dir() {
            gather(root, &path, files, links)?;
        } else {
            files.insert(name, fs::read_to_string(&path)?.into());
        }
    }
    Ok(())
}
