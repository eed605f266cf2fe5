//! What guests' systems are given, and where.

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use super::*;

/// Any authority that this host trusts, as a text: the first of its bundle.
fn some_certificate() -> Option<String> {
    let bundle = fs::read_to_string(BUNDLES[0]).ok()?;
    let end = "-----END CERTIFICATE-----\n";
    let (first, _) = bundle.split_once(end)?;
    Some(format!("{first}{end}"))
}

fn authorities(dir: &Path, certificate: &str) -> Authorities {
    fs::create_dir_all(dir).unwrap();
    fs::write(dir.join("own.crt"), certificate).unwrap();
    fs::write(dir.join("bad.crt"), "no certificate").unwrap();
    Authorities::read(dir).unwrap()
}

#[test]
fn only_certificates_are_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("b.crt"), "B").unwrap();
    fs::write(dir.path().join("a.crt"), "A").unwrap();
    fs::write(dir.path().join("key.pem"), "secret").unwrap();
    fs::create_dir(dir.path().join("sub.crt")).unwrap();
    let found = Authorities::read(dir.path()).unwrap();
    let names: Vec<_> = found.files.iter().map(|certificate| certificate.file_name.as_str()).collect();
    assert_eq!(names, ["a.crt", "b.crt"]);
    let root = dir.path().join("root");
    found.place(&root).unwrap();
    assert_eq!(fs::read(root.join("usr/local/share/ca-certificates/b.crt")).unwrap(), b"B");
    let none = Authorities::read(&dir.path().join("absent")).unwrap();
    assert_eq!((none.digest(), none), (None, Authorities::none()));
    let digest = found.digest().unwrap();
    fs::write(dir.path().join("b.crt"), "other").unwrap();
    assert_ne!(Authorities::read(dir.path()).unwrap().digest(), Some(digest));
}

#[test]
fn a_system_of_somebody_else_trusts_them_once() {
    let Some(certificate) = some_certificate() else {
        eprintln!("SKIPPED: this host has no authorities");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (root, outside) = (dir.path().join("root"), dir.path().join("outside"));
    let found = authorities(&dir.path().join("host"), &certificate);
    for folder in ["etc/ssl/certs", "etc/pki/ca-trust/source/blocklist", "etc/pki/tls/certs"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    let hash = subject_hash::of(&certificate).unwrap();
    // Another authority has a name with the same digest; the second bundle is the first one under another name.
    fs::write(root.join("etc/ssl/certs").join(format!("{hash:08x}.0")), "another").unwrap();
    fs::write(root.join("etc/ssl/certs/ca-certificates.crt"), "public").unwrap();
    symlink("/etc/ssl/certs/ca-certificates.crt", root.join("etc/pki/tls/certs/ca-bundle.crt")).unwrap();
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("bundle"), "host").unwrap();
    symlink(outside.join("bundle"), root.join("etc/ssl/ca-bundle.pem")).unwrap();
    let tree = Tree::open(&root).unwrap();
    for _ in 0..2 {
        found.install(&tree).unwrap();
        let bundle = fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).unwrap();
        assert_eq!(bundle, format!("public\n{certificate}"));
    }
    let own = PathBuf::from(FOLDER).join("own.crt");
    let link = |number: usize| fs::read_link(root.join("etc/ssl/certs").join(format!("{hash:08x}.{number}")));
    assert_eq!(link(1).unwrap(), own);
    assert!(link(2).is_err());
    for folder in ["usr/local/share/ca-certificates", "etc/pki/ca-trust/source/anchors"] {
        assert_eq!(fs::read_to_string(root.join(folder).join("own.crt")).unwrap(), certificate);
        assert_eq!(fs::read_to_string(root.join(folder).join("bad.crt")).unwrap(), "no certificate");
    }
    assert_eq!(fs::read(outside.join("bundle")).unwrap(), b"host");
}

#[test]
fn a_system_without_authorities_gets_no_bundle() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let Some(certificate) = some_certificate() else { return };
    let tree = Tree::open(&root).unwrap();
    authorities(&dir.path().join("host"), &certificate).install(&tree).unwrap();
    assert!(root.join("usr/local/share/ca-certificates/own.crt").exists());
    assert!(!root.join("etc").exists());
    let bare = tempfile::tempdir().unwrap();
    Authorities::none().install(&Tree::open(bare.path()).unwrap()).unwrap();
    assert_eq!(fs::read_dir(bare.path()).unwrap().count(), 0);
}
