//! The context of a build as a tar archive, made while it is sent.

use std::fs;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use client::Bytes;
use dockerfile::IgnoreFile;
use futures::stream::{self, BoxStream, StreamExt};
use oci::tar::{Entry, Kind, Mtime, Writer};
use tokio::sync::mpsc;

/// Size of the pieces that are sent.
const PIECE_BYTES: usize = 64 << 10;
/// Pieces that wait to be sent.
const PIECES_WAITING: usize = 8;
/// Directories within each other.
const DEPTH_MAX: usize = 128;

/// The patterns that count: those beside the Dockerfile, or else those of the context.
pub(super) fn ignored(context: &Path, dockerfile: &Path) -> anyhow::Result<IgnoreFile> {
    let mut beside = dockerfile.as_os_str().to_owned();
    beside.push(".dockerignore");
    for path in [PathBuf::from(beside), context.join(".dockerignore")] {
        match fs::read_to_string(&path) {
            Ok(text) => return IgnoreFile::parse(&text).with_context(|| format!("read {}", path.display())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).with_context(|| format!("read {}", path.display())),
        }
    }
    Ok(IgnoreFile::default())
}

/// The archive in pieces, as a thread makes them.
pub(super) fn pieces(context: PathBuf, ignored: IgnoreFile) -> BoxStream<'static, io::Result<Bytes>> {
    let (sender, pieces) = mpsc::channel(PIECES_WAITING);
    std::thread::spawn(move || {
        let channel = Channel { sender, piece: Vec::with_capacity(PIECE_BYTES) };
        let failed = channel.sender.clone();
        let mut packer = Packer { writer: Writer::new(channel), ignored, waiting: Vec::new() };
        let packed = packer.folder(&context, "", 0).and_then(|()| packer.writer.finish()?.flush());
        if let Err(error) = packed {
            // Nobody to tell: the request is over.
            drop(failed.blocking_send(Err(error)));
        }
    });
    stream::unfold(pieces, |mut pieces| async { pieces.recv().await.map(|piece| (piece, pieces)) }).boxed()
}

/// A file in pieces.
pub(super) fn file_pieces(path: &Path) -> anyhow::Result<(u64, BoxStream<'static, io::Result<Bytes>>)> {
    let mut file = fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
    let bytes = file.metadata()?.len();
    let (sender, pieces) = mpsc::channel(PIECES_WAITING);
    std::thread::spawn(move || {
        let mut channel = Channel { sender, piece: Vec::with_capacity(PIECE_BYTES) };
        let failed = channel.sender.clone();
        if let Err(error) = io::copy(&mut file, &mut channel).and_then(|_| channel.flush()) {
            drop(failed.blocking_send(Err(error)));
        }
    });
    let pieces =
        stream::unfold(pieces, |mut pieces| async { pieces.recv().await.map(|piece| (piece, pieces)) });
    Ok((bytes, pieces.boxed()))
}

/// What is written goes to whoever sends it.
struct Channel {
    sender: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
}

impl Write for Channel {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(bytes);
        if self.piece.len() >= PIECE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let piece = std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE_BYTES));
        if piece.is_empty() {
            return Ok(());
        }
        self.sender.blocking_send(Ok(piece.into())).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }
}

struct Packer<W> {
    writer: Writer<W>,
    ignored: IgnoreFile,
    /// Directories that are written once something in them is.
    waiting: Vec<Entry>,
}

impl<W: Write> Packer<W> {
    fn folder(&mut self, folder: &Path, path: &str, depth: usize) -> io::Result<()> {
        if depth > DEPTH_MAX {
            return Err(io::Error::other(format!("{}: directories are nested too deeply", folder.display())));
        }
        let mut entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let local = entry.path();
            let name = entry.file_name();
            let Some(name) = name.to_str() else {
                return Err(io::Error::other(format!("{} has a name that is not UTF-8", local.display())));
            };
            let path = if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") };
            let named =
                |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", local.display()));
            self.one(&local, &path, depth).map_err(named)?;
        }
        Ok(())
    }

    fn one(&mut self, local: &Path, path: &str, depth: usize) -> io::Result<()> {
        let about = fs::symlink_metadata(local)?;
        let ignored = self.ignored.ignores(path);
        let mut entry = Entry::new(Kind::File, path.as_bytes(), about.mode() & 0o7777);
        entry.mtime = Mtime { seconds: about.mtime(), nanoseconds: about.mtime_nsec() as u32 };
        if about.is_dir() {
            entry.kind = Kind::Directory;
            entry.path.push(b'/');
            // What an ignored directory holds may be taken back by a later pattern.
            let before = self.waiting.len();
            self.waiting.push(entry);
            if !ignored {
                self.flush()?;
            }
            self.folder(local, path, depth + 1)?;
            self.waiting.truncate(before);
            return Ok(());
        }
        if ignored {
            return Ok(());
        }
        self.flush()?;
        if about.is_symlink() {
            entry.kind = Kind::Symlink;
            entry.link = fs::read_link(local)?.as_os_str().as_bytes().to_vec();
            return self.writer.add(&entry);
        }
        // Sockets and such are nothing to build from.
        if !about.is_file() {
            return Ok(());
        }
        entry.size = about.len();
        self.writer.add_file(&entry, fs::File::open(local)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        for folder in self.waiting.drain(..) {
            self.writer.add(&folder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_ignored_is_left_out_and_what_is_taken_back_is_not() {
        let context = std::env::temp_dir().join(format!("pandastack-context-{}", std::process::id()));
        fs::create_dir_all(context.join("src/deep")).unwrap();
        fs::create_dir_all(context.join("node_modules/kept")).unwrap();
        fs::create_dir_all(context.join("empty")).unwrap();
        for name in
            ["Dockerfile", "src/a", "src/deep/b", "src/c.log", "node_modules/x", "node_modules/kept/y"]
        {
            fs::write(context.join(name), name).unwrap();
        }
        std::os::unix::fs::symlink("a", context.join("src/link")).unwrap();
        fs::write(context.join(".dockerignore"), "node_modules\n!node_modules/kept\n**/*.log\n").unwrap();
        let patterns = ignored(&context, &context.join("Dockerfile")).unwrap();
        let sent: Vec<_> =
            pieces(context.clone(), patterns).map(|piece| piece.unwrap().to_vec()).collect().await;
        let archive = context.with_extension("tar");
        fs::write(&archive, sent.concat()).unwrap();
        let listed = std::process::Command::new("tar").arg("tf").arg(&archive).output().unwrap();
        let listed = String::from_utf8(listed.stdout).unwrap();
        let expected = [
            ".dockerignore",
            "Dockerfile",
            "empty/",
            "node_modules/",
            "node_modules/kept/",
            "node_modules/kept/y",
            "src/",
            "src/a",
            "src/deep/",
            "src/deep/b",
            "src/link",
        ];
        assert_eq!(listed.lines().collect::<Vec<_>>(), expected);
        fs::remove_dir_all(&context).unwrap();
        fs::remove_file(archive).unwrap();
    }
}
