//! Layers made to harm: refused with the layer and the entry named, and nothing outside the tree is ever touched.

use std::io::Cursor;
use std::path::Path;

use oci::tar::{Entry, Kind};
use oci::{
    AbsoluteNames, Digest, Limits, Policy, SpecialFiles, StreamLimit, UnpackCause, UnpackError, Unpacker,
};
use proptest::prelude::*;

use crate::cage::uncaged;
use crate::files::{
    Made, archive, file, folder, gzip, hard_link, names, symlink, tree, unpack, unpack_with, zstd,
};

/// A directory with the tree and, beside it, things that must stay as they are.
struct Place {
    all: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        assert!(!uncaged(), "a mistake in the code would write to this host");
        let all = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(all.path().join("root")).unwrap();
        std::fs::create_dir_all(all.path().join("canary/deep")).unwrap();
        for name in ["canary/bird", "canary/deep/bird", "bird"] {
            std::fs::write(all.path().join(name), "alive").unwrap();
        }
        Self { all }
    }

    fn root(&self) -> std::path::PathBuf {
        self.all.path().join("root")
    }

    /// Everything but the tree.
    fn outside(&self) -> Vec<(String, String)> {
        tree(self.all.path())
            .into_iter()
            .filter(|(name, _)| name != "root" && !name.starts_with("root/"))
            .collect()
    }

    fn check(&self) {
        let about = "alive 644 0:0 x1".to_owned();
        let folder = "folder 755 0:0".to_owned();
        let expected: Vec<(String, String)> = [
            ("bird", &about),
            ("canary", &folder),
            ("canary/bird", &about),
            ("canary/deep", &folder),
            ("canary/deep/bird", &about),
        ]
        .map(|(name, text)| (name.to_owned(), text.clone()))
        .to_vec();
        assert_eq!(self.outside(), expected);
    }
}

fn refused(entries: &[Made]) -> UnpackError {
    let place = Place::new();
    let error = unpack(&place.root(), &[entries]).unwrap_err();
    place.check();
    error
}

#[test]
fn names_that_lead_out_are_refused_by_name() {
    if uncaged() {
        return;
    }
    for name in ["/abs", "../bird", "a/../../bird", "..", "a/..", "./../x", "//x", ""] {
        let error = refused(&[file("fine", ""), file(name, "dead")]);
        assert!(matches!(error.cause, UnpackCause::Name { .. }), "{name}: {error:?}");
        assert_eq!((error.layer.as_str(), error.entry.as_deref()), ("layer 0", Some(name)));
    }
    for target in ["/etc/passwd", "../bird", "a/../../bird", "."] {
        let error = refused(&[hard_link("x", target)]);
        assert!(
            matches!(error.cause, UnpackCause::Name { .. } | UnpackCause::HardLink { .. }),
            "{target}: {error:?}"
        );
    }
    assert!(matches!(refused(&[file("./", "")]).cause, UnpackCause::Name { .. }));
    assert!(matches!(refused(&[symlink(".", "x")]).cause, UnpackCause::Name { .. }));
    for name in [".wh.", ".wh..", ".wh...", "a/.wh.x/y"] {
        assert!(matches!(refused(&[file(name, "")]).cause, UnpackCause::Name { .. }), "{name}");
    }
}

#[test]
fn absolute_names_may_be_taken_as_below_the_root() {
    if uncaged() {
        return;
    }
    let place = Place::new();
    let policy = Policy { absolute_names: AbsoluteNames::BelowRoot, ..Policy::default() };
    unpack_with(&place.root(), &[&[file("/a/b", ""), hard_link("/c", "/a/b")]], policy).unwrap();
    assert_eq!(names(&place.root()), ["a", "a/b", "c"]);
}

#[test]
fn links_that_lead_out_end_inside() {
    if uncaged() {
        return;
    }
    let place = Place::new();
    let outside = place.all.path().join("canary").display().to_string();
    let entries = [
        symlink("up", "../../../../../.."),
        symlink("there", &outside),
        symlink("near", "../canary"),
        symlink("d/self", "."),
        symlink("magic", "/proc/self/root"),
        file("up/in", "1"),
        file("there/bird", "dead"),
        file("near/bird", "dead"),
        file("near/deep/.wh.bird", ""),
        file("near/.wh..wh..opq", ""),
        folder("near/deep", 0o700),
        file("d/self/self/self/x", "2"),
        file("magic/etc", "3"),
        hard_link("stolen", "near/bird"),
    ];
    let error = unpack(&place.root(), &[&entries]);
    place.check();
    error.unwrap();
    let found = tree(&place.root());
    assert_eq!(found["in"], "1 644 0:0 x1");
    assert_eq!(found["canary/bird"], "dead 644 0:0 x2");
    assert_eq!(found["d/x"], "2 644 0:0 x1");
    assert_eq!(found["proc/self/root/etc"], "3 644 0:0 x1");
    // A file where a link led out a moment ago, and a link where a directory was.
    let swap = [
        folder("x", 0o755),
        file("x/1", ""),
        symlink("x", "../canary"),
        file("x/bird", "dead"),
        file(".wh.x", ""),
    ];
    unpack(&place.root(), &[&swap]).unwrap();
    place.check();
}

#[test]
fn links_without_end_and_parts_that_are_files() {
    if uncaged() {
        return;
    }
    assert!(matches!(
        refused(&[symlink("a", "b"), symlink("b", "a"), file("a/x", "")]).cause,
        UnpackCause::TooManyLinks
    ));
    assert!(matches!(refused(&[file("a", ""), file("a/x", "")]).cause, UnpackCause::NotADirectory { .. }));
    assert!(matches!(refused(&[hard_link("a", "b")]).cause, UnpackCause::HardLink { .. }));
    assert!(matches!(
        refused(&[folder("d", 0o755), hard_link("a", "d")]).cause,
        UnpackCause::HardLink { .. }
    ));
    assert!(matches!(refused(&[symlink("a", "")]).cause, UnpackCause::Name { .. }));
}

#[test]
fn devices_are_refused_or_left_out() {
    if uncaged() {
        return;
    }
    for kind in [Kind::CharDevice, Kind::BlockDevice, Kind::Fifo] {
        let entries = [(Entry::new(kind, b"dev/x", 0o666), Vec::new())];
        assert!(matches!(refused(&entries).cause, UnpackCause::SpecialFile));
        let place = Place::new();
        let policy = Policy { special_files: SpecialFiles::Skip, ..Policy::default() };
        let done = unpack_with(&place.root(), &[&entries], policy).unwrap();
        assert_eq!((done.special_files_skipped, names(&place.root()).len()), (1, 0));
    }
}

fn limited(change: impl FnOnce(&mut Limits), entries: &[Made]) -> UnpackCause {
    let place = Place::new();
    let mut policy = Policy::default();
    change(&mut policy.limits);
    unpack_with(&place.root(), &[entries], policy).unwrap_err().cause
}

#[test]
fn every_limit_holds() {
    if uncaged() {
        return;
    }
    let limit =
        |cause: &UnpackCause, which: &str| matches!(cause, UnpackCause::Limit { what, .. } if *what == which);
    let three = [file("a", "123"), file("b", "456"), file("c", "789")];
    assert!(limit(&limited(|limits| limits.entries_max = 2, &three), "entries"));
    assert!(limit(&limited(|limits| limits.file_bytes_max = 2, &three), "bytes in one file"));
    let small = limited(|limits| limits.bytes_max = 2000, &three);
    assert!(matches!(small, UnpackCause::Stream(StreamLimit::Bytes(2000))), "{small:?}");
    assert!(limit(
        &limited(|limits| limits.path_bytes_max = 9, &[file("0123456789", "")]),
        "bytes in a name"
    ));
    let deep = "d/".repeat(300) + "x";
    assert!(limit(&refused(&[file(&deep, "")]).cause, "directories within each other"));
    let wide = "n".repeat(256);
    assert!(limit(&refused(&[file(&wide, "")]).cause, "bytes in a part of a name"));
    // Short names that lead ever deeper through links.
    let mut deeper = vec![folder("d0", 0o755), symlink("l0", "d0")];
    for step in 1..60 {
        deeper.push(folder(&format!("l{}/a/b/c/d/e", step - 1), 0o755));
        deeper.push(symlink(&format!("l{step}"), &format!("l{}/a/b/c/d/e", step - 1)));
    }
    assert!(matches!(refused(&deeper).cause, UnpackCause::Limit { .. } | UnpackCause::TooManyLinks));
}

#[test]
fn bombs_do_not_go_off() {
    if uncaged() {
        return;
    }
    let zeros = vec![0; 100 << 20];
    let mut entry = Entry::new(Kind::File, b"zeros", 0o644);
    entry.size = zeros.len() as u64;
    let bytes = archive(&[(entry, zeros)]);
    for bomb in [gzip(&bytes), zstd(&bytes), gzip(&gzip(&bytes))] {
        let place = Place::new();
        let mut unpacker = Unpacker::new(&place.root(), Policy::default()).unwrap();
        let cause = unpacker.layer("bomb", Cursor::new(bomb), &Digest::of(&bytes)).unwrap_err().cause;
        assert!(
            matches!(cause, UnpackCause::Stream(StreamLimit::Ratio(_)) | UnpackCause::Archive(_)),
            "{cause:?}"
        );
    }
}

#[test]
fn another_layer_than_promised_is_refused() {
    if uncaged() {
        return;
    }
    let place = Place::new();
    let bytes = archive(&[file("a", "")]);
    let mut unpacker = Unpacker::new(&place.root(), Policy::default()).unwrap();
    let error = unpacker.layer("layer 1", Cursor::new(bytes), &Digest::of(b"other")).unwrap_err();
    assert!(matches!(error.cause, UnpackCause::WrongDiffId { .. }));
}

/// Entries that use few names, so that they meet each other, and that like to lead out.
fn entry() -> impl Strategy<Value = Made> {
    let name = || {
        prop::collection::vec(
            prop::sample::select(vec![
                "a",
                "b",
                "c",
                "..",
                ".",
                "",
                "bird",
                "canary",
                "root",
                ".wh.a",
                ".wh..wh..opq",
                "deep",
            ]),
            1..5,
        )
        .prop_map(|parts| parts.join("/"))
    };
    let target = prop_oneof![
        name(),
        name().prop_map(|name| format!("/{name}")),
        name().prop_map(|name| format!("../{name}")),
        Just("../canary".to_owned()),
        Just("../../../../../../../../tmp".to_owned()),
    ];
    (0..6u8, name(), target, 0..0o10000u32).prop_map(|(kind, path, target, mode)| match kind {
        0 | 1 => file(&path, "x"),
        2 => folder(&path, mode | 0o700),
        3 | 4 => symlink(&path, &target),
        _ => hard_link(&path, &target),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Each entry is a layer's only one or follows others that were accepted: refusals do not end the game.
    #[test]
    fn nothing_outside_is_touched(entries in prop::collection::vec(entry(), 1..25), together in any::<bool>()) {
        if uncaged() {
            return Ok(());
        }
        let place = Place::new();
        if together {
            let _ = unpack(&place.root(), &[&entries]);
        } else {
            for entry in &entries {
                let _ = unpack(&place.root(), &[std::slice::from_ref(entry)]);
            }
        }
        place.check();
    }

    #[test]
    fn damaged_layers_do_no_harm(
        entries in prop::collection::vec(entry(), 1..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        compressed in any::<bool>(),
    ) {
        if uncaged() {
            return Ok(());
        }
        let place = Place::new();
        let mut bytes = archive(&entries);
        if compressed {
            bytes = gzip(&bytes);
        }
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let root: &Path = &place.root();
        let _ = Unpacker::new(root, Policy::default()).unwrap().tarball("damaged", Cursor::new(bytes));
        place.check();
    }
}
