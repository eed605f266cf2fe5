//! Helpers and Dockerfiles of the kinds people write: what is planned for each.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeMap;

use dockerfile::{
    Action, Build, BuildRequest, Command, CopyStep, Dockerfile, Healthcheck, ImageConfig, Mount, Origin,
    RunStep, StagePlan, Start,
};

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn image() -> ImageConfig {
    ImageConfig {
        env: pairs(&[("PATH", "/bin"), ("LANG", "C.UTF-8")]),
        cmd: Some(vec!["bash".to_owned()]),
        ..ImageConfig::default()
    }
}

fn build(text: &str, target: Option<&str>, args: &[(&str, &str)]) -> Build {
    let file = Dockerfile::parse(text).unwrap();
    let args: BTreeMap<_, _> = pairs(args).into_iter().collect();
    Build::new(file, BuildRequest { target: target.map(str::to_owned), args }).unwrap()
}

fn plan(text: &str, args: &[(&str, &str)]) -> Vec<StagePlan> {
    build(text, None, args).plan(|_| image()).unwrap()
}

fn last(text: &str) -> StagePlan {
    plan(text, &[]).pop().unwrap()
}

fn runs(plan: &StagePlan) -> Vec<&RunStep> {
    plan.steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::Run(run) => Some(run),
            _ => None,
        })
        .collect()
}

fn copies(plan: &StagePlan) -> Vec<&CopyStep> {
    plan.steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::Copy(copy) => Some(copy),
            _ => None,
        })
        .collect()
}

fn variable<'a>(run: &'a RunStep, name: &str) -> Option<&'a str> {
    run.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}

#[test]
fn a_node_application() {
    let plan = last(
        r#"# syntax=docker/dockerfile:1
FROM node:22-slim
ENV NODE_ENV=production
WORKDIR /app
COPY package.json package-lock.json* ./
RUN npm ci --omit=dev && npm cache clean --force
COPY --chown=node:node . .
USER node
EXPOSE 3000
HEALTHCHECK --interval=10s --timeout=3s --retries=5 CMD curl -f http://localhost:3000/ || exit 1
CMD ["node", "server.js"]
"#,
    );
    assert_eq!(plan.start, Start::Image("node:22-slim".to_owned()));
    let copies = copies(&plan);
    assert_eq!(copies[0].sources, ["package.json", "package-lock.json*"]);
    assert_eq!(copies[0].destination, "/app/");
    assert_eq!((&*copies[1].sources[0], copies[1].owner.as_deref()), ("", Some("node:node")));
    let run = runs(&plan)[0];
    assert_eq!(run.argv, ["/bin/sh", "-c", "npm ci --omit=dev && npm cache clean --force"]);
    assert_eq!((&*run.working_dir, &*run.user), ("/app", ""));
    assert_eq!(variable(run, "NODE_ENV"), Some("production"));
    assert_eq!(variable(run, "LANG"), Some("C.UTF-8"));
    let config = &plan.config;
    assert_eq!(config.start_command(), ["node", "server.js"]);
    assert_eq!((&*config.user, &*config.working_dir), ("node", "/app"));
    assert_eq!(config.ports.iter().collect::<Vec<_>>(), ["3000/tcp"]);
    let Some(Healthcheck::Probe(probe)) = &config.healthcheck else { panic!("{config:?}") };
    assert_eq!(probe.command, Command::Shell("curl -f http://localhost:3000/ || exit 1".to_owned()));
    assert_eq!((probe.interval.unwrap().as_secs(), probe.retries), (10, Some(5)));
    let lines: Vec<usize> = plan.steps.iter().map(|step| step.line).collect();
    assert_eq!(lines, [3, 4, 5, 6, 7, 8, 9, 10, 11]);
}

#[test]
fn a_python_application_with_system_packages() {
    let plan = last(
        r#"ARG VERSION=3.12
FROM python:${VERSION}-slim AS base
# tools first, they seldom change
RUN apt-get update && apt-get install -y --no-install-recommends \
      build-essential \
      # for psycopg
      libpq-dev \
 && rm -rf /var/lib/apt/lists/*
ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR="yes please" \
    PATH="/opt/venv/bin:$PATH"
RUN --mount=type=cache,target=/root/.cache/pip,sharing=locked \
    --mount=type=bind,source=requirements.txt,target=/tmp/requirements.txt \
    pip install -r /tmp/requirements.txt
ENTRYPOINT ["gunicorn"]
CMD ["app:app", "-b", "0.0.0.0:8000"]
"#,
    );
    assert_eq!(plan.start, Start::Image("python:3.12-slim".to_owned()));
    let runs = runs(&plan);
    let script = &runs[0].argv[2];
    assert!(script.contains("build-essential") && script.contains("libpq-dev"), "{script}");
    assert!(!script.contains('#') && !script.contains('\\') && !script.contains('\n'), "{script}");
    assert_eq!(plan.config.variable("PATH"), Some("/opt/venv/bin:/bin"));
    assert_eq!(plan.config.variable("PIP_NO_CACHE_DIR"), Some("yes please"));
    let [
        Mount::Cache { id, target, writable: true, .. },
        Mount::Bind { origin, source, writable: false, .. },
    ] = &runs[1].mounts[..]
    else {
        panic!("{:?}", runs[1].mounts)
    };
    assert_eq!((&**id, &**target), ("/root/.cache/pip", "/root/.cache/pip"));
    assert_eq!((origin, &**source), (&Origin::Context, "requirements.txt"));
    assert_eq!(runs[1].argv[2], "pip install -r /tmp/requirements.txt");
    assert_eq!(plan.config.start_command(), ["gunicorn", "app:app", "-b", "0.0.0.0:8000"]);
    assert!(
        plan.steps[0].text.starts_with("RUN apt-get update && apt-get install"),
        "{}",
        plan.steps[0].text
    );
}

const GO: &str = r#"FROM --platform=$BUILDPLATFORM golang:1.24 AS deps
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download

FROM deps AS build
ARG TARGETOS TARGETARCH
ARG LDFLAGS="-s -w"
COPY . .
RUN GOOS=$TARGETOS go build -ldflags "$LDFLAGS" -o /out/app ./cmd/app

FROM deps AS test
COPY . .
RUN go test ./...

FROM scratch
COPY --from=build --chmod=0755 /out/app /app
COPY --from=alpine:3.20 /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
ENTRYPOINT ["/app"]
"#;

#[test]
fn only_the_stages_that_are_needed() {
    let whole = build(GO, None, &[]);
    let names: Vec<_> = whole.stages().iter().map(|stage| stage.name.as_deref().unwrap_or("-")).collect();
    assert_eq!(names, ["deps", "build", "-"]);
    assert_eq!(whole.images().into_iter().collect::<Vec<_>>(), ["alpine:3.20", "golang:1.24"]);
    let plans = whole.plan(|_| image()).unwrap();
    assert_eq!(plans[1].start, Start::Stage(0));
    assert_eq!(plans[1].config.working_dir, "/src");
    let run = runs(&plans[1])[0];
    assert_eq!((variable(run, "TARGETARCH"), variable(run, "LDFLAGS")), (Some("amd64"), Some("-s -w")));
    assert_eq!((plans[2].start.clone(), plans[2].config.variable("LANG")), (Start::Scratch, None));
    let copied = copies(&plans[2]);
    assert_eq!((&copied[0].origin, copied[0].mode), (&Origin::Stage(1), Some(0o755)));
    assert_eq!(copied[1].origin, Origin::Image("alpine:3.20".to_owned()));
    assert_eq!(plans[2].config.start_command(), ["/app"]);

    for (target, expected) in
        [("test", &["deps", "test"][..]), ("TEST", &["deps", "test"]), ("0", &["deps"]), ("deps", &["deps"])]
    {
        let stages = build(GO, Some(target), &[]);
        let names: Vec<_> = stages.stages().iter().filter_map(|stage| stage.name.as_deref()).collect();
        assert_eq!(names, expected, "{target}");
    }
}

#[test]
fn inline_files() {
    let plan = last(
        "FROM debian\nARG who=world\nRUN <<EOF\nset -e\necho $who \\\n  again\nEOF\n\
         RUN <<PY\n#!/usr/bin/env python3\nprint(1)\nPY\n\
         RUN python3 - <<A && cat <<-B\n1\nA\n\t2\n\tB\n\
         COPY <<one.txt <<\"two.txt\" /x/\nhello $who \"quoted\" \\$kept\none.txt\nhello $who\ntwo.txt\n\
         COPY <<-EOF /etc/motd\n\t\ttabs\n\tEOF\nSHELL [\"/bin/bash\", \"-ec\"]\nRUN <<EOF\nlast\nEOF\n",
    );
    let runs = runs(&plan);
    assert_eq!(runs[0].argv, ["/bin/sh", "-c", "set -e\necho $who \\\n  again\n"]);
    let script = runs[1].script.as_ref().unwrap();
    assert_eq!((&*script.name, &*script.content), ("PY", "#!/usr/bin/env python3\nprint(1)\n"));
    assert!(runs[1].argv.is_empty());
    assert_eq!(runs[2].argv[2], "python3 - <<A && cat <<-B\n1\nA\n\t2\nB\n");
    assert_eq!(runs[3].argv, ["/bin/bash", "-ec", "last\n"]);
    let copies = copies(&plan);
    let inline: Vec<_> =
        copies[0].inline.iter().map(|file| (file.name.as_str(), file.content.as_str())).collect();
    assert_eq!(inline, [("one.txt", "hello world \"quoted\" $kept\n"), ("two.txt", "hello $who\n")]);
    assert_eq!((&*copies[1].inline[0].content, &*copies[1].destination), ("tabs\n", "/etc/motd"));
}

#[test]
fn arguments_and_variables() {
    let text = "ARG A=global\nARG B=${A}-b\nFROM img:$B\nARG A\nARG B=own\nARG C\nARG D=${A}+${B}\n\
                ENV E=$D F=${C:-none}\nENV A=env G=$A\nENV old form with $A\nARG HTTP_PROXY\nRUN x\n\
                FROM 0x\nRUN y";
    let text = text.replace("FROM 0x", "FROM img\nARG A");
    let plans = plan_all(&text, &[("C", "given"), ("https_proxy", "http://p")]);
    assert_eq!(plans[0].start, Start::Image("img:global-b".to_owned()));
    let run = runs(&plans[0])[0];
    for (name, value) in [
        ("A", Some("env")),
        ("B", Some("own")),
        ("C", Some("given")),
        ("D", Some("global+own")),
        ("E", Some("global+own")),
        ("F", Some("given")),
        ("G", Some("global")),
        ("old", Some("form with env")),
        ("HTTP_PROXY", None),
    ] {
        assert_eq!(variable(run, name), value, "{name}");
    }
    assert_eq!(run.proxy, pairs(&[("https_proxy", "http://p")]));
    assert_eq!(plans[0].config.variable("D"), None, "arguments are not in the image");
    assert_eq!(plans[0].config.variable("E"), Some("global+own"));
    let run = runs(&plans[1])[0];
    assert_eq!((variable(run, "A"), variable(run, "B")), (Some("global"), None));
}

/// Every stage by itself, whether the last needs it or not.
fn plan_all(text: &str, args: &[(&str, &str)]) -> Vec<StagePlan> {
    let count = text.lines().filter(|line| line.starts_with("FROM")).count();
    (0..count)
        .map(|at| build(text, Some(&at.to_string()), args).plan(|_| image()).unwrap().pop().unwrap())
        .collect()
}

#[test]
fn stages_inherit_arguments() {
    let plan = last("FROM a AS one\nARG X=1\nENV Y=2\nFROM one\nRUN z");
    let run = runs(&plan)[0];
    assert_eq!((variable(run, "X"), variable(run, "Y")), (Some("1"), Some("2")));
}

#[test]
fn directories_accumulate_and_are_made() {
    let plan = last(
        "FROM a\nWORKDIR app\nUSER 10:20\nWORKDIR ./b/../c\nENV D=d\nWORKDIR \"$D e\"\nRUN x\nWORKDIR /",
    );
    let made: Vec<_> = plan
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::MakeDirectory { path, user } => Some((path.as_str(), user.as_str())),
            _ => None,
        })
        .collect();
    assert_eq!(made, [("/app", ""), ("/app/c", "10:20"), ("/app/c/d e", "10:20")]);
    assert_eq!(runs(&plan)[0].working_dir, "/app/c/d e");
    assert_eq!(plan.config.working_dir, "/");
}

#[test]
fn how_to_run_it() {
    for (text, expected) in [
        ("CMD echo $HOME", &["/bin/sh", "-c", "echo $HOME"][..]),
        ("ENTRYPOINT [\"e\"]", &["e"]),
        ("CMD [\"c\"]\nENTRYPOINT [\"e\"]", &["e", "c"]),
        ("ENTRYPOINT [\"e\"]\nCMD [\"c\"]\nCMD [\"d\"]", &["e", "d"]),
        ("SHELL [\"bash\", \"-lc\"]\nENTRYPOINT x", &["bash", "-lc", "x"]),
        ("CMD []", &[]),
        ("RUN true", &["bash"]),
    ] {
        let plan = last(&format!("FROM a\n{text}"));
        assert_eq!(plan.config.start_command(), expected, "{text}");
    }
    let config = last(
        "FROM a\nLABEL a=1 \"b c\"='2 3'\nLABEL old value here\nSTOPSIGNAL SIGINT\nVOLUME /data /more\n\
         VOLUME [\"/x y\"]\nENV P=9000-9002\nEXPOSE 80 53/udp $P/tcp\nHEALTHCHECK NONE",
    )
    .config;
    let labels: Vec<_> = config.labels.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(labels, [("a", "1"), ("b c", "2 3"), ("old", "value here")]);
    assert_eq!(config.stop_signal.as_deref(), Some("SIGINT"));
    assert_eq!(config.volumes.iter().collect::<Vec<_>>(), ["/data", "/more", "/x y"]);
    let ports: Vec<_> = config.ports.iter().map(String::as_str).collect();
    assert_eq!(ports, ["53/udp", "80/tcp", "9000/tcp", "9001/tcp", "9002/tcp"]);
    assert_eq!(config.healthcheck, Some(Healthcheck::Disabled));
}

#[test]
fn notes_say_what_has_no_effect() {
    let text = "# syntax=x\nFROM a\nMAINTAINER me\nVOLUME /d\nCOPY --link a b";
    let file = Dockerfile::parse(text).unwrap();
    assert_eq!(file.notes().iter().map(|note| note.line).collect::<Vec<_>>(), [1, 3, 4, 5]);
    let args = BTreeMap::from([("TYPO".to_owned(), String::new()), ("NO_PROXY".to_owned(), String::new())]);
    let build = Build::new(file, BuildRequest { target: None, args }).unwrap();
    assert_eq!(build.notes().len(), 1);
    assert!(build.notes()[0].to_string().contains("TYPO"));
}

#[test]
fn windows_style_escape_and_line_ends() {
    let plan = last("# escape=`\r\nFROM a\r\nRUN echo one `\r\n  two\r\nCOPY a b\r\n");
    assert_eq!(runs(&plan)[0].argv[2], "echo one   two");
    assert_eq!(copies(&plan)[0].destination, "/b");
}

#[test]
fn mounts() {
    let plan = last(
        "FROM a AS one\nFROM a\nWORKDIR /w\nENV T=tmp\n\
         RUN --mount=type=tmpfs,target=/$T,size=64m --mount=from=one,src=/x,dst=y,rw --mount=type=cache,id=z,\
target=/z,uid=1,gid=2,mode=0700,ro=true true",
    );
    assert_eq!(
        runs(&plan)[0].mounts,
        [
            Mount::Tmpfs { target: "/tmp".to_owned(), size_bytes: Some(64 << 20) },
            Mount::Bind {
                origin: Origin::Stage(0),
                source: "x".to_owned(),
                target: "/w/y".to_owned(),
                writable: true
            },
            Mount::Cache {
                id: "z".to_owned(),
                target: "/z".to_owned(),
                writable: false,
                mode: 0o700,
                uid: 1,
                gid: 2
            },
        ]
    );
    assert_eq!(plan.index, 1);
}

#[test]
fn adding_archives() {
    let plan = last("FROM a\nADD x.tar.gz /opt\nADD --unpack=false x.tar.gz /opt\nCOPY x.tar.gz /opt");
    assert_eq!(copies(&plan).iter().map(|copy| copy.extracts).collect::<Vec<_>>(), [true, false, false]);
}

#[test]
fn whose_command_it_is() {
    for (text, expected) in [
        ("FROM a\nRUN true", false),
        ("FROM a\nCMD x", true),
        ("FROM a\nENTRYPOINT [\"x\"]", true),
        ("FROM a AS b\nCMD x\nFROM b\nRUN true", true),
        ("FROM a AS b\nCMD x\nFROM a\nRUN true", false),
    ] {
        assert_eq!(last(text).sets_command, expected, "{text}");
    }
}
