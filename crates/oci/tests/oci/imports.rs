//! Images from files, and what other programs make of ours.

use std::fs::File;
use std::io::Cursor;
use std::path::Path;

use oci::{Image, ImportError, ImportLimits, Layout, LayoutError, Platform, Policy, Wanted};
use proptest::prelude::*;
use serde_json::json;

use crate::files::{IMAGE_NAMES, Made, archive, config, file, gzip, image, names, symlink};

struct Layouts {
    all: tempfile::TempDir,
}

impl Layouts {
    fn new() -> Self {
        Self { all: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.all.path().join(name)
    }

    fn open(&self, name: &str) -> Layout {
        Layout::open(&self.path(name)).unwrap()
    }
}

#[track_caller]
fn check(layout: &Layout, name: &str) {
    let found = layout.find(name).unwrap().unwrap();
    let image = Image::load(layout, &found, &Platform::linux_amd64()).unwrap();
    assert_eq!(image.config.config.cmd, ["/bin/sh"]);
    let root = tempfile::tempdir().unwrap();
    image.unpack(layout, root.path(), Policy::default()).unwrap();
    assert_eq!(names(root.path()), IMAGE_NAMES);
}

fn import(layout: &Layout, bytes: Vec<u8>, wanted: Wanted<'_>) -> Result<Image, ImportError> {
    layout.import_archive(
        Cursor::new(bytes),
        wanted,
        "mine",
        &Platform::linux_amd64(),
        ImportLimits::default(),
    )
}

#[test]
fn a_layout_goes_from_directory_to_directory_and_through_an_archive() {
    let layouts = Layouts::new();
    let ours = layouts.open("ours");
    let made = image(&ours, "one");
    check(&ours, "one");
    let copied = layouts.open("copied");
    let machine = Platform::linux_amd64();
    let found = copied.import_directory(ours.root(), Wanted::Only, "again", &machine).unwrap();
    assert_eq!(found.descriptor.digest, made.digest);
    check(&copied, "again");
    let mut bytes = Vec::new();
    copied.write_archive(&found, Some("v1"), &mut bytes).unwrap();
    for (number, (form, wanted)) in
        [(bytes.clone(), Wanted::Only), (gzip(&bytes), Wanted::Named("v1"))].into_iter().enumerate()
    {
        let layout = layouts.open(&format!("from archive {number}"));
        assert_eq!(import(&layout, form, wanted).unwrap().descriptor.digest, made.digest);
        check(&layout, "mine");
    }
    let error = import(&layouts.open("none"), bytes, Wanted::Named("v2")).unwrap_err();
    assert!(matches!(error, ImportError::NoSuchImage { .. }), "{error}");
    let error = copied.import_directory(&layouts.path("nowhere"), Wanted::Only, "x", &machine).unwrap_err();
    assert!(matches!(error, ImportError::Keep(LayoutError::NotALayout { .. })), "{error}");
}

fn add(path: &str, content: &[u8]) -> Made {
    let (mut entry, _) = file(path, "");
    entry.size = content.len() as u64;
    (entry, content.to_vec())
}

#[test]
fn what_docker_saves_is_read() {
    let layers = [
        archive(&[file("etc/old", ""), file("etc/name", ""), file("bin/sh", ""), file("bin/ash", "")]),
        archive(&[file("etc/.wh.old", "")]),
    ];
    let mut about = config();
    about.rootfs.diff_ids =
        vec![oci::Digest::of(&layers[0]), oci::Digest::of(&layers[1]), oci::Digest::of(&layers[1])];
    let about = serde_json::to_vec(&about).unwrap();
    let list = json!([{"Config": "abc.json", "RepoTags": ["app:1", "app:latest"],
        "Layers": ["one/layer.tar", "two/layer.tar", "three/layer.tar"]}]);
    let entries = [
        add("one/layer.tar", &layers[0]),
        add("two/layer.tar", &gzip(&layers[1])),
        symlink("three/layer.tar", "../two/layer.tar"),
        add("abc.json", &about),
        add("manifest.json", list.to_string().as_bytes()),
    ];
    let layouts = Layouts::new();
    for wanted in [Wanted::Only, Wanted::Named("app:1")] {
        let layout = layouts.open("ours");
        import(&layout, archive(&entries), wanted).unwrap();
        check(&layout, "mine");
    }
    let layout = layouts.open("ours");
    assert!(matches!(
        import(&layout, archive(&entries), Wanted::Named("app:2")),
        Err(ImportError::NoSuchImage { .. })
    ));
    for missing in 0..entries.len() {
        let mut fewer = entries.to_vec();
        fewer.remove(missing);
        assert!(import(&layouts.open("less"), archive(&fewer), Wanted::Only).is_err(), "{missing}");
    }
    // Nothing of what failed is left, and a sweep removes what no name leads to.
    let staging = layouts.path("less").join(".staging");
    assert_eq!(std::fs::read_dir(staging).unwrap().count(), 0);
}

#[test]
fn damage_is_found() {
    let layouts = Layouts::new();
    let ours = layouts.open("ours");
    image(&ours, "one");
    let machine = Platform::linux_amd64();
    let found = Image::load(&ours, &ours.find("one").unwrap().unwrap(), &machine).unwrap();
    let blob = ours.root().join("blobs/sha256").join(found.manifest.layers[0].digest.hex());
    let mut bytes = std::fs::read(&blob).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&blob, &bytes).unwrap();
    let error = layouts.open("copy").import_directory(ours.root(), Wanted::Only, "x", &machine).unwrap_err();
    assert!(matches!(error, ImportError::Keep(LayoutError::Different { .. })), "{error:?}");
    let root = tempfile::tempdir().unwrap();
    assert!(found.unpack(&ours, root.path(), Policy::default()).is_err());
    std::fs::remove_file(&blob).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &blob).unwrap();
    assert!(ours.open_blob(&found.manifest.layers[0]).is_err());
    let tiny = ImportLimits { bytes_max: 1000, entries_max: 10 };
    let many = archive(&vec![file("x", "y"); 50]);
    let imported = ours.import_archive(Cursor::new(many), Wanted::Only, "x", &machine, tiny);
    assert!(matches!(imported, Err(ImportError::Stream(_) | ImportError::Limit { .. })));
}

#[test]
fn sweeping_keeps_what_has_a_name() {
    let layouts = Layouts::new();
    let ours = layouts.open("ours");
    image(&ours, "one");
    let loose = ours.put("text/plain", b"loose").unwrap();
    {
        let _using = ours.in_use().unwrap();
        assert!(matches!(ours.sweep(), Err(LayoutError::InUse { .. })));
    }
    assert_eq!(ours.sweep().unwrap(), 5);
    assert!(!ours.has(&loose));
    check(&ours, "one");
    assert!(ours.forget("one").unwrap() && !ours.forget("one").unwrap());
    ours.sweep().unwrap();
    assert_eq!(std::fs::read_dir(ours.root().join("blobs/sha256")).unwrap().count(), 0);
}

#[track_caller]
fn run(program: &str, arguments: &[&str], in_folder: &Path) {
    let ran = std::process::Command::new(program).args(arguments).current_dir(in_folder).output().unwrap();
    assert!(ran.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

#[test]
fn skopeo_and_umoci_agree() {
    for program in ["skopeo", "umoci"] {
        if !Path::new("/usr/bin").join(program).exists() {
            println!("SKIPPED: no {program} on this host");
            return;
        }
    }
    let layouts = Layouts::new();
    let ours = layouts.open("ours");
    image(&ours, "one");
    let folder = layouts.all.path();
    // umoci unpacks what we wrote as we do.
    run("umoci", &["unpack", "--image", "ours:one", "bundle"], folder);
    let root = tempfile::tempdir().unwrap();
    let found = Image::load(&ours, &ours.find("one").unwrap().unwrap(), &Platform::linux_amd64()).unwrap();
    found.unpack(&ours, root.path(), Policy::default()).unwrap();
    assert_eq!(names(&folder.join("bundle/rootfs")), names(root.path()));
    // skopeo reads it and writes each form that we read.
    let insecure = "--insecure-policy";
    run("skopeo", &[insecure, "copy", "oci:ours:one", "docker-archive:saved.tar:app:1"], folder);
    run("skopeo", &[insecure, "copy", "oci:ours:one", "oci-archive:archive.tar:one"], folder);
    run(
        "skopeo",
        &[insecure, "copy", "--dest-compress-format", "zstd", "oci:ours:one", "oci:zstd:one"],
        folder,
    );
    for name in ["saved.tar", "archive.tar"] {
        let layout = layouts.open(&format!("from {name}"));
        let source = File::open(folder.join(name)).unwrap();
        let machine = Platform::linux_amd64();
        layout.import_archive(source, Wanted::Only, "mine", &machine, ImportLimits::default()).unwrap();
        check(&layout, "mine");
    }
    let layout = layouts.open("from zstd");
    layout
        .import_directory(&folder.join("zstd"), Wanted::Named("one"), "mine", &Platform::linux_amd64())
        .unwrap();
    check(&layout, "mine");
    // A tree that umoci changed comes back as a new layer with whiteouts, as others write them.
    std::fs::remove_file(folder.join("bundle/rootfs/etc/name")).unwrap();
    std::fs::write(folder.join("bundle/rootfs/etc/added"), "x").unwrap();
    run("umoci", &["repack", "--image", "ours:two", "bundle"], folder);
    let changed = Image::load(&ours, &ours.find("two").unwrap().unwrap(), &Platform::linux_amd64()).unwrap();
    let root = tempfile::tempdir().unwrap();
    changed.unpack(&ours, root.path(), Policy::default()).unwrap();
    assert_eq!(names(root.path()), ["bin", "bin/ash", "bin/sh", "etc", "etc/added"]);
}

/// An archive of an image, whole and right.
fn exported() -> Vec<u8> {
    let layouts = Layouts::new();
    let ours = layouts.open("ours");
    let made = image(&ours, "one");
    let mut bytes = Vec::new();
    let found = Image::load(&ours, &made, &Platform::linux_amd64()).unwrap();
    ours.write_archive(&found, None, &mut bytes).unwrap();
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    /// Whatever is changed in an archive, what is taken from it is whole, or nothing is.
    #[test]
    fn changed_archives_are_refused_or_right(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<Option<prop::sample::Index>>(),
    ) {
        let mut bytes = exported();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let layouts = Layouts::new();
        let layout = layouts.open("ours");
        match import(&layout, bytes, Wanted::Only) {
            Ok(_) => check(&layout, "mine"),
            Err(_) => prop_assert_eq!(layout.find("mine").unwrap(), None),
        }
        prop_assert_eq!(std::fs::read_dir(layouts.path("ours").join(".staging")).unwrap().count(), 0);
    }
}
