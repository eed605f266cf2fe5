//! What a build was asked for with becomes what a builder takes.

use std::fs;
use std::io::Read;
use std::path::Path;

use builder::Source;
use domain::ErrorChain;
use oci::{Limits, Policy, Unpacker};

use super::form::{Context, Dockerfile, Kept, PartKind};
use super::upload::{REQUEST_FILE, file_name};

/// Bytes of a Dockerfile; more is refused by whoever reads it.
const DOCKERFILE_BYTES_MAX: u64 = (1 << 20) + 1;
/// Entries of a context.
const ENTRIES_MAX: u64 = 200_000;

/// Reads the request in an upload's directory and lays its context out. Blocks. An error is a sentence for whoever asked.
pub(super) fn source(upload: &Path, context_bytes_max: u64) -> Result<Source, String> {
    let lost = |error: std::io::Error| {
        tracing::error!(%error, "the files of a build are gone");
        "the files of this build are gone; ask for it again".to_owned()
    };
    let request = fs::read(upload.join(REQUEST_FILE)).map_err(lost)?;
    let kept: Kept = serde_json::from_slice(&request).map_err(|error| lost(std::io::Error::other(error)))?;
    let file = |kind| upload.join(file_name(kind));
    Ok(match kept {
        Kept::Image { reference } => Source::Image { reference },
        Kept::Archive => Source::Archive { path: file(PartKind::Image) },
        Kept::Tarball => Source::Tarball { path: file(PartKind::Rootfs) },
        Kept::Dockerfile { dockerfile, context, args, target } => {
            let directory = file(PartKind::File);
            if context == Context::Archive {
                unpack(&file(PartKind::Context), &directory, context_bytes_max)?;
            }
            let text = match dockerfile {
                Dockerfile::Text(text) => text,
                Dockerfile::InContext(path) => read_dockerfile(&directory, &path)?,
            };
            Source::Dockerfile { text, context: directory, args, target }
        }
    })
}

fn unpack(archive: &Path, directory: &Path, bytes_max: u64) -> Result<(), String> {
    let failed = |error: std::io::Error| {
        tracing::error!(%error, "a context could not be unpacked");
        "the context could not be unpacked".to_owned()
    };
    // An earlier attempt may have left half of it.
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(failed(error)),
        _ => fs::create_dir(directory).map_err(failed)?,
    }
    let limits =
        Limits { bytes_max, file_bytes_max: bytes_max, entries_max: ENTRIES_MAX, ..Limits::default() };
    let policy = Policy { limits, ..Policy::default() };
    let archive = fs::File::open(archive).map_err(failed)?;
    let unpacked =
        Unpacker::new(directory, policy).and_then(|mut unpacker| unpacker.tarball("context", archive));
    unpacked.map(drop).map_err(|error| format!("the context cannot be used: {}", ErrorChain(&error)))
}

/// The file is a stranger's, and so are links on the way to it: none is followed.
fn read_dockerfile(context: &Path, path: &str) -> Result<String, String> {
    use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
    let directory = open(context, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let file = directory.and_then(|directory| openat2(directory, path, flags, Mode::empty(), resolve));
    let file = file.map_err(|_| format!("there is no file {path:?} in the context"))?;
    let mut bytes = Vec::new();
    let read = fs::File::from(file).take(DOCKERFILE_BYTES_MAX).read_to_end(&mut bytes);
    read.map_err(|_| format!("{path:?} in the context cannot be read"))?;
    String::from_utf8(bytes).map_err(|_| format!("{path:?} in the context is not UTF-8"))
}
