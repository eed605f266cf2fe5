//! Forms, as clients send them and as they should not be.

use super::*;

type Part = (String, Option<String>);

fn part(name: &str, kind: &str) -> Part {
    (name.to_owned(), (!kind.is_empty()).then(|| kind.to_owned()))
}

fn read(texts: &[(&str, &str)], parts: &[Part]) -> Result<Asked, ControlError> {
    let mut fields = Fields::default();
    for (name, value) in texts {
        fields.add(name, (*value).to_owned())?;
    }
    let naming = Naming {
        allowed: oci::Allowed::Only(vec![oci::RegistryPattern::parse("registry.test").unwrap()]),
        ..Naming::default()
    };
    fields.read(parts, &Allowed { disk_mib_max: 16_384, naming: &naming })
}

fn refused(texts: &[(&str, &str)], parts: &[Part]) -> (Kind, String) {
    let error = read(texts, parts).unwrap_err();
    (error.kind, error.message)
}

#[test]
fn an_image_is_asked_for_as_clients_do() {
    let asked = read(
        &[
            ("name", "My.own_1"),
            ("image_ref", "registry.test/a/b:1"),
            ("size_mb", "2048"),
            ("kernel", "vmlinux-5.10"),
        ],
        &[],
    )
    .unwrap();
    assert_eq!(
        (asked.name.as_str(), asked.disk_mib, asked.cpus, asked.memory_mib),
        ("My.own_1", 2048, 1, 512)
    );
    assert_eq!(asked.kept, Kept::Image { reference: "registry.test/a/b:1".to_owned() });
    assert!(!asked.replace);
}

#[test]
fn files_beside_a_dockerfile_are_its_context_whatever_they_are_called() {
    let parts = [
        part("rootfs", ""),
        part("src/app.py", "application/octet-stream"),
        part("context", ""),
        part("name", ""),
    ];
    let asked = read(&[("name", "x"), ("dockerfile", "FROM base"), ("cpu", ""), ("replace", "true")], &parts)
        .unwrap();
    assert_eq!(asked.parts, [PartKind::File; 4]);
    assert!(asked.replace);
    let Kept::Dockerfile { dockerfile, context, .. } = asked.kept else { panic!("{asked:?}") };
    assert_eq!((dockerfile, context), (Dockerfile::Text("FROM base".to_owned()), Context::Files));
}

#[test]
fn a_context_may_come_as_an_archive() {
    let tar = [part("context", "application/x-tar")];
    for texts in [
        &[("name", "x"), ("dockerfile", "FROM base"), ("build_args", r#"{"A":"1"}"#)][..],
        &[("name", "x"), ("target", "last")],
    ] {
        let asked = read(texts, &tar).unwrap();
        let Kept::Dockerfile { context, .. } = &asked.kept else { panic!("{asked:?}") };
        assert_eq!((*context, asked.parts.as_slice()), (Context::Archive, [PartKind::Context].as_slice()));
    }
    let files = [part("context", "application/x-tar"), part("more", "")];
    assert_eq!(refused(&[("name", "x")], &files).0, Kind::Invalid);
    assert_eq!(refused(&[("name", "x"), ("dockerfile_path", "../x")], &tar).0, Kind::Invalid);
    assert_eq!(refused(&[("name", "x"), ("build_args", "[]")], &tar).0, Kind::Invalid);
}

#[test]
fn files_of_other_kinds_stand_alone() {
    assert_eq!(read(&[("name", "x")], &[part("rootfs", "")]).unwrap().kept, Kept::Tarball);
    assert_eq!(read(&[("name", "x")], &[part("image", "")]).unwrap().kept, Kept::Archive);
    for parts in [
        vec![part("rootfs", ""), part("rootfs", "")],
        vec![part("rootfs", ""), part("image", "")],
        vec![part("rootfs", ""), part("src/app.py", "")],
        vec![part("src/app.py", "")],
        vec![],
    ] {
        assert_eq!(refused(&[("name", "x")], &parts).0, Kind::Invalid, "{parts:?}");
    }
}

#[test]
fn what_makes_no_sense_is_refused() {
    let image = ("image_ref", "registry.test/a");
    for texts in [
        &[image][..],
        &[("name", "../x"), image],
        &[("name", "builds"), image],
        &[("name", "x"), image, ("size_mb", "x")],
        &[("name", "x"), image, ("size_mb", "16385")],
        &[("name", "x"), image, ("cpu", "65")],
        &[("name", "x"), image, ("memory_mb", "127")],
        &[("name", "x"), image, ("replace", "maybe")],
        &[("name", "x"), image, ("dockerfile", "FROM base")],
        &[("name", "x"), ("name", "y"), image],
        &[("name", "x"), ("image_ref", "http://registry.test/a")],
    ] {
        assert_eq!(refused(texts, &[]).0, Kind::Invalid, "{texts:?}");
    }
    assert_eq!(refused(&[("name", "x"), ("image_ref", "169.254.169.254/a")], &[]).0, Kind::Forbidden);
}

#[test]
fn a_name_without_a_registry_says_which_settings_mend_it() {
    let error = read(&[("name", "x"), ("image_ref", "python:3.12-slim")], &[]).unwrap_err();
    assert_eq!(error.kind, Kind::Invalid);
    assert!(
        error.hint.is_some_and(|hint| hint.contains("--registry docker.io --registry-default docker.io"))
    );
    let error = read(&[("name", "x"), ("image_ref", "ghcr.io/a/b")], &[]).unwrap_err();
    assert_eq!(error.kind, Kind::Forbidden);
    assert!(error.hint.is_some_and(|hint| hint.ends_with("--registry ghcr.io`")));
}
