//! Where a store is.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Where a store of blobs is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobAddress {
    /// A directory, by its absolute path: `/path` or `file:///path`.
    Directory(PathBuf),
    /// A bucket of a server that speaks S3, and below what in it: `s3://bucket/prefix`.
    S3 {
        /// The bucket's name.
        bucket: String,
        /// Names are below this; may be empty.
        prefix: String,
    },
}

/// Why a text is not the address of a store.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not where blobs can be: an absolute path, or s3://bucket/prefix")]
pub struct AddressError {
    text: String,
}

impl FromStr for BlobAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let wrong = || AddressError { text: text.to_owned() };
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            let prefix = prefix.trim_end_matches('/');
            let plain = |part: &str, more: &[u8]| {
                part.bytes().all(|byte| byte.is_ascii_alphanumeric() || more.contains(&byte))
            };
            let prefix_parts = prefix.split('/').filter(|_| !prefix.is_empty());
            let possible = !bucket.is_empty()
                && plain(bucket, b".-_")
                && prefix_parts
                    .into_iter()
                    .all(|part| !matches!(part, "" | "." | "..") && plain(part, b".-_=+@"));
            if !possible {
                return Err(wrong());
            }
            return Ok(BlobAddress::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() });
        }
        let path = Path::new(text.strip_prefix("file://").unwrap_or(text));
        if path.is_absolute() { Ok(BlobAddress::Directory(path.to_owned())) } else { Err(wrong()) }
    }
}

impl fmt::Display for BlobAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlobAddress::Directory(path) => write!(f, "{}", path.display()),
            BlobAddress::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            BlobAddress::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_directories_or_buckets() {
        let s3 = |bucket: &str, prefix: &str| {
            Some(BlobAddress::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
        };
        let directory = |path: &str| Some(BlobAddress::Directory(path.into()));
        for (text, expected) in [
            ("/srv/blobs", directory("/srv/blobs")),
            ("file:///srv/blobs", directory("/srv/blobs")),
            ("s3://bucket", s3("bucket", "")),
            ("s3://bucket/", s3("bucket", "")),
            ("s3://my.bucket-1/a/b/", s3("my.bucket-1", "a/b")),
            ("", None),
            ("blobs", None),
            ("./blobs", None),
            ("file://host/path", None),
            ("https://bucket/prefix", None),
            ("s3://", None),
            ("s3:///prefix", None),
            ("s3://bucket//prefix", None),
            ("s3://bucket/../other", None),
            ("s3://bucket/a b", None),
            ("s3://user:secret@bucket/a", None),
        ] {
            assert_eq!(text.parse().ok(), expected, "{text}");
        }
    }

    #[test]
    fn an_address_is_shown_as_it_is_written() {
        for text in ["/srv/blobs", "s3://bucket", "s3://bucket/a/b"] {
            assert_eq!(text.parse::<BlobAddress>().map(|address| address.to_string()).as_deref(), Ok(text));
        }
    }
}
