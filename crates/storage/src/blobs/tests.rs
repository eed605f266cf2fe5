//! A store in a directory.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::*;

fn open(root: &Path) -> Blobs {
    Blobs::open(&BlobsConfig::new(BlobAddress::Directory(root.to_owned()))).unwrap()
}

fn key(text: &str) -> BlobKey {
    BlobKey::parse(text).unwrap()
}

fn file_of(bytes: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn names(listed: &[Listed]) -> Vec<(&str, u64)> {
    listed.iter().map(|listed| (listed.key.as_str(), listed.length)).collect()
}

#[tokio::test]
async fn what_is_put_can_be_read_listed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("made/by/it");
    let blobs = open(&root);
    assert_eq!(std::fs::metadata(&root).unwrap().mode() & 0o777, 0o700);

    let small = b"a few bytes".to_vec();
    let large: Vec<u8> = (0..PART_BYTES * 2 + 77).map(|at| (at / 100) as u8).collect();
    blobs.put(&key("snap/1/devices"), small.clone()).await.unwrap();
    blobs.put_file(&key("snap/1/memory"), file_of(&large)).await.unwrap();
    blobs.put_file(&key("snap/10/memory"), file_of(b"other")).await.unwrap();

    assert_eq!(blobs.read(&key("snap/1/devices"), 100).await.unwrap(), small);
    assert!(blobs.read(&key("snap/1/memory"), u64::MAX).await.unwrap() == large);
    let range = PART_BYTES - 5..PART_BYTES + 9;
    let expected = &large[range.start as usize..range.end as usize];
    assert_eq!(blobs.read_range(&key("snap/1/memory"), range).await.unwrap(), expected);
    assert!(blobs.read_range(&key("snap/1/memory"), 7..7).await.unwrap().is_empty());

    let listed = blobs.list(&key("snap/1")).await.unwrap();
    assert_eq!(names(&listed), [("snap/1/devices", 11), ("snap/1/memory", large.len() as u64)]);
    blobs.put(&key("snap/1/devices"), b"new".to_vec()).await.unwrap();
    assert_eq!(blobs.read(&key("snap/1/devices"), 3).await.unwrap(), b"new");

    blobs.delete_prefix(&key("snap/1")).await.unwrap();
    blobs.delete_prefix(&key("snap/1")).await.unwrap();
    assert_eq!(names(&blobs.list(&key("snap")).await.unwrap()), [("snap/10/memory", 5)]);
    assert!(!root.join("snap/1").exists());
}

#[tokio::test]
async fn what_is_not_there_is_said_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = open(folder.path());
    assert!(matches!(blobs.read(&key("none"), 10).await, Err(BlobError::NotFound { .. })));
    assert!(matches!(blobs.read_range(&key("none"), 0..1).await, Err(BlobError::NotFound { .. })));
    assert_eq!(blobs.list(&key("none")).await.unwrap(), []);
    blobs.put(&key("five"), b"bytes".to_vec()).await.unwrap();
    let error = blobs.read_range(&key("five"), 3..9).await.unwrap_err();
    assert_eq!(error.to_string(), "blob `five` has 5 bytes where 9 were expected");
    let error = blobs.read(&key("five"), 4).await.unwrap_err();
    assert_eq!(error.to_string(), "blob `five` has 5 bytes, which is more than 4");
}

#[tokio::test]
async fn an_upload_that_ended_early_leaves_nothing_under_the_name() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = open(folder.path());
    // As a killed process leaves it: written aside, never renamed.
    std::fs::create_dir(folder.path().join("snap")).unwrap();
    std::fs::write(folder.path().join("snap/memory#1"), b"half of it").unwrap();
    assert_eq!(blobs.list(&key("snap")).await.unwrap(), []);
    assert!(matches!(blobs.read(&key("snap/memory"), 100).await, Err(BlobError::NotFound { .. })));
    blobs.put_file(&key("snap/memory"), file_of(&vec![1; PART_BYTES as usize + 1])).await.unwrap();
    assert_eq!(names(&blobs.list(&key("snap")).await.unwrap()), [("snap/memory", PART_BYTES + 1)]);
    blobs.delete_prefix(&key("snap")).await.unwrap();
    assert!(!folder.path().join("snap").exists());
}

#[tokio::test]
async fn bytes_that_the_caller_does_not_want_are_tried_again_and_then_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = BlobsConfig::new(BlobAddress::Directory(folder.path().to_owned()));
    config.patience =
        Patience { pause: std::time::Duration::from_millis(1), tries: 3, ..Patience::default() };
    let blobs = Blobs::open(&config).unwrap();
    blobs.put(&key("blob"), b"wrong".to_vec()).await.unwrap();
    let seen = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
    let checked = blobs
        .read_checked(&key("blob"), 0..5, move |bytes| {
            let nth = seen.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            (nth == 1).then_some(bytes)
        })
        .await;
    assert_eq!(checked.unwrap(), b"wrong");
    let error = blobs.read_checked(&key("blob"), 0..5, |_| None::<()>).await.unwrap_err();
    assert_eq!(error.to_string(), "the store gave wrong bytes for `blob` in each of 3 tries");
}

#[test]
fn a_store_that_cannot_be_is_said_to_be() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), b"").unwrap();
    let in_a_file = BlobAddress::Directory(folder.path().join("file/blobs"));
    assert!(matches!(Blobs::open(&BlobsConfig::new(in_a_file)), Err(OpenError::Directory { .. })));
    let mut half = BlobsConfig::new("s3://bucket/a".parse().unwrap());
    half.environment.push(("AWS_ACCESS_KEY_ID".to_owned(), "key".to_owned()));
    assert!(matches!(Blobs::open(&half), Err(OpenError::Settings(_))));
}

/// Whatever asks a store may be a task of its own.
#[test]
fn all_that_a_store_does_can_be_sent_to_another_thread() {
    fn sent(_: impl Send) {}
    let folder = tempfile::tempdir().unwrap();
    let (blobs, key) = (open(folder.path()), key("a"));
    sent(blobs.put(&key, Vec::new()));
    sent(blobs.put_file(&key, tempfile::tempfile().unwrap()));
    sent(blobs.read(&key, 1));
    sent(blobs.read_range(&key, 0..1));
    sent(blobs.list(&key));
    sent(blobs.delete_prefix(&key));
}
