//! What of a context is seen, what its digest depends on, and what its disk holds.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::Arc;

use dockerfile::{Action, Build, BuildRequest, Dockerfile, ImageConfig, InlineFile};

use super::*;
use crate::staging::Staging;

fn context(files: &[(&str, &str)]) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (path, content) in files {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    directory
}

fn read(directory: &tempfile::TempDir) -> Result<Context, BuildError> {
    Context::read(directory.path(), &CancellationToken::new())
}

fn paths(context: &Context) -> Vec<&str> {
    context.listing.iter().map(|(path, _)| path).collect()
}

fn copy(line: &str) -> CopyStep {
    let file = Dockerfile::parse(&format!("FROM scratch\n{line}")).unwrap();
    let build = Build::new(file, BuildRequest::default()).unwrap();
    let plan = build.plan(|_| ImageConfig::default()).unwrap().remove(0);
    let Action::Copy(copy) = plan.steps[0].action.clone() else { panic!("{line}") };
    copy
}

#[test]
fn what_is_left_out_is_not_seen() {
    let directory = context(&[
        (".dockerignore", "*.log\nnode_modules\n!keep.log\n"),
        ("a/b.txt", "b"),
        ("x.log", ""),
        ("keep.log", ""),
        ("node_modules/m/i.js", ""),
    ]);
    symlink("/etc/passwd", directory.path().join("link")).unwrap();
    let found = read(&directory).unwrap();
    assert_eq!(paths(&found), [".dockerignore", "a", "a/b.txt", "keep.log", "link"]);
    assert_eq!(found.listing.entry("link"), Some(Entry::Link("/etc/passwd".to_owned())));
    fs::write(directory.path().join(".dockerignore"), "[").unwrap();
    assert!(matches!(read(&directory), Err(BuildError::Ignore(_))));
}

#[test]
fn a_digest_knows_content_mode_and_names_but_no_owner_and_time() {
    let directory = context(&[("d/one", "1"), ("d/two", "2"), ("other", "3")]);
    let file = directory.path().join("d/one");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    let digest = || {
        let context = read(&directory).unwrap();
        context.digest(&context.select(&copy("COPY d /x/"), Destination::Directory).unwrap()).unwrap()
    };
    let first = digest();
    std::os::unix::fs::chown(&file, Some(1000), Some(1000)).unwrap();
    fs::write(directory.path().join("other"), "changed").unwrap();
    File::options().write(true).open(&file).unwrap().set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(digest(), first);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let second = digest();
    assert_ne!(second, first);
    fs::write(&file, "changed").unwrap();
    assert_ne!(digest(), second);
}

fn inspect(disk: &Path, question: &str) -> String {
    let output = Command::new("/sbin/debugfs").args(["-R", question]).arg(disk).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test]
async fn a_disk_has_exactly_what_is_wanted() {
    let directory =
        context(&[("src/a/one", "1"), ("src/two", "2"), ("secret", "s"), ("plain.tar", "no archive")]);
    fs::set_permissions(directory.path().join("src/a/one"), fs::Permissions::from_mode(0o750)).unwrap();
    symlink("../secret", directory.path().join("src/link")).unwrap();
    let mut packed = Vec::new();
    let mut writer = oci::tar::Writer::new(&mut packed);
    let mut entry = oci::tar::Entry::new(oci::tar::Kind::File, b"in/side", 0o640);
    (entry.uid, entry.size) = (1234, 4);
    writer.add_file(&entry, &b"deep"[..]).unwrap();
    writer.finish().unwrap();
    fs::write(directory.path().join("files.tar"), &packed).unwrap();

    let place = tempfile::tempdir().unwrap();
    let supply = Supply {
        paths: ["src".to_owned()].into(),
        archives: ["files.tar".to_owned(), "plain.tar".to_owned()].into(),
        inline: BTreeMap::from([(3, vec![InlineFile { name: "f".into(), content: "text\n".into() }])]),
    };
    let staging = Staging::make(place.path()).unwrap();
    let context = Arc::new(read(&directory).unwrap());
    let disk = ContextDisk::make(Arc::clone(&context), supply, 256, staging).await.unwrap();
    assert_eq!(disk.archives, BTreeMap::from([("files.tar".to_owned(), 0)]));
    assert_eq!(inspect(&disk.file, "cat /files/src/a/one"), "1");
    assert_eq!(inspect(&disk.file, "cat /files/plain.tar"), "no archive");
    assert_eq!(inspect(&disk.file, "cat /archives/0/in/side"), "deep");
    assert_eq!(inspect(&disk.file, "cat /inline/3/f"), "text\n");
    assert!(inspect(&disk.file, "stat /files/src/a/one").contains("Mode:  0750"));
    assert!(inspect(&disk.file, "stat /archives/0/in/side").contains("User:  1234"));
    assert!(inspect(&disk.file, "stat /files/src/link").contains("../secret"));
    let top = inspect(&disk.file, "ls -p /files");
    assert!(top.contains("/src/") && !top.contains("secret") && !top.contains("files.tar"), "{top}");

    fs::write(directory.path().join("x.bz2"), b"BZh91AY&SY").unwrap();
    let context = Arc::new(read(&directory).unwrap());
    let supply = Supply { archives: ["x.bz2".to_owned()].into(), ..Supply::default() };
    let disk = ContextDisk::make(context, supply, 256, Staging::make(place.path()).unwrap()).await.unwrap();
    assert_eq!(inspect(&disk.file, "cat /files/x.bz2"), "BZh91AY&SY");
}
