//! What is refused: at which line, with which words, and with a hint where it helps.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use dockerfile::{Build, BuildRequest, Dockerfile, DockerfileError, ImageConfig};

fn refused(text: &str) -> DockerfileError {
    let plan = Dockerfile::parse(text).and_then(|file| {
        Build::new(file, BuildRequest::default())?.plan(|_| ImageConfig::default()).map(drop)
    });
    match plan {
        Ok(()) => panic!("accepted: {text:?}"),
        Err(error) => error,
    }
}

#[test]
fn by_line_and_reason() {
    for (text, line, problem) in [
        ("", 1, "no FROM"),
        ("# only a comment\n", 1, "no FROM"),
        ("ARG a=1\n", 1, "no FROM"),
        ("RUN x\nFROM a", 1, "only ARG may stand before the first FROM"),
        ("FROM\n", 1, "FROM needs at least one argument"),
        ("FROM a b", 1, "FROM takes an image"),
        ("FROM a AS 1x", 1, "`1x` cannot be the name of a stage"),
        ("FROM a AS x\nFROM b AS X", 2, "the stage of line 1 is called `x` already"),
        ("FROM a\nFROM $nothing", 2, "does not name an image"),
        ("FROM --platform=linux/arm64 a", 1, "`linux/arm64` cannot be built"),
        ("FROM --plat=x a", 1, "FROM has no flag `--plat`"),
        ("FROM a\n\n\nRUM x", 4, "`RUM` is not an instruction"),
        ("FROM a\nRUN a \\\n  b\n  c", 4, "`C` is not an instruction"),
        ("FROM a\nRUN", 2, "RUN needs at least one argument"),
        ("FROM a\nRUN []", 2, "list of RUN is empty"),
        ("FROM a\nRUN [1]", 2, "only strings"),
        ("FROM a\nRUN <<EOF\nx", 2, "no line is just `EOF`"),
        ("FROM a\nRUN --mount=type=secret,id=x cat /run/secrets/x", 2, "type `secret`"),
        ("FROM a\nRUN --mount=type=ssh git", 2, "type `ssh`"),
        ("FROM a\nRUN --mount=type=magic x", 2, "no mounts of type `magic`"),
        ("FROM a\nRUN --mount=type=cache x", 2, "the mount has no target"),
        ("FROM a\nRUN --mount=type=cache,target=/c,from=b x", 2, "starts with the files of something else"),
        ("FROM a\nRUN --mount=type=bind,target=/c,size=1 x", 2, "has no `size`"),
        ("FROM a\nRUN --mount=type=tmpfs,target=/ x", 2, "over the whole file system"),
        ("FROM a\nRUN --mount=type=bind,source=../x,target=/y x", 2, "outside"),
        ("FROM a\nRUN --network=host x", 2, "`--network=host`"),
        ("FROM a\nRUN --security=insecure x", 2, "`--security=insecure`"),
        ("FROM a\nRUN --device=gpu x", 2, "no flag `--device`"),
        ("FROM a\nCOPY x", 2, "needs a source and a destination"),
        ("FROM a\nCOPY a b c", 2, "several sources need a directory"),
        ("FROM a\nCOPY ../x /", 2, "outside"),
        ("FROM a\nCOPY [z /", 2, "not a good pattern"),
        ("FROM a\nCOPY \"a b\" /x/", 2, "double quote is not closed"),
        ("FROM a\nCOPY $empty /x", 2, "a source is empty"),
        ("FROM a\nCOPY x <<EOF\nEOF\n", 2, "inline file cannot be a destination"),
        ("FROM a\nCOPY https://example.com/x /", 2, "downloaded"),
        ("FROM a\nADD https://example.com/x /", 2, "downloaded"),
        ("FROM a\nADD git@example.com:x.git /", 2, "downloaded"),
        ("FROM a\nADD --checksum=sha256:0 x /", 2, "`--checksum`"),
        ("FROM a\nADD --from=x y /", 2, "ADD has no flag `--from`"),
        ("FROM a\nCOPY --parents a /", 2, "`--parents`"),
        ("FROM a\nCOPY --exclude=b a /", 2, "`--exclude`"),
        ("FROM a\nCOPY --chmod=u+x a /", 2, "`--chmod=u+x` is not a mode"),
        ("FROM a\nCOPY --chmod=77777 a /", 2, "not a mode"),
        ("FROM a\nCOPY --chown=:x a /", 2, "not an owner"),
        ("FROM a\nCOPY --from=1 a /", 2, "there is no stage 1"),
        ("FROM a AS x\nCOPY --from=x a /", 2, "this stage itself"),
        ("FROM a\nCOPY --from=b a /\nFROM a AS b\nFROM 0\n COPY --from=0 x /", 2, "comes later"),
        ("FROM a\nCOPY --from=$x a /", 2, "takes no variables"),
        ("FROM a\nCOPY --from=scratch a /", 2, "nothing can be copied from"),
        ("FROM a\nENV x", 2, "ENV `x` has no value"),
        ("FROM a\nENV a=1 b", 2, "ENV `b` has no `=`"),
        ("FROM a\nENV =1", 2, "no name before `=`"),
        ("FROM a\nENV a=${b", 2, "`}` is missing"),
        ("FROM a\nENV a=${b^^}", 2, "not supported"),
        ("FROM a\nENV a='x", 2, "single quote is not closed"),
        ("ARG x=${y:?say-y}\nFROM a", 1, "y: say-y"),
        ("FROM a\nARG =1", 2, "does not begin with a name"),
        ("FROM a\nWORKDIR $x", 2, "WORKDIR is empty"),
        ("FROM a\nUSER a b", 2, "is not a user"),
        ("FROM a\nSHELL bash -c", 2, "SHELL needs a list"),
        ("FROM a\nEXPOSE eighty", 2, "EXPOSE `eighty` is not a port"),
        ("FROM a\nEXPOSE 90-80", 2, "is not a port"),
        ("FROM a\nEXPOSE 80/icmp", 2, "is not a port"),
        ("FROM a\nEXPOSE 8080:80", 2, "is not a port"),
        ("FROM a\nHEALTHCHECK curl x", 2, "no kind `curl`"),
        ("FROM a\nHEALTHCHECK CMD", 2, "needs a command"),
        ("FROM a\nHEALTHCHECK --interval=soon CMD x", 2, "`--interval=soon` is not a length of time"),
        ("FROM a\nHEALTHCHECK --retries=-1 CMD x", 2, "not a number"),
        ("FROM a\nHEALTHCHECK NONE x", 2, "takes nothing more"),
        ("FROM a\nSTOPSIGNAL now", 2, "is not a signal"),
        ("FROM a\nONBUILD RUN x", 2, "ONBUILD is not supported"),
        ("# escape=x\nFROM a", 1, "cannot be the escape"),
    ] {
        let error = refused(text);
        assert!(error.problem.contains(problem), "{text:?}: {error}");
        assert_eq!(error.line, line, "{text:?}: {error}");
    }
}

#[test]
fn hints_say_what_to_do() {
    for (text, hint) in [
        ("FROM a\nRUM x", "did you mean RUN?"),
        ("FROM a\nCOYP x y", "did you mean COPY?"),
        ("FROM a\n  && b", "end that line with `\\`"),
        ("FROM a\nADD https://x/y /", "RUN step"),
        ("FROM a\nCOPY --chmod=+x a /", "octal"),
        ("FROM a\nCOPY \"a b\" /x/", "COPY [\"source\", \"destination\"]"),
    ] {
        let error = refused(text);
        assert!(error.hint.as_ref().is_some_and(|found| found.contains(hint)), "{text:?}: {error:?}");
    }
}

#[test]
fn targets_that_are_not_there() {
    let file = Dockerfile::parse("FROM a AS one\nFROM b AS two").unwrap();
    let request = BuildRequest { target: Some("three".to_owned()), ..BuildRequest::default() };
    let error = Build::new(file, request).unwrap_err();
    assert!(error.problem.contains("`three`") && error.hint.unwrap().contains("one, two"));
}

#[test]
fn images_that_expect_to_run_instructions() {
    let build = Build::new(Dockerfile::parse("# x\nFROM a").unwrap(), BuildRequest::default()).unwrap();
    let config = ImageConfig { on_build: vec!["RUN x".to_owned()], ..ImageConfig::default() };
    let error = build.plan(|_| config.clone()).unwrap_err();
    assert!(error.line == 2 && error.problem.contains("ONBUILD"), "{error}");
}

#[test]
fn bounds() {
    let doubling = format!("FROM a\nENV A=xxxxxxxx\n{}", "ENV A=$A$A\n".repeat(40));
    assert!(refused(&doubling).problem.contains("longer than"));
    let quoted = format!("FROM a\nENV A={}\nENV B=\"{}\"", "x".repeat(60_000), "$A".repeat(100_000));
    assert!(refused(&quoted).problem.contains("longer than"));
    let many: String = (0..40).map(|at| format!("ENV A{at}={}\n", "x".repeat(60_000))).take(16).collect();
    let many = format!("FROM a\n{many}ENV B=${{A0}}\nENV C=$A0\nENV D=$A0");
    assert!(refused(&many).problem.contains("all variables together"));
    assert!(refused(&format!("FROM a\n{}", "RUN x\n".repeat(3_000))).problem.contains("instructions"));
    assert!(refused(&"FROM a\n".repeat(200)).problem.contains("stages"));
    assert!(refused(&"x".repeat(2 << 20)).problem.contains("larger"));
}
