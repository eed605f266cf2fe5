//! Whatever the text, an answer and never a panic; and what was written comes back.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use dockerfile::{
    Action, Build, BuildRequest, Destination, Dockerfile, Entry, IgnoreFile, ImageConfig, Listing,
};
use proptest::prelude::*;

/// Pieces that real files are made of, so that random texts get further than the first word.
fn piece() -> impl Strategy<Value = String> {
    let pieces = [
        "FROM ",
        "RUN ",
        "COPY ",
        "ADD ",
        "ENV ",
        "ARG ",
        "WORKDIR ",
        "HEALTHCHECK ",
        "EXPOSE ",
        "LABEL ",
        "SHELL ",
        "VOLUME ",
        "USER ",
        "CMD ",
        "ENTRYPOINT ",
        "--from=",
        "--mount=type=",
        "cache,",
        "bind,",
        "target=",
        "--chmod=",
        "--chown=",
        "--interval=",
        "AS ",
        "a",
        "b=",
        "$a",
        "${a",
        ":-",
        "}",
        "\"",
        "'",
        "\\",
        "\n",
        "\\\n",
        "\r\n",
        " ",
        "\t",
        "#",
        "<<EOF",
        "<<-",
        "EOF\n",
        "[\"x\", ",
        "]",
        "/",
        "..",
        "*",
        "[",
        "**",
        "0",
        "80",
        "-",
        "é",
        "\u{2028}",
        "scratch",
        "# escape=`\n",
        "`",
        ",",
    ];
    prop::sample::select(pieces.to_vec()).prop_map(str::to_owned)
}

fn everything(text: &str) {
    let Ok(file) = Dockerfile::parse(text) else { return };
    let Ok(build) = Build::new(file, BuildRequest::default()) else { return };
    let _ = build.images();
    let Ok(plans) = build.plan(|_| ImageConfig::default()) else { return };
    let mut tree = Listing::new();
    for path in ["a/b", "b", "c/d/e"] {
        tree.insert(path, Entry::File).unwrap();
    }
    for step in plans.iter().flat_map(|plan| &plan.steps) {
        if let Action::Copy(copy) = &step.action {
            for there in [Destination::Absent, Destination::Directory, Destination::File] {
                let _ = copy.select(&tree, there);
            }
        }
    }
}

/// A value as somebody would write it down: quoted in one of the ways there are.
fn written(value: &str, quoting: u8) -> String {
    match quoting % 3 {
        0 => format!("'{}'", value.replace('\'', "'\"'\"'")),
        1 => format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "\\$")),
        _ => value.chars().flat_map(|ch| ['\\', ch]).collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text(text in "(?s).{0,200}") {
        everything(&text);
        let _ = IgnoreFile::parse(&text).map(|ignore| ignore.ignores(&text));
    }

    #[test]
    fn any_pieces(pieces in prop::collection::vec(piece(), 0..60)) {
        let text = pieces.concat();
        everything(&text);
        everything(&format!("FROM a\n{text}"));
        let _ = IgnoreFile::parse(&text).map(|ignore| ignore.ignores("a/b/c"));
    }

    #[test]
    fn variables_come_back(
        values in prop::collection::vec(("[a-z]{1,8}", "[^\\r\\n\\x00]{1,30}", any::<u8>()), 1..6)
    ) {
        // An escape at the end of a line continues it, so something stands behind.
        let line: Vec<String> =
            values.iter().map(|(name, value, quoting)| format!("{name}={}", written(value, *quoting))).collect();
        let text = format!("FROM a\nENV {} end=1\n", line.join(" "));
        let build = Build::new(Dockerfile::parse(&text).unwrap(), BuildRequest::default()).unwrap();
        let plan = build.plan(|_| ImageConfig::default()).unwrap().pop().unwrap();
        for (at, (name, value, _)) in values.iter().enumerate() {
            if !values[at + 1..].iter().any(|(later, ..)| later == name) && name != "end" {
                prop_assert_eq!(plan.config.variable(name), Some(value.as_str()), "{}", text);
            }
        }
    }

    #[test]
    fn commands_come_back(argv in prop::collection::vec("[^\\r\\n\\x00]{0,20}", 1..6)) {
        let text = format!("FROM a\nRUN {}\n", serde_json::to_string(&argv).unwrap());
        let build = Build::new(Dockerfile::parse(&text).unwrap(), BuildRequest::default()).unwrap();
        let plan = build.plan(|_| ImageConfig::default()).unwrap().pop().unwrap();
        let Action::Run(run) = &plan.steps[0].action else { panic!("{:?}", plan.steps) };
        prop_assert_eq!(&run.argv, &argv);
    }

    #[test]
    fn inline_files_come_back(content in "([a-zA-Z#$\\\\' \\t<]{0,20}\n){0,6}", name in "[A-Z]{3,6}") {
        prop_assume!(!content.lines().any(|line| line == name) && !content.starts_with("#!"));
        let text = format!("FROM a\nRUN <<{name}\n{content}{name}\nCOPY <<'{name}' /x\n{content}{name}\n");
        let build = Build::new(Dockerfile::parse(&text).unwrap(), BuildRequest::default()).unwrap();
        let plan = build.plan(|_| ImageConfig::default()).unwrap().pop().unwrap();
        let (Action::Run(run), Action::Copy(copy)) = (&plan.steps[0].action, &plan.steps[1].action) else {
            panic!("{:?}", plan.steps)
        };
        prop_assert_eq!(&run.argv[2], &content);
        prop_assert_eq!(&copy.inline[0].content, &content);
    }

    #[test]
    fn steps_know_their_lines(gaps in prop::collection::vec(0_usize..4, 1..20)) {
        let mut text = "FROM a\n".to_owned();
        let mut expected = Vec::new();
        for gap in gaps {
            text.push_str(&"# comment\n\n".repeat(gap));
            expected.push(text.lines().count() + 1);
            text.push_str("RUN a \\\n  # between\n  b\n");
        }
        let build = Build::new(Dockerfile::parse(&text).unwrap(), BuildRequest::default()).unwrap();
        let plan = build.plan(|_| ImageConfig::default()).unwrap().pop().unwrap();
        let lines: Vec<usize> = plan.steps.iter().map(|step| step.line).collect();
        prop_assert_eq!(lines, expected);
    }
}
