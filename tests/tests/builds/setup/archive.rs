//! Archives as releases have them, and as they must not be.

use std::io::{self, Read, Write};

use anyhow::Result;
use flate2::Compression;
use flate2::write::GzEncoder;
use oci::tar::{Entry, Kind, Writer};
use sha2::{Digest, Sha256};

/// Where a server of releases has it.
pub(crate) const PATH: &str = "/v1.15.1/firecracker-v1.15.1-x86_64.tgz";
/// The program in it.
const NAME: &str = "release-v1.15.1-x86_64/firecracker-v1.15.1-x86_64";
/// Enough of a Firecracker to be asked for its version, and long enough to be cut in half.
pub(crate) const PROGRAM: &str =
    "#!/bin/sh\necho Firecracker v1.15.1\nexit 0\n# This is not Firecracker: it tells its version.\n";

/// An archive and its SHA-256.
pub(crate) struct Archive {
    pub(crate) bytes: Vec<u8>,
    pub(crate) digest: String,
}

type Tar = Writer<GzEncoder<Vec<u8>>>;

fn file(tar: &mut Tar, name: &str, content: &[u8]) -> io::Result<()> {
    long_file(tar, name, content.len() as u64, content)
}

fn long_file(tar: &mut Tar, name: &str, size: u64, content: impl Read) -> io::Result<()> {
    let mut entry = Entry::new(Kind::File, name.as_bytes(), 0o755);
    entry.size = size;
    tar.add_file(&entry, content)
}

fn link(tar: &mut Tar, kind: Kind, name: &str, target: &str) -> io::Result<()> {
    let mut entry = Entry::new(kind, name.as_bytes(), 0o777);
    entry.link = target.as_bytes().to_vec();
    tar.add(&entry)
}

impl Archive {
    /// As it is published.
    pub(crate) fn good() -> Result<Self> {
        Self::good_with("what this is")
    }

    pub(crate) fn good_with(readme: &str) -> Result<Self> {
        Self::of(|tar| {
            tar.add(&Entry::new(Kind::Directory, b"release-v1.15.1-x86_64/", 0o755))?;
            file(tar, "release-v1.15.1-x86_64/README", readme.as_bytes())?;
            file(tar, NAME, PROGRAM.as_bytes())?;
            file(tar, "release-v1.15.1-x86_64/jailer-v1.15.1-x86_64", b"another program")
        })
    }

    fn of(fill: impl FnOnce(&mut Tar) -> io::Result<()>) -> Result<Self> {
        let mut tar = Writer::new(GzEncoder::new(Vec::new(), Compression::fast()));
        fill(&mut tar)?;
        Ok(Self::raw(tar.finish()?.finish()?))
    }

    fn raw(bytes: Vec<u8>) -> Self {
        let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { bytes, digest }
    }
}

/// Archives that are refused, each with words of the reason.
pub(crate) fn harmful() -> Result<Vec<(Archive, &'static str)>> {
    let whole = PROGRAM.as_bytes();
    let with =
        |name: &'static str| Archive::of(move |tar| file(tar, name, whole).and(file(tar, NAME, whole)));
    let linked = |kind| Archive::of(move |tar| link(tar, kind, NAME, "/usr/bin/env"));
    let saying = |script: &'static str| Archive::of(move |tar| file(tar, NAME, script.as_bytes()));
    let good = Archive::good()?.bytes;
    let mut damaged = good.clone();
    let middle = damaged.len() - 6;
    damaged[middle] ^= 1;
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(&good[..]).read_to_end(&mut plain)?;
    let mut text = Vec::new();
    text.write_all(b"not found")?;
    Ok(vec![
        (with("../../etc/firecracker")?, "leads out of the archive"),
        (with("release-v1.15.1-x86_64/../../x")?, "leads out of the archive"),
        (with("/etc/firecracker")?, "leads out of the archive"),
        (linked(Kind::Symlink)?, "it is not a file (Symlink)"),
        (linked(Kind::HardLink)?, "it is not a file (HardLink)"),
        (
            Archive::of(|tar| tar.add(&Entry::new(Kind::CharDevice, NAME.as_bytes(), 0o644)))?,
            "it is not a file",
        ),
        (Archive::of(|tar| file(tar, NAME, whole).and(file(tar, NAME, whole)))?, "it is there twice"),
        (Archive::of(|tar| file(tar, "release-v1.15.1-x86_64/other", whole))?, "it is not there"),
        (Archive::of(|tar| file(tar, NAME, b""))?, "it is empty"),
        (Archive::of(|tar| long_file(tar, NAME, (64 << 20) + 1, io::repeat(0)))?, "at most 64 MiB are taken"),
        (
            Archive::of(|tar| long_file(tar, "other", 513 << 20, io::repeat(0)))?,
            "more than 512 MiB when unpacked",
        ),
        (saying("#!/bin/sh\necho Firecracker v1.14.0\n")?, "too old"),
        (saying("#!/bin/sh\necho Firecracker v1.16.2\n")?, "holds Firecracker 1.16.2, not 1.15.1"),
        (saying("#!/bin/sh\nexit 1\n")?, "did not tell its version"),
        (saying("neither a program nor a script")?, "could not start"),
        (Archive::raw(good[..good.len() / 2].to_vec()), "take release-v1.15.1-x86_64"),
        (Archive::raw(damaged), "take release-v1.15.1-x86_64"),
        (Archive::raw(plain), "take release-v1.15.1-x86_64"),
        (Archive::raw(text), "take release-v1.15.1-x86_64"),
        (Archive::raw(Vec::new()), "take release-v1.15.1-x86_64"),
    ])
}
