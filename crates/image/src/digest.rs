//! Content digests. Nothing here decides what to do about a mismatch.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// Labels: how a digest was computed.
const PLAIN: &str = "sha256";
const SPARSE: &str = "sparse-sha256";
const TREE: &str = "tree-sha256";

/// Granularity of [`Digest::of_sparse_file`]: blocks of zeros of this size do not take part.
const SPARSE_BLOCK: usize = 64 * 1024;

/// A labelled SHA-256, such as `sha256:9f86…`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Plain SHA-256 of `bytes`.
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self::labelled(PLAIN, Sha256::new_with_prefix(bytes))
    }

    /// Plain SHA-256 of a file, as `sha256sum` prints it. Blocks on reading the file.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 1 << 20];
        loop {
            match file.read(&mut buffer)? {
                0 => return Ok(Self::labelled(PLAIN, hasher)),
                count => hasher.update(&buffer[..count]),
            }
        }
    }

    /// SHA-256 of a file's length and of every 64 KiB block that is not all zeros, each preceded by its number.
    ///
    /// It depends on the content only, not on where the holes are, and costs what is stored rather than what is
    /// addressed: a 4 GiB disk with 400 MB in it takes the time of 400 MB. Blocks on reading the file.
    pub fn of_sparse_file(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let mut hasher = Sha256::new();
        hasher.update(length.to_le_bytes());
        let mut buffer = vec![0; SPARSE_BLOCK];
        let mut position = 0;
        for data in memory::extents::data_ranges(&file, length)? {
            // The start of the data is rounded down to a block, but never below what was already read.
            position = position.max(data.start - data.start % SPARSE_BLOCK as u64);
            while position < data.end {
                let wanted = (length - position).min(SPARSE_BLOCK as u64) as usize;
                let block = &mut buffer[..wanted];
                file.read_exact_at(block, position)?;
                if block.iter().any(|byte| *byte != 0) {
                    hasher.update((position / SPARSE_BLOCK as u64).to_le_bytes());
                    hasher.update(&*block);
                }
                position += SPARSE_BLOCK as u64;
            }
        }
        Ok(Self::labelled(SPARSE, hasher))
    }

    /// SHA-256 of a folder: of the path, kind and content of everything in it, in order. Times and owners do not
    /// take part. Blocks on reading the files.
    pub fn of_tree(root: &Path) -> io::Result<Self> {
        let mut files = Vec::new();
        let mut open = vec![root.to_owned()];
        while let Some(folder) = open.pop() {
            for entry in fs::read_dir(folder)? {
                let entry = entry?;
                if entry.file_type()?.is_dir() {
                    open.push(entry.path());
                } else {
                    files.push(entry.path());
                }
            }
        }
        files.sort();
        let mut key = KeyBuilder::new("tree");
        for path in files {
            let relative = path.strip_prefix(root).unwrap_or(&path);
            key.add(relative.as_os_str().as_encoded_bytes());
            if path.is_symlink() {
                key.add("link");
                key.add(fs::read_link(&path)?.as_os_str().as_encoded_bytes());
            } else {
                key.add("file");
                key.add(Self::of_file(&path)?.as_str());
            }
        }
        Ok(Self::labelled(TREE, key.0))
    }

    /// Computes the same kind of digest of what is at `path` now and compares. Blocks on reading it.
    pub(crate) fn matches(&self, path: &Path) -> io::Result<bool> {
        let now = match self.label() {
            SPARSE => Self::of_sparse_file(path)?,
            TREE => Self::of_tree(path)?,
            _ => Self::of_file(path)?,
        };
        Ok(now == *self)
    }

    pub(crate) fn is_of_tree(&self) -> bool {
        self.label() == TREE
    }

    fn label(&self) -> &str {
        self.0.split_once(':').map_or("", |(label, _)| label)
    }

    /// The text with its label.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first 128 bits in hexadecimal, for names of cache entries.
    pub fn short(&self) -> &str {
        let hex = self.0.split_once(':').map_or(self.0.as_str(), |(_, hex)| hex);
        hex.get(..32).unwrap_or(hex)
    }

    /// The first 128 bits as bytes, for identifiers derived from the content.
    pub(crate) fn first_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        let hex = self.short();
        for (index, byte) in bytes.iter_mut().enumerate() {
            *byte = hex
                .get(index * 2..index * 2 + 2)
                .and_then(|pair| u8::from_str_radix(pair, 16).ok())
                .unwrap_or(0);
        }
        bytes
    }

    fn labelled(label: &str, hasher: Sha256) -> Self {
        Self(format!("{label}:{:x}", hasher.finalize()))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Collects the inputs of a build; its result names the cache entry. Each field is framed by its length, so two
/// different lists of inputs never give the same key by running into each other.
pub(crate) struct KeyBuilder(Sha256);

impl KeyBuilder {
    pub(crate) fn new(builder_version: &str) -> Self {
        Self(Sha256::new()).field(builder_version)
    }

    pub(crate) fn field(mut self, value: impl AsRef<[u8]>) -> Self {
        self.add(value);
        self
    }

    pub(crate) fn add(&mut self, value: impl AsRef<[u8]>) {
        let value = value.as_ref();
        self.0.update((value.len() as u64).to_le_bytes());
        self.0.update(value);
    }

    pub(crate) fn finish(self) -> Digest {
        Digest::labelled(PLAIN, self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_digest_is_what_everybody_computes() {
        let expected = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(Digest::of_bytes(b"abc").as_str(), expected);
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"abc").unwrap();
        assert_eq!(Digest::of_file(&dir.path().join("file")).unwrap().as_str(), expected);
    }

    #[test]
    fn a_sparse_digest_ignores_holes_but_not_content() {
        let dir = tempfile::tempdir().unwrap();
        let length = 5 * SPARSE_BLOCK as u64 + 100;
        let make = |name: &str, dense: bool, value: u8| {
            let path = dir.path().join(name);
            let file = File::create(&path).unwrap();
            if dense {
                file.write_all_at(&vec![0; length as usize], 0).unwrap();
            }
            file.set_len(length).unwrap();
            file.write_all_at(&[value], 3 * SPARSE_BLOCK as u64 + 5000).unwrap();
            file.write_all_at(&[9], length - 1).unwrap();
            Digest::of_sparse_file(&path).unwrap()
        };
        let holes = make("holes", false, 1);
        assert_eq!(holes, make("dense", true, 1));
        assert_ne!(holes, make("other", false, 2));
        let empty = dir.path().join("empty");
        File::create(&empty).unwrap();
        assert_ne!(holes, Digest::of_sparse_file(&empty).unwrap());
    }

    #[test]
    fn key_fields_do_not_run_into_each_other() {
        let key = |a: &str, b: &str| KeyBuilder::new("1").field(a).field(b).finish();
        assert_ne!(key("ab", "c"), key("a", "bc"));
        assert_eq!(
            key("a", "b").first_bytes()[0],
            u8::from_str_radix(&key("a", "b").short()[..2], 16).unwrap()
        );
    }
}
