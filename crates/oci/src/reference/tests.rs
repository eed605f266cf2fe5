//! Names of images, as people write them and as nobody should.

use proptest::prelude::*;

use super::*;

const DIGEST: &str = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn naming() -> Naming {
    let registry = RegistryHost::parse("hub.example").unwrap();
    Naming {
        short_names: Some(ShortNames { registry, namespace: Some("library".into()) }),
        allowed: Allowed::All,
    }
}

#[test]
fn names_are_made_full() {
    for (text, full) in [
        ("alpine", "hub.example/library/alpine:latest"),
        ("alpine:3.20", "hub.example/library/alpine:3.20"),
        ("hub.example/alpine", "hub.example/library/alpine:latest"),
        ("someone/app", "hub.example/someone/app:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/x", "localhost:5000/x:latest"),
        ("localhost:5000", "hub.example/library/localhost:5000"),
        ("[::1]:5000/x", "[::1]:5000/x:latest"),
        ("127.0.0.1:5000/a/b/c:v1", "127.0.0.1:5000/a/b/c:v1"),
        ("GHCR.example/a/b__c-d.e", "ghcr.example/a/b__c-d.e:latest"),
        ("a--b/c---d", "hub.example/a--b/c---d:latest"),
    ] {
        assert_eq!(Reference::parse(text, &naming()).unwrap().to_string(), full, "{text}");
    }
    let both = Reference::parse(&format!("ghcr.example/a/b:tag@{DIGEST}"), &naming()).unwrap();
    assert_eq!((both.tag(), both.wanted().as_str()), (Some("tag"), DIGEST));
    let digest = Reference::parse(&format!("alpine@{DIGEST}"), &naming()).unwrap();
    assert_eq!((digest.tag(), digest.repository()), (None, "library/alpine"));
}

#[test]
fn what_is_no_name_is_refused() {
    for text in [
        "",
        "/",
        ":",
        "@",
        "a/",
        "/a",
        "a//b",
        "A",
        "a:",
        "a:-x",
        "a/../b",
        "a/./b",
        "..",
        "a/b@sha256:12",
        "a@sha512:00",
        "a b",
        "a/b\n",
        "a___b",
        "a..b",
        "-a",
        "a-",
        "_a",
        "http://host.example/a",
        "host.example/",
        "host.example:99999/a",
        "host.example:0/a",
        "host.example:/a",
        "ho_st.example/a",
        "[::1/a",
        "[::1]x:5/a",
        "[zz]:5/a",
        "a.example:1:2/a",
        "ex..ample/a",
        "a/b?c",
        "a/%2e%2e/b",
        "é/a",
    ] {
        assert!(
            matches!(Reference::parse(text, &naming()), Err(ReferenceError::Malformed { .. })),
            "{text:?} is {:?}",
            Reference::parse(text, &naming())
        );
    }
    let long = format!("host.example/{}", "a".repeat(250));
    assert!(Reference::parse(&long, &naming()).is_err());
    assert!(Reference::parse(&format!("a:{}", "t".repeat(129)), &naming()).is_err());
}

#[test]
fn only_allowed_registries_and_no_guessing() {
    let pattern = |text| RegistryPattern::parse(text).unwrap();
    let allowed =
        Allowed::Only(vec![pattern("ghcr.example"), pattern("*.pkg.example"), pattern("localhost:5000")]);
    let naming = Naming { short_names: None, allowed };
    for (text, fine) in [
        ("ghcr.example/a", true),
        ("eu-docker.pkg.example/p/r/a", true),
        ("a.b.pkg.example/p", true),
        ("pkg.example/p", false),
        ("evilpkg.example/p", false),
        (".pkg.example/p", false),
        ("ghcr.example.evil.example/a", false),
        ("ghcr.example:8443/a", false),
        ("localhost:5000/a", true),
        ("localhost:5001/a", false),
    ] {
        assert_eq!(Reference::parse(text, &naming).is_ok(), fine, "{text}");
    }
    assert!(matches!(Reference::parse("alpine", &naming), Err(ReferenceError::NoRegistry { .. })));
}

#[test]
fn what_is_near_is_known_by_address() {
    for (text, near) in [
        ("localhost", true),
        ("127.9.9.9", true),
        ("[::1]", true),
        ("169.254.169.254", true),
        ("0.0.0.0", true),
        ("[fe80::1]", true),
        ("[::ffff:127.0.0.1]", true),
        ("10.0.0.1", false),
        ("example.org", false),
    ] {
        assert_eq!(host::is_nearby(text), near, "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_answered_and_full_names_stand(text in "\\PC{0,80}") {
        if let Ok(name) = Reference::parse(&text, &naming()) {
            prop_assert_eq!(Reference::parse(&name.to_string(), &naming()).unwrap(), name);
        }
    }

    #[test]
    fn plausible_texts_too(text in "[a-zA-Z0-9.:/@_\\[\\]-]{0,40}") {
        if let Ok(name) = Reference::parse(&text, &naming()) {
            let again = name.to_string();
            prop_assert_eq!(&Reference::parse(&again, &naming()).unwrap(), &name);
            // Nothing in a path can lead elsewhere in a registry's address.
            prop_assert!(name.repository().split('/').all(|part| !part.is_empty() && !part.starts_with('.')));
        }
    }

    #[test]
    fn made_names_are_read(
        host in "[a-z][a-z0-9]{0,8}\\.[a-z]{2,5}(:[1-9][0-9]{0,3})?",
        path in "[a-z0-9]{1,6}(/[a-z0-9]{1,6}([._-][a-z0-9]{1,4})?){0,4}",
        tag in proptest::option::of("[A-Za-z0-9_][A-Za-z0-9_.-]{0,20}"),
    ) {
        let text = format!("{host}/{path}{}", tag.as_ref().map(|tag| format!(":{tag}")).unwrap_or_default());
        let name = Reference::parse(&text, &Naming::default()).unwrap();
        prop_assert_eq!(name.registry().as_str(), host);
        prop_assert_eq!(name.repository(), path);
        prop_assert_eq!(name.tag(), Some(tag.as_deref().unwrap_or("latest")));
    }
}
