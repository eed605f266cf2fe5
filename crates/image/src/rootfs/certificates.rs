//! Certificate authorities that the host trusts beyond the public ones: hosts behind an intercepting proxy need them in their guests,
//! or no `pip` or `npm` works there.
//!
//! A system that is still to be installed gets the files, and its package `ca-certificates` does the rest. One that somebody else
//! made gets them into the bundles that its programs read as well, as that package would do it. Where there is no bundle none is made:
//! one without the public authorities would hide that they are missing.

mod subject_hash;

use std::fs;
use std::io::{self, Read};
use std::path::Path;

use super::tree::{Access, Tree};
use crate::digest::{Digest, KeyBuilder};

/// Where administrators put them, on the host and in the guest alike.
const FOLDER: &str = "/usr/local/share/ca-certificates";
/// The same where systems are made from RPMs. Used when the one above it is there.
const ANCHORS: &str = "/etc/pki/ca-trust/source/anchors";
const ANCHORS_PARENT: &str = "/etc/pki/ca-trust/source";
/// What programs read, in systems of several kinds; some are links to others.
const BUNDLES: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem"];
/// Where OpenSSL looks for an authority by a digest of its name.
const HASHED: &str = "/etc/ssl/certs";
/// Links to authorities whose names have the same digest.
const SAME_HASH_MAX: usize = 10;
const CERTIFICATES_MAX: usize = 200;
const CERTIFICATE_LENGTH_MAX: u64 = 1 << 20;

/// Certificate authorities for guests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities {
    files: Vec<Certificate>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Certificate {
    file_name: String,
    content: Vec<u8>,
}

impl Authorities {
    /// Where a host has its own.
    pub const HOST_FOLDER: &str = FOLDER;

    /// None but the public ones.
    pub const fn none() -> Self {
        Self { files: Vec::new() }
    }

    /// The files ending in `.crt` of a folder, in the order of their names; none if it is not there. Blocks.
    pub(crate) fn read(folder: &Path) -> io::Result<Self> {
        let listing = match fs::read_dir(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::none()),
            listing => listing?,
        };
        let mut files = Vec::new();
        for entry in listing.take(CERTIFICATES_MAX) {
            let path = entry?.path();
            let Some(file_name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if !file_name.ends_with(".crt") || !path.is_file() {
                continue;
            }
            let mut content = Vec::new();
            fs::File::open(&path)?.take(CERTIFICATE_LENGTH_MAX).read_to_end(&mut content)?;
            files.push(Certificate { file_name: file_name.to_owned(), content });
        }
        files.sort_by(|one, other| one.file_name.cmp(&other.file_name));
        Ok(Self { files })
    }

    /// Stands for all of them, for keys of what has them in it; `None` when there are none.
    pub fn digest(&self) -> Option<Digest> {
        if self.files.is_empty() {
            return None;
        }
        let mut key = KeyBuilder::new("authorities");
        self.add_to(&mut key);
        Some(key.finish())
    }

    pub(super) fn add_to(&self, key: &mut KeyBuilder) {
        for certificate in &self.files {
            key.add(&certificate.file_name);
            key.add(&certificate.content);
        }
    }

    /// Puts them where the package `ca-certificates` looks when it is set up. The tree must still be empty.
    pub(super) fn place(&self, root: &Path) -> io::Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let folder = root.join(FOLDER.trim_start_matches('/'));
        fs::create_dir_all(&folder)?;
        for certificate in &self.files {
            fs::write(folder.join(&certificate.file_name), &certificate.content)?;
        }
        Ok(())
    }

    /// Makes a system trust them that was installed by somebody else.
    pub(super) fn install(&self, tree: &Tree) -> Result<(), (&'static str, io::Error)> {
        let mut folders = vec![FOLDER];
        if !self.files.is_empty() && tree.list(ANCHORS_PARENT).is_ok_and(|names| !names.is_empty()) {
            folders.push(ANCHORS);
        }
        for certificate in &self.files {
            for folder in &folders {
                let path = format!("{folder}/{}", certificate.file_name);
                tree.write(&path, &certificate.content, Access::root(0o644))
                    .map_err(|error| (FOLDER, error))?;
            }
            for bundle in BUNDLES {
                certificate.join(tree, bundle).map_err(|error| (bundle, error))?;
            }
            certificate.link(tree).map_err(|error| (HASHED, error))?;
        }
        Ok(())
    }
}

impl Certificate {
    /// Adds it to a bundle that is there and has it not.
    fn join(&self, tree: &Tree, bundle: &str) -> io::Result<()> {
        let Ok(text) = std::str::from_utf8(&self.content) else { return Ok(()) };
        let Some(there) = tree.read(bundle)? else { return Ok(()) };
        let text = text.trim();
        if subject_hash::of(text).is_none() || contains(&there, text.as_bytes()) {
            return Ok(());
        }
        tree.append_line(bundle, text)
    }

    /// Links to it by the digest of its name, where a system has such links.
    fn link(&self, tree: &Tree) -> io::Result<()> {
        let hash = std::str::from_utf8(&self.content).ok().and_then(subject_hash::of);
        let Some(hash) = hash else { return Ok(()) };
        let names = tree.list(HASHED)?;
        let target = format!("{FOLDER}/{}", self.file_name);
        for number in 0..SAME_HASH_MAX {
            let name = format!("{hash:08x}.{number}");
            let path = format!("{HASHED}/{name}");
            if !names.contains(&name) {
                // A folder without anything in it belongs to a system that has no authorities at all.
                return if names.is_empty() { Ok(()) } else { tree.link(&path, &target) };
            }
            if tree.read(&path)?.is_some_and(|there| there == self.content) {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}

#[cfg(test)]
mod tests;
