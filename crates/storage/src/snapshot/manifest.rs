//! What a snapshot is made of, as a file that notices its own damage.
//!
//! `manifest.json` is `{"digest": …, "manifest": {…}}`: the digest is of the exact text of the manifest. The decoder
//! looks at the digest, then at the format, and only then at what the format means.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Read};
use std::path::Path;
use std::str::FromStr;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

use super::{Damage, SnapshotError};

pub(super) const FILE: &str = "manifest.json";

/// The format written. Others are refused.
pub const FORMAT: u32 = 1;

/// Longest manifest. A caller's description that does not fit is refused when the snapshot is committed.
pub const MANIFEST_BYTES_MAX: usize = 1 << 20;

/// Most files in a snapshot.
pub const FILES_MAX: usize = 64;

/// Describes a snapshot; `A` is what its maker says about it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest<A> {
    /// [`FORMAT`].
    pub format: u32,
    /// The id under which it was committed.
    pub id: String,
    /// What it survives.
    pub persistence: Persistence,
    /// Its files by name, the manifest not among them.
    pub files: BTreeMap<String, FileRecord>,
    /// The caller's part.
    pub about: A,
}

/// What a snapshot survives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Persistence {
    /// Anything short of a broken disk.
    Synced,
    /// Nothing beyond this run of the kernel: after another start it counts as damaged.
    ThisBoot {
        /// The kernel's id of its run.
        boot_id: String,
    },
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileRecord {
    /// Its bytes.
    pub length: u64,
    /// Of all of them, unless sums of parts lie beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
}

/// A 128-bit XXH3 of a file: against damage, not against forgery.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest(u128);

impl Digest {
    /// The digest of these bytes.
    pub fn of(bytes: &[u8]) -> Digest {
        Digest(xxh3_128(bytes))
    }

    /// The digest of all that can be read.
    pub(super) fn of_file(mut file: impl Read) -> io::Result<Digest> {
        let mut hash = Xxh3::new();
        let mut buffer = vec![0; 1 << 18];
        loop {
            match file.read(&mut buffer) {
                Ok(0) => return Ok(Digest(hash.digest128())),
                Ok(read) => hash.update(&buffer[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Digest({self})")
    }
}

/// The text is not 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is 32 lowercase hexadecimal digits")]
pub struct ParseDigestError;

impl FromStr for Digest {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> Result<Digest, ParseDigestError> {
        let digits = text.len() == 32 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        digits.then(|| u128::from_str_radix(text, 16).ok().map(Digest)).flatten().ok_or(ParseDigestError)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
struct Envelope<'a> {
    digest: Digest,
    #[serde(borrow)]
    manifest: &'a RawValue,
}

impl<A: Serialize> Manifest<A> {
    /// The bytes of the manifest's file.
    pub(super) fn encode(&self) -> Result<Vec<u8>, SnapshotError> {
        let unfit = |source| SnapshotError::SnapshotMetadata { id: self.id.clone(), source };
        let manifest = serde_json::value::to_raw_value(self).map_err(unfit)?;
        let envelope = Envelope { digest: Digest::of(manifest.get().as_bytes()), manifest: &manifest };
        let bytes = serde_json::to_vec(&envelope).map_err(unfit)?;
        match bytes.len() > MANIFEST_BYTES_MAX || self.files.len() > FILES_MAX {
            true => Err(SnapshotError::TooLarge),
            false => Ok(bytes),
        }
    }
}

/// Reads the manifest of the snapshot `id` in `directory`.
pub(super) fn read<A: DeserializeOwned>(directory: &Path, id: &str) -> Result<Manifest<A>, SnapshotError> {
    let failed = SnapshotError::at("read the manifest");
    let file = match std::fs::File::open(directory.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(match directory.try_exists() {
                Ok(true) => SnapshotError::Damaged { id: id.to_owned(), what: Damage::Manifest },
                _ => SnapshotError::NotFound { id: id.to_owned() },
            });
        }
        Err(error) => return Err(failed(error)),
    };
    let mut bytes = Vec::new();
    file.take(MANIFEST_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(failed)?;
    let manifest = decode(&bytes, id)?;
    match &manifest.persistence {
        Persistence::ThisBoot { boot_id } if *boot_id != this_boot()? => {
            Err(SnapshotError::Damaged { id: id.to_owned(), what: Damage::NotSynced })
        }
        _ => Ok(manifest),
    }
}

/// The part that every format has.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

fn decode<A: DeserializeOwned>(bytes: &[u8], id: &str) -> Result<Manifest<A>, SnapshotError> {
    let damaged = |what| SnapshotError::Damaged { id: id.to_owned(), what };
    let broken = || damaged(Damage::Manifest);
    if bytes.len() > MANIFEST_BYTES_MAX {
        return Err(broken());
    }
    let envelope: Envelope<'_> = serde_json::from_slice(bytes).map_err(|_| broken())?;
    let text = envelope.manifest.get();
    if Digest::of(text.as_bytes()) != envelope.digest {
        return Err(broken());
    }
    let head: Head = serde_json::from_str(text).map_err(|_| broken())?;
    if head.format != FORMAT {
        return Err(SnapshotError::Format { id: id.to_owned(), format: head.format });
    }
    // What we wrote is whole, so what does not fit now is the part whose shape the caller chose.
    let manifest: Manifest<A> = serde_json::from_str(text)
        .map_err(|source| SnapshotError::SnapshotMetadata { id: id.to_owned(), source })?;
    if manifest.id != id {
        return Err(damaged(Damage::OtherId));
    }
    if manifest.files.len() > FILES_MAX || !manifest.files.keys().all(|name| is_file_name(name)) {
        return Err(broken());
    }
    Ok(manifest)
}

/// The kernel's id of its run.
pub(super) fn this_boot() -> Result<String, SnapshotError> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    Ok(text.map_err(SnapshotError::at("read the id of this boot"))?.trim().to_owned())
}

/// Whether a file of a snapshot may be named so: plain, short, visible, and not the manifest.
pub(super) fn is_file_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_'))
        && !name.starts_with('.')
        && name != FILE
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn manifest() -> Manifest<Vec<u32>> {
        let record = |length, digest| FileRecord { length, digest };
        Manifest {
            format: FORMAT,
            id: "abc".to_owned(),
            persistence: Persistence::Synced,
            files: BTreeMap::from([
                ("devices".to_owned(), record(3, Some(Digest::of(b"abc")))),
                ("memory".to_owned(), record(1 << 30, None)),
            ]),
            about: vec![1, 2, 3],
        }
    }

    fn sealed(text: &str) -> Vec<u8> {
        format!("{{\"digest\":\"{}\",\"manifest\":{text}}}", Digest::of(text.as_bytes())).into_bytes()
    }

    #[test]
    fn what_is_written_reads_back() {
        assert_eq!(decode::<Vec<u32>>(&manifest().encode().unwrap(), "abc").unwrap(), manifest());
    }

    #[test]
    fn each_kind_of_wrongness_has_its_name() {
        let good = manifest().encode().unwrap();
        let damage = |bytes: &[u8], id: &str| match decode::<Vec<u32>>(bytes, id) {
            Err(SnapshotError::Damaged { what, .. }) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(damage(&good, "abd"), Damage::OtherId);
        assert_eq!(damage(b"", "abc"), Damage::Manifest);
        assert_eq!(damage(&vec![b' '; MANIFEST_BYTES_MAX + 1], "abc"), Damage::Manifest);
        let text = serde_json::to_string(&manifest()).unwrap();
        assert_eq!(damage(&sealed(&text.replace("devices", "../devices")), "abc"), Damage::Manifest);
        assert_eq!(damage(&sealed("{}"), "abc"), Damage::Manifest);
        let later = sealed("{\"format\":2,\"whatever\":true}");
        assert!(matches!(decode::<Vec<u32>>(&later, "abc"), Err(SnapshotError::Format { format: 2, .. })));
        assert!(matches!(decode::<String>(&good, "abc"), Err(SnapshotError::SnapshotMetadata { .. })));
    }

    #[test]
    fn names_are_plain() {
        for name in ["memory", "memory.sums", "disk-0", "a_b"] {
            assert!(is_file_name(name), "{name}");
        }
        for name in ["", ".", "..", ".hidden", "a/b", "A", "manifest.json", "a b", &"x".repeat(65)] {
            assert!(!is_file_name(name), "{name}");
        }
    }

    proptest! {
        #[test]
        fn a_flipped_bit_is_an_error(at in any::<prop::sample::Index>(), bit in 0_u32..8) {
            let mut bytes = manifest().encode().unwrap();
            let at = at.index(bytes.len());
            bytes[at] ^= 1_u8 << bit;
            prop_assert!(decode::<Vec<u32>>(&bytes, "abc").is_err());
        }

        #[test]
        fn a_cut_is_an_error(at in any::<prop::sample::Index>()) {
            let bytes = manifest().encode().unwrap();
            prop_assert!(decode::<Vec<u32>>(&bytes[..at.index(bytes.len())], "abc").is_err());
        }

        #[test]
        fn any_bytes_decode_to_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[\\x20-\\x7e]{0,100}") {
            let _ = decode::<Vec<u32>>(&bytes, "abc");
            let _ = decode::<Vec<u32>>(&sealed(&text), "abc");
        }
    }
}
