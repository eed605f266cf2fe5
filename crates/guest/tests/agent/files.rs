//! Files: contents, names, listings and watches.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use guest_link::client::{CallError, Link};
use guest_link::message::{
    EntryKind, Failure, FileFailure, Links, ListSpec, Owner, Parents, RemoveScope, WatchKind, WatchScope,
    WatchSpec, WriteMode, WriteSpec,
};
use tempfile::TempDir;

use crate::harness::{guest, path, until, within};

fn failure(error: CallError) -> FileFailure {
    match error {
        CallError::Guest(Failure::File(failure)) => failure,
        other => panic!("not a file failure: {other:?}"),
    }
}

fn spec(at: &Path) -> WriteSpec {
    WriteSpec { path: path(at), how: WriteMode::Replace, mode: None, owner: None, parents: Parents::Require }
}

async fn write(link: &Link, spec: WriteSpec, data: &[u8]) -> Result<u64, CallError> {
    within(async {
        let mut writer = link.write_file(spec)?;
        writer.write(data).await?;
        writer.finish().await
    })
    .await
}

async fn read(link: &Link, at: &Path) -> Result<Vec<u8>, CallError> {
    let reader = within(link.read_file(path(at), 0, None)).await?;
    Ok(within(reader.read_to_end(64 << 20)).await?.unwrap())
}

#[tokio::test]
async fn contents_round_trip() {
    let ((_guest, link), directory) = (guest().await, TempDir::new().unwrap());
    let data: Vec<u8> = (0..2_000_000_u32).flat_map(u32::to_le_bytes).collect();
    let at = directory.path().join("a file\nwith %2F and \u{e9}");
    assert_eq!(write(&link, spec(&at), &data).await.unwrap(), data.len() as u64);
    assert!(read(&link, &at).await.unwrap() == data);
    assert_eq!(std::fs::metadata(&at).unwrap().permissions().mode() & 0o7777, 0o644);
    let reader = within(link.read_file(path(&at), 4, Some(8))).await.unwrap();
    assert_eq!(reader.entry().size, data.len() as u64);
    assert_eq!(within(reader.read_to_end(100)).await.unwrap().unwrap(), data[4..12]);
    let empty = directory.path().join("empty");
    assert_eq!(write(&link, spec(&empty), b"").await.unwrap(), 0);
    assert_eq!(read(&link, &empty).await.unwrap(), b"");
}

#[tokio::test]
async fn an_aborted_upload_leaves_nothing() {
    let ((_guest, link), directory) = (guest().await, TempDir::new().unwrap());
    let at = directory.path().join("target");
    std::fs::write(&at, "old").unwrap();
    let mut writer = link.write_file(spec(&at)).unwrap();
    within(writer.write(&[b'x'; 300_000])).await.unwrap();
    until(async || (std::fs::read_dir(directory.path()).unwrap().count() == 2).then_some(())).await;
    drop(writer);
    until(async || (std::fs::read_dir(directory.path()).unwrap().count() == 1).then_some(())).await;
    assert_eq!(std::fs::read(&at).unwrap(), b"old");
}

#[tokio::test]
async fn uploads_meet_what_is_there() {
    let ((_guest, link), directory) = (guest().await, TempDir::new().unwrap());
    let at = directory.path().join("x/y/file");
    assert_eq!(failure(write(&link, spec(&at), b"a").await.unwrap_err()), FileFailure::NotFound);
    let owner = Owner::Ids { uid: 1234, gid: 4321 };
    let deep = WriteSpec { parents: Parents::Create, owner: Some(owner), mode: Some(0o4750), ..spec(&at) };
    write(&link, deep, b"abc").await.unwrap();
    let metadata = std::fs::metadata(&at).unwrap();
    assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (1234, 4321, 0o4750));
    assert_eq!(std::fs::metadata(directory.path().join("x/y")).unwrap().uid(), 1234);
    // Replacing keeps owner and mode.
    write(&link, spec(&at), b"replaced").await.unwrap();
    let metadata = std::fs::metadata(&at).unwrap();
    assert_eq!((metadata.uid(), metadata.mode() & 0o7777), (1234, 0o4750));
    write(&link, WriteSpec { how: WriteMode::Append, ..spec(&at) }, b"+more").await.unwrap();
    write(&link, WriteSpec { how: WriteMode::At { offset: 2 }, ..spec(&at) }, b"XX").await.unwrap();
    assert_eq!(std::fs::read(&at).unwrap(), b"reXXaced+more");
    write(&link, WriteSpec { how: WriteMode::Truncate, ..spec(&at) }, b"short").await.unwrap();
    assert_eq!(std::fs::read(&at).unwrap(), b"short");
    // A symbolic link is written through, a device in place, a directory not at all.
    let linked = directory.path().join("link");
    symlink("x/y/file", &linked).unwrap();
    write(&link, spec(&linked), b"through").await.unwrap();
    assert!(linked.is_symlink());
    assert_eq!(std::fs::read(&at).unwrap(), b"through");
    write(&link, spec(Path::new("/dev/null")), b"gone").await.unwrap();
    assert_eq!(
        failure(write(&link, spec(directory.path()), b"x").await.unwrap_err()),
        FileFailure::IsDirectory
    );
    let nowhere = Owner::User(guest_link::message::User::Name("nobody at all".into()));
    let unowned = WriteSpec { owner: Some(nowhere), ..spec(&at) };
    assert_eq!(failure(write(&link, unowned, b"x").await.unwrap_err()), FileFailure::UnknownOwner);
}

#[tokio::test]
async fn failures_have_names() {
    let ((_guest, link), directory) = (guest().await, TempDir::new().unwrap());
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), "x").unwrap();
    std::fs::create_dir(at("full")).unwrap();
    std::fs::write(at("full/x"), "").unwrap();
    symlink("loop", at("loop")).unwrap();
    let stat =
        async |name: &str| failure(within(link.stat(path(at(name)), Links::Follow)).await.unwrap_err());
    assert_eq!(stat("missing").await, FileFailure::NotFound);
    assert_eq!(stat("file/below").await, FileFailure::NotDirectory);
    assert_eq!(stat("loop").await, FileFailure::TooManyLinks);
    assert_eq!(stat(&"n".repeat(300)).await, FileFailure::InvalidPath);
    assert_eq!(failure(read(&link, &at("full")).await.unwrap_err()), FileFailure::IsDirectory);
    let remove = async |name: &str, scope| within(link.remove(path(at(name)), scope)).await;
    assert_eq!(failure(remove("full", RemoveScope::Single).await.unwrap_err()), FileFailure::NotEmpty);
    assert_eq!(failure(remove("missing", RemoveScope::Recursive).await.unwrap_err()), FileFailure::NotFound);
    remove("full", RemoveScope::Recursive).await.unwrap();
    remove("loop", RemoveScope::Recursive).await.unwrap();
    assert!(!at("full").exists() && !at("loop").is_symlink());
    let make =
        async |name: &str, parents| within(link.make_directory(path(at(name)), parents, None, None)).await;
    make("a/b/c", Parents::Create).await.unwrap();
    assert_eq!(failure(make("a/b/c", Parents::Create).await.unwrap_err()), FileFailure::Exists);
    assert_eq!(failure(make("p/q", Parents::Require).await.unwrap_err()), FileFailure::NotFound);
    assert_eq!(failure(make("file/q", Parents::Create).await.unwrap_err()), FileFailure::NotDirectory);
    within(link.rename(path(at("file")), path(at("new/place")), Parents::Create)).await.unwrap();
    let gone = within(link.rename(path(at("file")), path(at("other")), Parents::Create)).await.unwrap_err();
    assert_eq!(failure(gone), FileFailure::NotFound);
    within(link.set_mode(path(at("new/place")), 0o600)).await.unwrap();
    within(link.set_owner(path(at("new/place")), Owner::Ids { uid: 7, gid: 8 }, Links::Follow))
        .await
        .unwrap();
    symlink("place", at("new/link")).unwrap();
    let entry = within(link.stat(path(at("new/link")), Links::Keep)).await.unwrap();
    let target = entry.link.unwrap();
    assert_eq!(
        (entry.kind, target.text.as_slice(), target.kind),
        (EntryKind::SymbolicLink, &b"place"[..], Some(EntryKind::File))
    );
    assert_eq!(target.mode, Some(0o600));
    assert_eq!(within(link.read_link(path(at("new/link")))).await.unwrap(), b"place");
    let entry = within(link.stat(path(at("new/link")), Links::Follow)).await.unwrap();
    assert_eq!((entry.kind, entry.uid, entry.gid, entry.size), (EntryKind::File, 7, 8, 1));
}

#[tokio::test]
async fn a_listing_is_sorted_deep_and_lossless() {
    let ((_guest, link), directory) = (guest().await, TempDir::new().unwrap());
    for name in ["b", "a", "dir/inner/leaf", "dir/z"] {
        let at = directory.path().join(name);
        std::fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::fs::write(at, name).unwrap();
    }
    let odd = std::ffi::OsStr::from_bytes(b"odd \xff\n name");
    std::fs::write(directory.path().join(odd), "").unwrap();
    let list = async |depth| {
        let list = link.list_directory(ListSpec { path: path(directory.path()), depth }).unwrap();
        let (entries, truncated) = within(list.collect(1000)).await.unwrap();
        assert!(!truncated);
        entries.into_iter().map(|entry| entry.name).collect::<Vec<_>>()
    };
    assert_eq!(list(1).await, [&b"a"[..], b"b", b"dir", b"odd \xff\n name"]);
    let all = list(9).await;
    assert_eq!(all, [&b"a"[..], b"b", b"dir", b"dir/inner", b"dir/inner/leaf", b"dir/z", b"odd \xff\n name"]);
    // A name that is not text can be named back.
    let at = directory.path().join(std::ffi::OsStr::from_bytes(all.last().unwrap()));
    within(link.remove(path(at), RemoveScope::Single)).await.unwrap();
    let file = link.list_directory(ListSpec { path: path(directory.path().join("a")), depth: 1 }).unwrap();
    assert_eq!(failure(within(file.collect(10)).await.unwrap_err()), FileFailure::NotDirectory);
}

#[tokio::test]
async fn a_directory_of_a_hundred_thousand_entries() {
    let ((_guest, link), directory) = (guest().await, TempDir::new().unwrap());
    for n in 0..100_000 {
        std::fs::File::create(directory.path().join(format!("{n:06}"))).unwrap();
    }
    let list = link.list_directory(ListSpec { path: path(directory.path()), depth: 1 }).unwrap();
    let (entries, truncated) = within(list.collect(200_000)).await.unwrap();
    assert_eq!((entries.len(), truncated), (100_000, false));
    assert_eq!(entries[99_999].name, b"099999");
}

#[tokio::test]
async fn a_watch_tells_what_changes_below() {
    let ((_guest, link), directory) = (guest().await, TempDir::new().unwrap());
    std::fs::create_dir(directory.path().join("old")).unwrap();
    let watch = WatchSpec { path: path(directory.path()), scope: WatchScope::Recursive };
    let mut watch = within(link.watch(watch)).await.unwrap();
    std::fs::write(directory.path().join("old/file"), "x").unwrap();
    std::fs::create_dir_all(directory.path().join("new/deep")).unwrap();
    let mut seen = BTreeSet::new();
    let mut expect = async |names: &[(&str, &str)]| {
        let names: BTreeSet<(String, String)> =
            names.iter().map(|(k, n)| ((*k).into(), (*n).into())).collect();
        while !names.is_subset(&seen) {
            for change in within(watch.next()).await.unwrap() {
                let kind = match change.kind {
                    WatchKind::Created => "create",
                    WatchKind::Modified => "modify",
                    WatchKind::Attributes => "attributes",
                    WatchKind::Removed => "remove",
                    WatchKind::MovedFrom { .. } => "from",
                    WatchKind::MovedTo { .. } => "to",
                    WatchKind::Overflow | WatchKind::TooMany => panic!("nothing is lost here"),
                };
                seen.insert((kind.to_owned(), String::from_utf8(change.name).unwrap()));
            }
        }
    };
    expect(&[("create", "old/file"), ("modify", "old/file"), ("create", "new"), ("create", "new/deep")])
        .await;
    // Directories made later are watched too.
    std::fs::write(directory.path().join("new/deep/leaf"), "").unwrap();
    std::fs::rename(directory.path().join("old"), directory.path().join("moved")).unwrap();
    expect(&[("create", "new/deep/leaf"), ("from", "old"), ("to", "moved")]).await;
    std::fs::set_permissions(directory.path().join("moved/file"), PermissionsExt::from_mode(0o600)).unwrap();
    std::fs::remove_file(directory.path().join("moved/file")).unwrap();
    expect(&[("attributes", "moved/file"), ("remove", "moved/file")]).await;
    std::fs::remove_dir_all(directory.path()).unwrap();
    let gone = loop {
        match within(watch.next()).await {
            Ok(_) => {}
            Err(error) => break failure(error),
        }
    };
    assert_eq!(gone, FileFailure::WatchGone);
    let missing = WatchSpec { path: path("/no/such/place"), scope: WatchScope::Directory };
    assert_eq!(failure(within(link.watch(missing)).await.err().unwrap()), FileFailure::NotFound);
    let file = WatchSpec { path: path("/etc/passwd"), scope: WatchScope::Directory };
    assert_eq!(failure(within(link.watch(file)).await.err().unwrap()), FileFailure::NotDirectory);
}

#[tokio::test]
async fn a_watch_says_that_there_are_more_directories_than_it_covers() {
    let ((_guest, link), directory) = (guest().await, TempDir::new().unwrap());
    for number in 0..8200 {
        std::fs::create_dir(directory.path().join(number.to_string())).unwrap();
    }
    let watch = WatchSpec { path: path(directory.path()), scope: WatchScope::Recursive };
    let mut watch = within(link.watch(watch)).await.unwrap();
    let changes = within(watch.next()).await.unwrap();
    assert!(changes.iter().any(|change| change.kind == WatchKind::TooMany), "{changes:?}");
}
