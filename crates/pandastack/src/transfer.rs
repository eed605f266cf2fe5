//! Files and directories between this host and a sandbox.
//!
//! A few files travel at once. Modes are kept, and so are symbolic links, unless they are to be followed; from a guest only
//! those that stay inside of what is copied. What a guest calls its files is not believed: a name leads nowhere but into its directory,
//! and nothing is written through a link that came from a guest.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail, ensure};
use client::{Api, Bytes, upload_stream};
use contract::file::FileEntry;
use futures::{StreamExt, TryStreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::guest_command::{self, for_pairs};
use crate::output::say;
use crate::progress::Progress;

/// Files that travel at once.
const AT_ONCE: usize = 8;
const PIECE_BYTES: usize = 64 << 10;
/// Directories within each other.
const DEPTH_MAX: usize = 128;
/// Permissions that new files in a sandbox have anyway.
const MODE_USUAL: u32 = 0o644;

/// Makes a link `$2` to `$1`, in the place of another one or of a file.
const LINK: &str = "{ if [ -d \"$2\" ] && [ ! -L \"$2\" ]; then echo \"$2 is a directory\" >&2; false; \
    else ln -sfn -- \"$1\" \"$2\"; fi; }";
/// Sets the time of `$2` to `$1`, and its permissions.
const TOUCH: &str = "touch -h -d \"@$1\" -- \"$2\"";
const CHMOD: &str = "chmod \"$1\" -- \"$2\"";

/// How things are copied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// Symbolic links become what they lead to.
    pub(crate) follow: bool,
    /// Directories keep their permissions, and everything its time.
    pub(crate) archive: bool,
}

/// A file that is to travel.
struct Item {
    from: PathBuf,
    to: String,
    bytes: u64,
    mode: u32,
    mtime: i64,
}

/// A directory that is to be there.
struct Folder {
    to: String,
    mode: u32,
    mtime: i64,
}

/// What is to be sent. Directories come before what is in them.
#[derive(Default)]
struct Gathered {
    items: Vec<Item>,
    folders: Vec<Folder>,
    /// Where each leads, and where it is to be.
    links: Vec<(String, String)>,
}

/// What travelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) files: u64,
    pub(crate) links: u64,
    pub(crate) bytes: u64,
}

/// Sends files and directories: each local path with the guest path it gets.
pub(crate) async fn send(
    api: &Api,
    sandbox: &str,
    what: &[(PathBuf, String)],
    manner: Manner,
    label: &str,
) -> anyhow::Result<Moved> {
    let mut gathered = Gathered::default();
    for (from, to) in what {
        tokio::task::block_in_place(|| gathered.add(from, to, manner, &mut Vec::new()))?;
    }
    let Gathered { items, folders, links } = gathered;
    let progress = Arc::new(Progress::start(label, items.iter().map(|item| item.bytes).sum()));
    for folder in &folders {
        ensure_directory(api, sandbox, &folder.to).await?;
    }
    let files = items.len() as u64;
    let mut times: Vec<_> = items.iter().map(|item| (item.mtime.to_string(), item.to.clone())).collect();
    let sending = stream::iter(items).map(|item| send_one(api, sandbox, item, progress.clone()));
    let sent = sending.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await;
    progress.clear();
    sent?;
    for_pairs(api, sandbox, LINK, &links).await.context("make links")?;
    if manner.archive {
        // A directory's time changes with what is in it, so inner ones come first.
        let of_folders = folders.iter().rev();
        let modes: Vec<_> =
            of_folders.clone().map(|folder| (format!("{:04o}", folder.mode), folder.to.clone())).collect();
        times.extend(of_folders.map(|folder| (folder.mtime.to_string(), folder.to.clone())));
        for_pairs(api, sandbox, CHMOD, &modes).await.context("set permissions of directories")?;
        for_pairs(api, sandbox, TOUCH, &times).await.context("set times")?;
    }
    Ok(Moved { files, links: links.len() as u64, bytes: progress.done() })
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

impl Gathered {
    /// Finds what is to be sent. `above` are the directories that it is in.
    fn add(&mut self, from: &Path, to: &str, manner: Manner, above: &mut Vec<PathBuf>) -> anyhow::Result<()> {
        ensure!(above.len() <= DEPTH_MAX, "{}: directories are nested too deeply", from.display());
        let about = fs::metadata(from).with_context(|| format!("look at {}", from.display()))?;
        let (mode, mtime) = (about.permissions().mode() & 0o777, about.mtime());
        if about.is_file() {
            self.items.push(Item {
                from: from.to_owned(),
                to: to.to_owned(),
                bytes: about.len(),
                mode,
                mtime,
            });
            return Ok(());
        }
        ensure!(about.is_dir(), "{} is neither a file nor a directory", from.display());
        let real = from.canonicalize().with_context(|| format!("look at {}", from.display()))?;
        if above.contains(&real) {
            say(format!("left out: {} leads back to a directory that it is in", from.display()));
            return Ok(());
        }
        above.push(real);
        self.folders.push(Folder { to: to.to_owned(), mode, mtime });
        let entries = fs::read_dir(from).with_context(|| format!("read the directory {}", from.display()))?;
        let mut entries = entries.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let path = entry.path();
            let Ok(name) = entry.file_name().into_string() else {
                bail!("{} has a name that is not UTF-8", path.display());
            };
            let to = format!("{}/{name}", to.trim_end_matches('/'));
            let kind = entry.file_type()?;
            if kind.is_symlink() && !manner.follow {
                let target = fs::read_link(&path).with_context(|| format!("look at {}", path.display()))?;
                let Ok(target) = target.into_os_string().into_string() else {
                    bail!("{} leads to a name that is not UTF-8", path.display());
                };
                self.links.push((target, to));
                continue;
            }
            match fs::metadata(&path) {
                Ok(about) if about.is_file() || about.is_dir() => self.add(&path, &to, manner, above)?,
                Ok(_) => say(format!("left out: {} is neither a file nor a directory", path.display())),
                Err(error) if error.kind() == ErrorKind::NotFound && kind.is_symlink() => {
                    say(format!("left out: {} is a link to nothing", path.display()));
                }
                Err(error) => return Err(error).with_context(|| format!("look at {}", path.display())),
            }
        }
        above.pop();
        Ok(())
    }
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

/// A directory of a sandbox that is to be fetched.
struct Branch {
    entry: FileEntry,
    to: PathBuf,
    /// Where it really is, and the directories that it is in, where links are followed.
    real: Vec<String>,
    depth: usize,
}

/// Fetches a file or a directory to a local path.
pub(crate) async fn fetch(
    api: &Api,
    sandbox: &str,
    from: &FileEntry,
    to: &Path,
    manner: Manner,
) -> anyhow::Result<Moved> {
    let progress = Arc::new(Progress::start(format!("fetching {}", from.path), 0));
    let (mut items, mut links, mut made, mut branches) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    if from.is_dir {
        let real = vec![real_path(api, sandbox, &from.path, manner).await?];
        branches.push(Branch { entry: from.clone(), to: to.to_owned(), real, depth: 0 });
    } else {
        items.push((from.clone(), to.to_owned()));
    }
    while let Some(Branch { entry: folder, to, real, depth }) = branches.pop() {
        ensure!(depth <= DEPTH_MAX, "{}: directories are nested too deeply", folder.path);
        make_directory(&to, depth).with_context(|| format!("make the directory {}", to.display()))?;
        made.push((folder.clone(), to.clone()));
        let listing = api.list_directory(sandbox, &folder.path).await;
        let listing = listing.with_context(|| format!("list {}", folder.path))?;
        ensure!(!listing.truncated, "{} holds more than the server lists", folder.path);
        for entry in listing.entries {
            let path = to.join(local_name(&entry.name)?);
            match (&entry.link_target, entry.is_dir) {
                (Some(target), _) if !manner.follow && leads_out(target, depth) => {
                    say(format!("left out: {} is a link to {target}, outside of what is copied", entry.path));
                }
                (Some(target), _) if !manner.follow => links.push((target.clone(), path)),
                (link, true) => {
                    let mut inside = real.clone();
                    if link.is_some() {
                        let leads_to = real_path(api, sandbox, &entry.path, manner).await?;
                        if inside.contains(&leads_to) {
                            say(format!("left out: {} leads back to a directory that it is in", entry.path));
                            continue;
                        }
                        inside.push(leads_to);
                    } else {
                        let here = inside.last().map_or("", String::as_str).trim_end_matches('/');
                        inside.push(format!("{here}/{}", entry.name));
                    }
                    branches.push(Branch { entry, to: path, real: inside, depth: depth + 1 });
                }
                (_, false) if !matches!(entry.mode.chars().next(), Some('-' | 'l')) => {
                    say(format!("left out: {} is neither a file nor a directory", entry.path));
                }
                (_, false) => items.push((entry, path)),
            }
        }
    }
    progress.expect(items.iter().map(|(entry, _)| entry.size).sum());
    let files = items.len() as u64;
    let fetching =
        stream::iter(items).map(|(entry, to)| fetch_one(api, sandbox, entry, to, manner, progress.clone()));
    let fetched = fetching.buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await;
    progress.clear();
    fetched?;
    // After all files, so that none is written through one of them.
    for (target, path) in &links {
        make_link(target, path).with_context(|| format!("make the link {}", path.display()))?;
    }
    if manner.archive {
        for (entry, path) in made.iter().rev() {
            let kept = || -> std::io::Result<()> {
                let folder = fs::File::open(path)?;
                folder.set_modified(time(entry.mtime))?;
                let mode = permissions(&entry.mode).filter(|_| entry.link_target.is_none());
                mode.map_or(Ok(()), |mode| folder.set_permissions(fs::Permissions::from_mode(mode)))
            };
            kept().with_context(|| format!("set time and permissions of {}", path.display()))?;
        }
    }
    Ok(Moved { files, links: links.len() as u64, bytes: progress.done() })
}

/// Whether a link leads, or may lead, out of the directory that is copied, which is as many directories above as `depth`: here it
/// would name another file than in the sandbox.
fn leads_out(target: &str, depth: usize) -> bool {
    let parts: Vec<Component> =
        Path::new(target).components().filter(|part| *part != Component::CurDir).collect();
    let above = parts.iter().take_while(|part| **part == Component::ParentDir).count();
    // A `..` after a name may follow another link first.
    above > depth || parts[above..].iter().any(|part| !matches!(part, Component::Normal(_)))
}

/// Where a path of a sandbox really is; only asked for where links are followed, to notice those that lead back.
async fn real_path(api: &Api, sandbox: &str, path: &str, manner: Manner) -> anyhow::Result<String> {
    if !manner.follow {
        return Ok(path.to_owned());
    }
    let done = guest_command::run(api, sandbox, "readlink -f -- \"$1\"", &[path.to_owned()]).await?;
    ensure!(done.code == 0, "{path} leads nowhere");
    Ok(String::from_utf8_lossy(&done.stdout).trim_end_matches('\n').to_owned())
}

/// Makes a local directory. Below the one that was named, a link in its place goes: an earlier copy may have brought it.
fn make_directory(path: &Path, depth: usize) -> std::io::Result<()> {
    if depth == 0 {
        return fs::create_dir_all(path);
    }
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_dir() => return Ok(()),
        Ok(about) if about.is_symlink() => fs::remove_file(path)?,
        _ => {}
    }
    fs::create_dir(path)
}

/// Makes a local link, in the place of another one or of a file.
fn make_link(target: &str, path: &Path) -> std::io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if !about.is_dir() => fs::remove_file(path)?,
        _ => {}
    }
    symlink(target, path)
}

fn time(unix_seconds: i64) -> SystemTime {
    let since = Duration::from_secs(unix_seconds.unsigned_abs());
    let found = if unix_seconds < 0 { UNIX_EPOCH.checked_sub(since) } else { UNIX_EPOCH.checked_add(since) };
    found.unwrap_or(UNIX_EPOCH)
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
    manner: Manner,
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
        if manner.archive {
            file.into_std().await.set_modified(time(entry.mtime))?;
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
    fn links_stay_inside() {
        for (target, depth) in [("sub", 0), ("./sub/x", 0), ("../a.txt", 1), ("../../z", 2), (".", 0)] {
            assert!(!leads_out(target, depth), "{target} at {depth}");
        }
        for (target, depth) in [("/etc/passwd", 3), ("..", 0), ("x/../y", 1), ("../../z", 1)] {
            assert!(leads_out(target, depth), "{target} at {depth}");
        }
    }

    #[test]
    fn nothing_is_written_through_links() {
        let folder = std::env::temp_dir().join(format!("pandastack-links-{}", std::process::id()));
        let elsewhere = folder.join("elsewhere");
        fs::create_dir_all(&elsewhere).unwrap();
        symlink(&elsewhere, folder.join("brought")).unwrap();
        make_directory(&folder.join("brought"), 1).unwrap();
        make_directory(&folder.join("brought"), 1).unwrap();
        assert!(fs::symlink_metadata(folder.join("brought")).unwrap().is_dir());
        // The directory that was named may be a link.
        symlink(&elsewhere, folder.join("named")).unwrap();
        make_directory(&folder.join("named"), 0).unwrap();
        for _ in 0..2 {
            make_link("nowhere", &folder.join("dangling")).unwrap();
        }
        assert_eq!(fs::read_link(folder.join("dangling")).unwrap(), Path::new("nowhere"));
        assert!(make_link("nowhere", &elsewhere).is_err());
        fs::remove_dir_all(folder).unwrap();
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
