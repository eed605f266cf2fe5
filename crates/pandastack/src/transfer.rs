//! Files and directories between this host and a sandbox.
//!
//! A few files travel at once. Modes are kept. Symbolic links to files become files; those to directories are left out and said to be,
//! because they may lead anywhere. What a guest calls its files is not believed: a name leads nowhere but into its directory.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use client::{Api, Bytes, upload_stream};
use contract::file::FileEntry;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::output::say;
use crate::progress::Progress;

/// Files that travel at once.
const AT_ONCE: usize = 8;
const PIECE_BYTES: usize = 64 << 10;
/// Directories within each other.
const DEPTH_MAX: usize = 128;
/// Permissions that new files in a sandbox have anyway.
const MODE_USUAL: u32 = 0o644;

/// A file that is to travel.
struct Item {
    from: PathBuf,
    to: String,
    bytes: u64,
    mode: u32,
}

/// What travelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Sends files and directories: each local path with the guest path it gets.
pub(crate) async fn send(
    api: &Api,
    sandbox: &str,
    what: &[(PathBuf, String)],
    label: &str,
) -> anyhow::Result<Moved> {
    let (mut items, mut folders) = (Vec::new(), Vec::new());
    for (from, to) in what {
        tokio::task::block_in_place(|| gather(from, to, &mut items, &mut folders, 0))?;
    }
    let progress = Arc::new(Progress::start(label, items.iter().map(|item| item.bytes).sum()));
    for folder in &folders {
        ensure_directory(api, sandbox, folder).await?;
    }
    let files = items.len() as u64;
    let sending = stream::iter(items).map(|item| send_one(api, sandbox, item, progress.clone()));
    let sent = sending.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await;
    progress.clear();
    sent?;
    Ok(Moved { files, bytes: progress.done() })
}

/// Makes a directory in a sandbox unless it is there.
pub(crate) async fn ensure_directory(api: &Api, sandbox: &str, path: &str) -> anyhow::Result<()> {
    let made = api.make_directory(sandbox, path).await;
    let there = match &made {
        Err(error) if error.refusal().is_some_and(|refusal| refusal.status == 409) => {
            api.stat_file(sandbox, path).await.is_ok_and(|entry| entry.is_dir)
        }
        _ => false,
    };
    if there { Ok(()) } else { made.with_context(|| format!("make the directory {path}")) }
}

/// Finds what is to be sent. Directories come before what is in them.
fn gather(
    from: &Path,
    to: &str,
    items: &mut Vec<Item>,
    folders: &mut Vec<String>,
    depth: usize,
) -> anyhow::Result<()> {
    ensure!(depth <= DEPTH_MAX, "{}: directories are nested too deeply", from.display());
    let about = fs::metadata(from).with_context(|| format!("look at {}", from.display()))?;
    if about.is_file() {
        let mode = about.permissions().mode() & 0o777;
        items.push(Item { from: from.to_owned(), to: to.to_owned(), bytes: about.len(), mode });
        return Ok(());
    }
    ensure!(about.is_dir(), "{} is neither a file nor a directory", from.display());
    folders.push(to.to_owned());
    let entries = fs::read_dir(from).with_context(|| format!("read the directory {}", from.display()))?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let Ok(name) = entry.file_name().into_string() else {
            bail!("{} has a name that is not UTF-8", path.display());
        };
        let kind = entry.file_type()?;
        if kind.is_symlink() {
            match fs::metadata(&path) {
                Ok(about) if about.is_file() => {}
                Ok(about) if !about.is_dir() => continue,
                Ok(_) => {
                    say(format!("left out: {} is a link to a directory", path.display()));
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    say(format!("left out: {} is a link to nothing", path.display()));
                    continue;
                }
                Err(error) => return Err(error).with_context(|| format!("look at {}", path.display())),
            }
        } else if !kind.is_file() && !kind.is_dir() {
            say(format!("left out: {} is neither a file nor a directory", path.display()));
            continue;
        }
        gather(&path, &format!("{}/{name}", to.trim_end_matches('/')), items, folders, depth + 1)?;
    }
    Ok(())
}

async fn send_one(api: &Api, sandbox: &str, item: Item, progress: Arc<Progress>) -> anyhow::Result<()> {
    let file = tokio::fs::File::open(&item.from).await;
    let file = file.with_context(|| format!("open {}", item.from.display()))?;
    let pieces = stream::unfold(Some(file), move |file| {
        let progress = progress.clone();
        async move {
            let mut file = file?;
            let mut buffer = vec![0; PIECE_BYTES];
            match file.read(&mut buffer).await {
                Ok(0) => None,
                Ok(read) => {
                    buffer.truncate(read);
                    progress.add(read as u64);
                    Some((Ok(Bytes::from(buffer)), Some(file)))
                }
                Err(error) => Some((Err(error), None)),
            }
        }
    });
    let sent = api.write_file(sandbox, &item.to, upload_stream(pieces)).await;
    sent.with_context(|| format!("send {} to {}", item.from.display(), item.to))?;
    if item.mode != MODE_USUAL {
        let set = api.set_mode(sandbox, &item.to, &format!("{:04o}", item.mode)).await;
        set.with_context(|| format!("set the mode of {}", item.to))?;
    }
    Ok(())
}

/// Fetches a file or a directory to a local path.
pub(crate) async fn fetch(api: &Api, sandbox: &str, from: &FileEntry, to: &Path) -> anyhow::Result<Moved> {
    let progress = Arc::new(Progress::start(format!("fetching {}", from.path), 0));
    let mut items = Vec::new();
    let mut folders = vec![(from.clone(), to.to_owned(), 0)];
    if !from.is_dir {
        folders.clear();
        items.push((from.clone(), to.to_owned()));
    }
    while let Some((folder, to, depth)) = folders.pop() {
        ensure!(depth <= DEPTH_MAX, "{}: directories are nested too deeply", folder.path);
        tokio::fs::create_dir_all(&to)
            .await
            .with_context(|| format!("make the directory {}", to.display()))?;
        let listing = api.list_directory(sandbox, &folder.path).await;
        let listing = listing.with_context(|| format!("list {}", folder.path))?;
        ensure!(!listing.truncated, "{} holds more than the server lists", folder.path);
        for entry in listing.entries {
            let path = to.join(local_name(&entry.name)?);
            match (entry.is_dir, entry.link_target.is_some()) {
                (true, false) => folders.push((entry, path, depth + 1)),
                (true, true) => say(format!("left out: {} is a link to a directory", entry.path)),
                (false, _) if !matches!(entry.mode.chars().next(), Some('-' | 'l')) => {
                    say(format!("left out: {} is neither a file nor a directory", entry.path));
                }
                (false, _) => items.push((entry, path)),
            }
        }
    }
    progress.expect(items.iter().map(|(entry, _)| entry.size).sum());
    let files = items.len() as u64;
    let fetching =
        stream::iter(items).map(|(entry, to)| fetch_one(api, sandbox, entry, to, progress.clone()));
    let fetched = fetching.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await;
    progress.clear();
    fetched?;
    Ok(Moved { files, bytes: progress.done() })
}

/// A name of a guest's that stays in its directory.
fn local_name(name: &str) -> anyhow::Result<&str> {
    let harmless = !matches!(name, "" | "." | "..") && !name.contains(['/', '\0']);
    ensure!(harmless, "the sandbox has a file with the name {name:?}, which cannot be one");
    Ok(name)
}

async fn fetch_one(
    api: &Api,
    sandbox: &str,
    entry: FileEntry,
    to: PathBuf,
    progress: Arc<Progress>,
) -> anyhow::Result<()> {
    let mut download = match api.read_file(sandbox, &entry.path).await {
        Err(error) if error.is_not_found() && entry.link_target.is_some() => {
            say(format!("left out: {} is a link to nothing", entry.path));
            return Ok(());
        }
        download => download.with_context(|| format!("fetch {}", entry.path))?,
    };
    let name = to.file_name().context("there is no file name to write to")?;
    let aside = to.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
    let written = async {
        let mut file = tokio::fs::File::create(&aside).await?;
        while let Some(piece) = download.next().await? {
            file.write_all(&piece).await?;
            progress.add(piece.len() as u64);
        }
        file.flush().await?;
        if let Some(mode) = entry.link_target.is_none().then(|| permissions(&entry.mode)).flatten() {
            file.set_permissions(fs::Permissions::from_mode(mode)).await?;
        }
        tokio::fs::rename(&aside, &to).await?;
        anyhow::Ok(())
    };
    let written = written.await;
    if written.is_err() {
        drop(tokio::fs::remove_file(&aside).await);
    }
    written.with_context(|| format!("write {}", to.display()))
}

/// Permission bits from text such as `-rwxr-x---`; set-user-id and such are left out.
fn permissions(mode: &str) -> Option<u32> {
    let bits = mode.as_bytes().get(1..10)?;
    let bit = |at: usize, letters: &[u8]| u32::from(letters.contains(&bits[at]));
    let mut mode = 0;
    for at in 0..9 {
        let letters: &[u8] = match at % 3 {
            0 => b"r",
            1 => b"w",
            _ => b"xst",
        };
        mode = mode << 1 | bit(at, letters);
    }
    Some(mode)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_guests_stay_in_their_directory() {
        for name in ["", ".", "..", "a/b", "/etc/passwd", "a\0b"] {
            assert!(local_name(name).is_err(), "{name:?}");
        }
        assert_eq!(local_name("...").unwrap(), "...");
    }

    #[test]
    fn modes_are_read_as_ls_writes_them() {
        for (text, mode) in
            [("-rw-r--r--", 0o644), ("-rwxr-x---", 0o750), ("-rwsr-xr-t", 0o755), ("-rwSr--r-T", 0o644)]
        {
            assert_eq!(permissions(text), Some(mode), "{text}");
        }
        assert_eq!(permissions("-rw"), None);
    }
}
