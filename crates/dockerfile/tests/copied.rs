//! What `COPY` finds and where it goes, and the keys that depend on it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use dockerfile::{
    Action, Build, BuildRequest, CacheKey, CopyStep, Destination, Dockerfile, Entry, IgnoreFile, ImageConfig,
    Listing, SelectError, StagePlan,
};

fn context() -> Listing {
    let mut listing = Listing::new();
    for path in
        ["package.json", "a.txt", "b.txt", "src/main.rs", "src/lib/x.rs", "src/lib/y.rs", "docs/a b.md"]
    {
        listing.insert(path, Entry::File).unwrap();
    }
    listing.insert("empty", Entry::Directory).unwrap();
    listing.insert("link", Entry::Link("src".to_owned())).unwrap();
    listing.insert("file-link", Entry::Link("a.txt".to_owned())).unwrap();
    listing.insert("pipe", Entry::Other).unwrap();
    listing
}

fn plan(instructions: &str) -> StagePlan {
    let file = Dockerfile::parse(&format!("FROM a\nWORKDIR /w\n{instructions}")).unwrap();
    let build = Build::new(file, BuildRequest::default()).unwrap();
    build.plan(|_| ImageConfig::default()).unwrap().pop().unwrap()
}

fn step(instruction: &str) -> CopyStep {
    match plan(instruction).steps.pop().unwrap().action {
        Action::Copy(copy) => copy,
        other => panic!("{other:?}"),
    }
}

fn check(instruction: &str, there: Destination, expected: Result<&[(&str, &str)], &str>) {
    let found = step(instruction).select(&context(), there);
    match (found, expected) {
        (Ok(found), Ok(expected)) => {
            let found: Vec<_> =
                found.files.iter().map(|file| (file.path.as_str(), file.target.as_str())).collect();
            assert_eq!(found, expected, "{instruction} {there:?}");
        }
        (Err(error), Err(expected)) => {
            assert!(error.to_string().contains(expected), "{instruction}: {error}")
        }
        (found, _) => panic!("{instruction} {there:?}: {found:?}"),
    }
}

#[test]
fn where_things_go() {
    use Destination::{Absent, Directory, File};
    check("COPY a.txt /x", Absent, Ok(&[("a.txt", "/x")]));
    check("COPY a.txt /x", File, Ok(&[("a.txt", "/x")]));
    check("COPY a.txt /x", Directory, Ok(&[("a.txt", "/x/a.txt")]));
    check("COPY a.txt /x/", Absent, Ok(&[("a.txt", "/x/a.txt")]));
    check("COPY a.txt /x/", File, Err("not a directory"));
    check("COPY a.txt /", Directory, Ok(&[("a.txt", "/a.txt")]));
    check("COPY a.txt .", Directory, Ok(&[("a.txt", "/w/a.txt")]));
    check("COPY a.txt sub/", Absent, Ok(&[("a.txt", "/w/sub/a.txt")]));
    check("COPY a.txt b.txt ./", Directory, Ok(&[("a.txt", "/w/a.txt"), ("b.txt", "/w/b.txt")]));
    check("COPY src /x", Absent, Ok(&[("src", "/x")]));
    check("COPY src /x", Directory, Ok(&[("src", "/x")]));
    check("COPY src/ /x/", Directory, Ok(&[("src", "/x")]));
    check("COPY src /x", File, Err("not a directory"));
    check("COPY src docs ./", Directory, Ok(&[("src", "/w"), ("docs", "/w")]));
    check("COPY . .", Directory, Ok(&[("", "/w")]));
    check("COPY / /", Directory, Ok(&[("", "/")]));
    check("COPY *.txt ./", Directory, Ok(&[("a.txt", "/w/a.txt"), ("b.txt", "/w/b.txt")]));
    check("COPY *.txt /x", Absent, Err("2 files would be copied"));
    check("COPY *.txt /x", Directory, Ok(&[("a.txt", "/x/a.txt"), ("b.txt", "/x/b.txt")]));
    check("COPY ?.txt nothing* ./", Directory, Ok(&[("a.txt", "/w/a.txt"), ("b.txt", "/w/b.txt")]));
    check("COPY src/*/[xz].rs /x", Absent, Ok(&[("src/lib/x.rs", "/x")]));
    check("COPY src/* /x/", Absent, Ok(&[("src/lib", "/x"), ("src/main.rs", "/x/main.rs")]));
    check("COPY missing /x", Absent, Err("`missing` is not there"));
    check("COPY missing* /x", Absent, Ok(&[]));
    check("COPY [\"docs/a b.md\", \"/x y/\"]", Absent, Ok(&[("docs/a b.md", "/x y/a b.md")]));
    check("COPY link /x", Absent, Ok(&[("src", "/x")]));
    check("COPY link/lib/*.rs /x/", Absent, Ok(&[("src/lib/x.rs", "/x/x.rs"), ("src/lib/y.rs", "/x/y.rs")]));
    check("COPY file-link /x/", Absent, Ok(&[("a.txt", "/x/file-link")]));
    check("COPY pipe /x", Absent, Err("neither a file nor a directory"));
    check("COPY empty /x", Absent, Ok(&[("empty", "/x")]));
}

#[test]
fn inline_files_follow_the_same_rules() {
    let one = step("COPY <<a.conf /etc/x\n1\na.conf\n");
    assert_eq!(one.select(&context(), Destination::Absent).unwrap().inline_targets, ["/etc/x"]);
    assert_eq!(one.select(&context(), Destination::Directory).unwrap().inline_targets, ["/etc/x/a.conf"]);
    let both =
        step("COPY a.txt <<a.conf /etc/\n1\na.conf\n").select(&context(), Destination::Directory).unwrap();
    assert_eq!((&*both.inline_targets[0], &*both.files[0].target), ("/etc/a.conf", "/etc/a.txt"));
}

#[test]
fn archives_go_to_the_destination_as_a_directory() {
    let added = step("ADD a.txt /opt/x").select(&context(), Destination::Absent).unwrap();
    assert_eq!(added.files[0].unpack_to.as_deref(), Some("/opt/x"));
    assert_eq!(
        step("COPY a.txt /x").select(&context(), Destination::Absent).unwrap().files[0].unpack_to,
        None
    );
}

#[test]
fn what_is_ignored_is_not_there() {
    let seen = context().without(&IgnoreFile::parse("*.txt\nsrc/lib\n!src/lib/x.rs").unwrap());
    let error = step("COPY a.txt /x").select(&seen, Destination::Absent).unwrap_err();
    assert_eq!(error, SelectError::NotFound { path: "a.txt".to_owned() });
    let found = step("COPY src/lib/* /x/").select(&seen, Destination::Absent).unwrap();
    assert_eq!(found.files.len(), 1);
    assert_eq!(step("COPY nothing* /x/").select(&seen, Destination::Absent).unwrap().unmatched, ["nothing*"]);
}

fn keys(instructions: &str, content: &str) -> Vec<CacheKey> {
    let plan = plan(instructions);
    let tree = context();
    let digest_of = |step: &dockerfile::Step, _: &dockerfile::Input<'_>| match &step.action {
        Action::Copy(copy) => copy
            .select(&tree, Destination::Directory)
            .unwrap()
            .digest(&tree, |path| Ok::<_, ()>(format!("{path}:{content}"))),
        _ => Ok("mounted".to_owned()),
    };
    plan.keys(CacheKey::of_base("sha256:0"), digest_of).unwrap()
}

#[test]
fn keys_change_with_what_matters_and_only_then() {
    let before = "ENV A=1\nCOPY src /src\nRUN make\nLABEL x=1";
    let base = keys(before, "1");
    assert_eq!(base.len(), 5);
    assert_eq!(base[0], base[1], "ENV changes no file");
    assert_eq!(base[3], base[4], "LABEL changes no file");
    assert_eq!(base, keys(before, "1"));
    assert_eq!(base[0].to_string().len(), 64);
    for (text, content, same) in [
        (before, "2", 2),
        ("ENV A=2\nCOPY src /src\nRUN make\nLABEL x=1", "1", 3),
        ("ENV A=1\nCOPY src /src\nRUN make all\nLABEL x=1", "1", 3),
        ("ENV A=1\nCOPY src /src\nRUN make\nLABEL x=2", "1", 5),
        ("# why\nENV A=1\nCOPY src \\\n  /src\nRUN make\nLABEL x=1", "1", 5),
        ("ENV A=1\nCOPY src /src2\nRUN make\nLABEL x=1", "1", 2),
        ("ENV A=1\nCOPY --chmod=700 src /src\nRUN make\nLABEL x=1", "1", 2),
        ("ENV A=1\nCOPY docs /src\nRUN make\nLABEL x=1", "1", 2),
        ("ENV A=1\nCOPY src /src\nRUN --mount=type=bind,target=/c make\nLABEL x=1", "1", 3),
        ("USER me\nCOPY src /src\nRUN make\nLABEL x=1", "1", 3),
    ] {
        let found = keys(text, content);
        let shared = base.iter().zip(&found).take_while(|(a, b)| a == b).count();
        assert_eq!(shared, same, "{text}");
    }
}

#[test]
fn proxies_are_of_no_account() {
    let key = |args: &[(&str, &str)]| {
        let file = Dockerfile::parse("FROM a\nARG X\nRUN x").unwrap();
        let args = args.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let build = Build::new(file, BuildRequest { target: None, args }).unwrap();
        let plan = build.plan(|_| ImageConfig::default()).unwrap().pop().unwrap();
        plan.keys(CacheKey::of_base("x"), |_, _| Ok::<_, ()>(String::new())).unwrap().pop()
    };
    assert_eq!(key(&[]), key(&[("HTTP_PROXY", "http://p")]));
    assert_ne!(key(&[]), key(&[("X", "1")]));
}
