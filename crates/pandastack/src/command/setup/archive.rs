//! The archive of a release: downloaded, or a file that is there. Bounded in size and time.

use std::fs::File;
use std::io::{Read, Seek, Write};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use client::{FetchError, Fetcher};
use machine::firecracker::Release;
use sha2::{Digest, Sha256};

use super::place::{ARCHIVE, Held};
use crate::output::say;
use crate::progress::Progress;

/// Published archives have about 8 MB. A larger one is refused.
const ARCHIVE_BYTES_MAX: u64 = 128 << 20;
/// How long one try may take, however steadily something comes.
const TRY_TIME_MAX: Duration = Duration::from_secs(30 * 60);
/// Tries, when connections break or servers are silent. Each begins anew.
const TRIES_MAX: u32 = 3;
/// Before the second try; twice as long before the third.
const PAUSE: Duration = Duration::from_millis(500);

/// Where an archive comes from.
#[derive(Debug)]
pub(super) enum Source {
    /// It is downloaded.
    Address(String),
    /// It is there.
    File(PathBuf),
}

impl Source {
    fn shown(&self) -> String {
        match self {
            Source::Address(address) => address.clone(),
            Source::File(path) => path.display().to_string(),
        }
    }
}

/// The archive as an open file, whatever is in it.
pub(super) async fn obtain(
    source: &Source,
    held: &Held<'_>,
    release: &Release,
    patience: Duration,
) -> anyhow::Result<File> {
    let address = match source {
        Source::Address(address) => address,
        Source::File(path) => {
            let file = File::open(path).with_context(|| format!("open {}", path.display()))?;
            let found = file.metadata().with_context(|| format!("open {}", path.display()))?;
            ensure!(found.is_file(), "{} is not a file", path.display());
            ensure!(found.len() <= ARCHIVE_BYTES_MAX, "{}: {}", path.display(), too_large());
            return Ok(file);
        }
    };
    let fetcher = Fetcher::new(patience).context("set up connections")?;
    let mut tries = 0;
    loop {
        tries += 1;
        let mut file = held.temporary(ARCHIVE)?;
        let label = format!("downloading Firecracker {}", release.version);
        let downloaded =
            tokio::time::timeout(TRY_TIME_MAX, download(&fetcher, address, &mut file, label)).await;
        let error = match downloaded {
            Ok(Ok(())) => return Ok(file),
            Ok(Err(error)) => error,
            Err(_) => anyhow!("it took longer than {} minutes", TRY_TIME_MAX.as_secs() / 60),
        };
        let may_pass = error.downcast_ref::<FetchError>().is_some_and(FetchError::may_pass);
        if tries == TRIES_MAX || !may_pass {
            return Err(error.context(format!("download {address}")));
        }
        say(format!("{error}; trying again"));
        tokio::time::sleep(PAUSE * tries).await;
    }
}

async fn download(fetcher: &Fetcher, address: &str, file: &mut File, label: String) -> anyhow::Result<()> {
    let mut fetched = fetcher.get(address).await?;
    let mut left = ARCHIVE_BYTES_MAX;
    ensure!(fetched.size.is_none_or(|size| size <= left), too_large());
    let progress = Progress::start(label, fetched.size.unwrap_or(0));
    let done = async {
        while let Some(piece) = fetched.next().await? {
            left = left.checked_sub(piece.len() as u64).with_context(too_large)?;
            // A few KiB into the page cache: not worth another thread.
            file.write_all(&piece).context("write the archive")?;
            progress.add(piece.len() as u64);
        }
        Ok(())
    };
    let done = done.await;
    progress.clear();
    done
}

fn too_large() -> String {
    format!("an archive of a release has at most {} MiB", ARCHIVE_BYTES_MAX >> 20)
}

/// Reads all of the archive and compares its digest; leaves it at its beginning.
pub(super) fn verify(archive: &mut File, digest: &str, source: &Source) -> anyhow::Result<()> {
    archive.rewind().context("read the archive")?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    let mut left = ARCHIVE_BYTES_MAX;
    loop {
        let read = archive.read(&mut buffer).context("read the archive")?;
        if read == 0 {
            break;
        }
        left = left.checked_sub(read as u64).with_context(too_large)?;
        hasher.update(&buffer[..read]);
    }
    archive.rewind().context("read the archive")?;
    let found: String = hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if found != digest {
        bail!("{} is not the release: its SHA-256 is {found}, and must be {digest}", source.shown());
    }
    Ok(())
}
