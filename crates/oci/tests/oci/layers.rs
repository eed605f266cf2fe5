//! What layers mean: over each other, with whiteouts, links and everything files have.

use std::io::Cursor;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use oci::tar::{Entry, Kind, Mtime};
use oci::{Digest, Policy, Times, Unpacker, write_tree};

use crate::files::{Made, archive, file, folder, gzip, hard_link, names, symlink, tree, unpack, xattr, zstd};

fn unpacked(layers: &[&[Made]]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    unpack(root.path(), layers).unwrap();
    root
}

#[track_caller]
fn check(layers: &[&[Made]], expected: &[&str]) {
    assert_eq!(names(unpacked(layers).path()), expected);
}

#[test]
fn whiteouts_concern_lower_layers_only() {
    let lower = [file("a/1", ""), file("a/2", ""), file("a/b/3", ""), file("c", "")];
    check(&[&lower, &[file("a/.wh.1", ""), file(".wh.c", "")]], &["a", "a/2", "a/b", "a/b/3"]);
    check(&[&lower, &[file(".wh.a", "")]], &["c"]);
    check(&[&lower, &[file("a/.wh..wh..opq", "")]], &["a", "c"]);
    // Before and after: what the layer itself brings stays.
    check(&[&lower, &[file("a/.wh..wh..opq", ""), file("a/new", "")]], &["a", "a/new", "c"]);
    check(&[&lower, &[file("a/new", ""), file("a/.wh..wh..opq", "")]], &["a", "a/new", "c"]);
    check(&[&lower, &[file("a/b/new", ""), file("a/.wh..wh..opq", "")]], &["a", "a/b", "a/b/new", "c"]);
    check(&[&lower, &[file("a/1", "x"), file("a/.wh.1", "")]], &["a", "a/1", "a/2", "a/b", "a/b/3", "c"]);
    check(&[&lower, &[file("a/b/new", ""), file(".wh.a", "")]], &["a", "a/b", "a/b/new", "c"]);
    // Nothing to remove is fine, and so is what an old file system left behind.
    check(
        &[&lower, &[file("x/y/.wh.z", ""), file(".wh..wh.plnk/1", ""), file(".wh..wh.aufs", "")]],
        &["a", "a/1", "a/2", "a/b", "a/b/3", "c"],
    );
    // A second layer starts anew: what the first brought is now lower.
    check(
        &[&lower, &[file("a/new", "")], &[file("a/.wh.new", ""), file("a/.wh.b", "")]],
        &["a", "a/1", "a/2", "c"],
    );
}

#[test]
fn whiteouts_mean_nothing_in_a_root_file_system() {
    let root = tempfile::tempdir().unwrap();
    let mut unpacker = Unpacker::new(root.path(), Policy::default()).unwrap();
    let bytes = archive(&[file("a", ""), file(".wh.a", "")]);
    for form in [bytes.clone(), gzip(&bytes), zstd(&bytes)] {
        assert_eq!(unpacker.tarball("root", Cursor::new(form)).unwrap(), Digest::of(&bytes));
        assert_eq!(names(root.path()), [".wh.a", "a"]);
    }
}

#[test]
fn files_folders_and_links_replace_each_other() {
    let lower = [file("f", "1"), folder("d", 0o755), file("d/x", ""), symlink("l", "d")];
    let upper = [folder("f", 0o750), file("d", "2"), folder("l", 0o700), file("l/y", "3")];
    let root = unpacked(&[&lower, &upper]);
    let found = tree(root.path());
    assert_eq!(found["f"], "folder 750 0:0");
    assert_eq!(found["d"], "2 644 0:0 x1");
    assert_eq!((found["l"].as_str(), found["l/y"].as_str()), ("folder 700 0:0", "3 644 0:0 x1"));
    // Without an entry of its own a link stays, and names lead through it; also where it leads to nothing yet.
    let through = unpacked(&[&[folder("d", 0o755), symlink("l", "/d")], &[file("l/y", "")]]);
    assert_eq!(names(through.path()), ["d", "d/y", "l"]);
    let dangling = unpacked(&[&[symlink("var/run", "../run")], &[file("var/run/pid", "")]]);
    assert_eq!(names(dangling.path()), ["run", "run/pid", "var", "var/run"]);
}

#[test]
fn hard_links_reach_lower_layers_and_go_both_ways() {
    let lower = [file("d/a", "text"), symlink("s", "d"), symlink("to", "nowhere")];
    let upper = [hard_link("b", "d/a"), hard_link("c", "s/a"), hard_link("also", "to"), hard_link("b", "b")];
    let root = unpacked(&[&lower, &upper]);
    let found = tree(root.path());
    assert_eq!(found["b"], "text 644 0:0 x3");
    let inode = |name: &str| std::fs::symlink_metadata(root.path().join(name)).unwrap().ino();
    assert_eq!((inode("b"), inode("c")), (inode("d/a"), inode("d/a")));
    assert_eq!(found["also"], "-> nowhere");
    // Replacing one name leaves the others as they were.
    unpack(root.path(), &[&[file("b", "new")]]).unwrap();
    assert_eq!(tree(root.path())["d/a"], "text 644 0:0 x2");
}

fn dressed(path: &str, kind: Kind, mode: u32) -> Made {
    let mut entry = Entry::new(kind, path.as_bytes(), mode);
    (entry.uid, entry.gid) = (1000, 70_000);
    entry.mtime = Mtime { seconds: 1_000_000, nanoseconds: 5 };
    (entry, Vec::new())
}

#[test]
fn owners_modes_times_and_attributes_are_kept() {
    // What `setcap cap_net_raw+ep` writes.
    let capability = b"\x01\0\0\x02\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec();
    let mut program = dressed("p", Kind::File, 0o6755);
    program.0.xattrs.insert(b"security.capability".to_vec(), capability.clone());
    program.0.xattrs.insert(b"trusted.overlay.opaque".to_vec(), b"y".to_vec());
    let mut noted = dressed("d", Kind::Directory, 0o1777);
    noted.0.xattrs.insert(b"user.note".to_vec(), b"one\0\ntwo".to_vec());
    let mut tied = dressed("l", Kind::Symlink, 0o777);
    tied.0.link = b"/nowhere".to_vec();
    let top = dressed("./", Kind::Directory, 0o711);
    let root = tempfile::tempdir().unwrap();
    let done = unpack(root.path(), &[&[top, program, noted, tied, file("d/later", "")]]).unwrap();
    assert_eq!(done.xattrs_skipped, 1);
    for (name, mode) in [("p", 0o6755), ("d", 0o1777), ("l", 0o777), (".", 0o711)] {
        let about = std::fs::symlink_metadata(root.path().join(name)).unwrap();
        assert_eq!((about.mode() & 0o7777, about.uid(), about.gid()), (mode, 1000, 70_000), "{name}");
        assert_eq!((about.mtime(), about.mtime_nsec()), (1_000_000, 5), "{name}");
    }
    assert_eq!(xattr(&root.path().join("p"), "security.capability").unwrap(), capability);
    assert_eq!(xattr(&root.path().join("p"), "trusted.overlay.opaque"), None);
    assert_eq!(xattr(&root.path().join("d"), "user.note").unwrap(), b"one\0\ntwo");
    // A later layer says anew what a directory is like; one that says nothing about it changes nothing, its time included.
    let mut plain = dressed("d", Kind::Directory, 0o700);
    plain.0.mtime.seconds = 7;
    unpack(root.path(), &[&[plain], &[file("d/more", "")]]).unwrap();
    let about = std::fs::symlink_metadata(root.path().join("d")).unwrap();
    assert_eq!((about.mode() & 0o7777, about.mtime()), (0o700, 7));
    assert_eq!(xattr(&root.path().join("d"), "user.note"), None);
}

#[test]
fn sparse_files_stay_sparse() {
    let source = tempfile::tempdir().unwrap();
    let holes = std::fs::File::create(source.path().join("holes")).unwrap();
    holes.write_all_at(b"middle", 20 << 20).unwrap();
    holes.set_len(40 << 20).unwrap();
    let mut tar = std::process::Command::new("tar");
    let bytes =
        tar.args(["--sparse", "-cf", "-", "-C"]).arg(source.path()).arg("holes").output().unwrap().stdout;
    let root = tempfile::tempdir().unwrap();
    Unpacker::new(root.path(), Policy::default()).unwrap().tarball("sparse", Cursor::new(bytes)).unwrap();
    let found = std::fs::File::open(root.path().join("holes")).unwrap();
    let about = found.metadata().unwrap();
    assert_eq!(about.len(), 40 << 20);
    assert!(about.blocks() * 512 < 1 << 20, "{} blocks", about.blocks());
    let mut text = [0; 6];
    found.read_exact_at(&mut text, 20 << 20).unwrap();
    assert_eq!(&text, b"middle");
}

fn packed(root: &Path, times: Times) -> Vec<u8> {
    let mut out = Vec::new();
    write_tree(root, times, &mut out).unwrap();
    out
}

#[test]
fn a_packed_tree_is_the_same_again() {
    let long = "n".repeat(140);
    let entries = [
        dressed("d", Kind::Directory, 0o1777),
        file(&format!("d/{long}"), "long"),
        file("d/ü", "é"),
        file("a", "one"),
        hard_link("z", "a"),
        symlink("l", &format!("/{long}")),
    ];
    let (first, second) = (unpacked(&[&entries]), unpacked(&[&entries]));
    let bytes = packed(first.path(), Times::Kept);
    let again = tempfile::tempdir().unwrap();
    Unpacker::new(again.path(), Policy::default())
        .unwrap()
        .tarball("again", Cursor::new(bytes.clone()))
        .unwrap();
    assert_eq!(tree(again.path()), tree(first.path()));
    assert!(packed(again.path(), Times::Kept) == bytes);
    assert!(packed(first.path(), Times::Fixed(0)) == packed(second.path(), Times::Fixed(0)));
}

#[test]
fn archives_are_told_from_other_files() {
    let is = |bytes: Vec<u8>| oci::is_archive(std::io::Cursor::new(bytes));
    let tar = archive(&[file("a", "b")]);
    for bytes in [tar.clone(), gzip(&tar), zstd(&tar)] {
        assert!(is(bytes).unwrap());
    }
    let text = "no archive at all, but long enough for a header. ".repeat(40).into_bytes();
    for bytes in
        [Vec::new(), vec![0; 4096], text.clone(), gzip(&text), gzip(b"short"), vec![0x1f, 0x8b, 8, 0, 1]]
    {
        assert!(!is(bytes).unwrap());
    }
    assert!(!is(b"\xfd7zXZ\0 and so on".to_vec()).unwrap());
    assert!(!is(b"BZh9 and so on".to_vec()).unwrap());
}
