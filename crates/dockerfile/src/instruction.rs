//! Instructions, checked for their form. Variables are not put in yet: what they are is known only where a stage is planned.

mod copy;
mod from;
mod healthcheck;
mod mount;
mod pairs;

use crate::error::{DockerfileError, Note, Problem};
use crate::image_config::{Command, Healthcheck};
use crate::limits::TEXT_CHARS_MAX;
use crate::source::Statement;
use crate::words::{Parts, json_list, parts, words};

pub(crate) use copy::Copy;
pub(crate) use from::From;
pub(crate) use mount::{MountKind, RawMount};
pub(crate) use pairs::Pair;

/// An instruction and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction {
    pub(crate) line: usize,
    /// As written, on one line and not too long, for logs.
    pub(crate) text: String,
    pub(crate) kind: Kind,
}

/// What an instruction says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    From(From),
    Arg(Vec<(String, Option<String>)>),
    Env(Vec<Pair>),
    Label(Vec<Pair>),
    Run(Run),
    Copy(Copy),
    Workdir(String),
    User(String),
    Shell(Vec<String>),
    Entrypoint(Command),
    Cmd(Command),
    Expose(Vec<String>),
    Healthcheck(Healthcheck),
    StopSignal(String),
    Volume(Vec<String>),
    /// `MAINTAINER`: of no effect.
    Nothing,
}

/// `RUN`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) command: Command,
    /// A program that comes with the instruction, run instead of the command: its name and text.
    pub(crate) script: Option<(String, String)>,
    pub(crate) mounts: Vec<RawMount>,
}

impl Instruction {
    pub(crate) fn parse(
        statement: &Statement,
        escape: char,
        notes: &mut Vec<Note>,
    ) -> Result<Self, DockerfileError> {
        let parts = parts(&statement.text, escape);
        let text = shown(&statement.text);
        let line = statement.line;
        let kind = kind(parts, statement, escape, notes).map_err(|problem| problem.at(line))?;
        Ok(Self { line, text, kind })
    }
}

fn kind(
    mut parts: Parts,
    statement: &Statement,
    escape: char,
    notes: &mut Vec<Note>,
) -> Result<Kind, Problem> {
    let line = statement.line;
    let name = parts.name.clone();
    let rest = parts.rest.clone();
    if rest.is_empty() && KNOWN.contains(&name.as_str()) {
        return Err(Problem::new(format!("{name} needs at least one argument")));
    }
    let kind = match name.as_str() {
        "FROM" => Kind::From(From::parse(&mut parts)?),
        "ARG" => Kind::Arg(pairs::arguments(&rest, escape)?),
        "ENV" => Kind::Env(pairs::pairs("ENV", &rest, escape)?),
        "LABEL" => Kind::Label(pairs::pairs("LABEL", &rest, escape)?),
        "RUN" => Kind::Run(run(&mut parts, statement)?),
        "COPY" | "ADD" => Kind::Copy(Copy::parse(&mut parts, statement, notes)?),
        "WORKDIR" => Kind::Workdir(rest),
        "USER" => Kind::User(rest),
        "SHELL" => match json_list(&rest)? {
            Some(shell) if !shell.is_empty() => Kind::Shell(shell),
            _ => {
                let hint = "write it as `SHELL [\"/bin/bash\", \"-c\"]`";
                return Err(Problem::new("SHELL needs a list in JSON").hint(hint));
            }
        },
        "ENTRYPOINT" => Kind::Entrypoint(command(&rest)?),
        "CMD" => Kind::Cmd(command(&rest)?),
        "EXPOSE" => Kind::Expose(rest.split_whitespace().map(str::to_owned).collect()),
        "HEALTHCHECK" => Kind::Healthcheck(healthcheck::parse(&mut parts)?),
        "STOPSIGNAL" => Kind::StopSignal(rest),
        "VOLUME" => {
            notes.push(Note::new(line, "VOLUME is only noted: a sandbox keeps its whole disk"));
            Kind::Volume(match json_list(&rest)? {
                Some(list) => list,
                None => words(&rest, escape),
            })
        }
        "MAINTAINER" => {
            notes.push(Note::new(line, "MAINTAINER is ignored; `LABEL maintainer=…` is kept"));
            Kind::Nothing
        }
        "ONBUILD" => {
            let hint = "write the instruction into the Dockerfiles that start from this image";
            return Err(Problem::new("ONBUILD is not supported").hint(hint));
        }
        _ => return Err(unknown(&name)),
    };
    parts.flags.finish(&name)?;
    Ok(kind)
}

const KNOWN: [&str; 18] = [
    "ADD",
    "ARG",
    "CMD",
    "COPY",
    "ENTRYPOINT",
    "ENV",
    "EXPOSE",
    "FROM",
    "HEALTHCHECK",
    "LABEL",
    "MAINTAINER",
    "ONBUILD",
    "RUN",
    "SHELL",
    "STOPSIGNAL",
    "USER",
    "VOLUME",
    "WORKDIR",
];

fn unknown(name: &str) -> Problem {
    let shown: String = name.chars().take(40).collect();
    let problem = Problem::new(format!("`{shown}` is not an instruction"));
    let near = KNOWN.iter().find(|known| differ_by_one(known, name));
    match near {
        Some(near) => problem.hint(format!("did you mean {near}?")),
        None => problem.hint("if it continues the line before, end that line with `\\`"),
    }
}

/// Whether one letter is missing, too many, wrong, or changed places with its neighbour.
fn differ_by_one(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let front = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[front..], &b[front..]);
    let back = a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - back], &b[..b.len() - back]);
    match (a, b) {
        ([a0, a1], [b0, b1]) => a0 == b1 && a1 == b0,
        _ => a.len() <= 1 && b.len() <= 1,
    }
}

/// A list in JSON, or everything else as a text for the shell.
fn command(rest: &str) -> Result<Command, Problem> {
    Ok(match json_list(rest)? {
        Some(argv) => Command::Exec(argv),
        None => Command::Shell(rest.to_owned()),
    })
}

fn run(parts: &mut Parts, statement: &Statement) -> Result<Run, Problem> {
    let mounts =
        parts.flags.all("mount").iter().map(|text| RawMount::parse(text)).collect::<Result<_, _>>()?;
    match parts.flags.one("network")?.as_deref() {
        None | Some("default") => {}
        Some(other) => {
            let hint = "remove the flag; a build's network is that of its sandbox";
            return Err(Problem::new(format!("`--network={other}` is not supported")).hint(hint));
        }
    }
    match parts.flags.one("security")?.as_deref() {
        None | Some("sandbox") => {}
        Some(other) => {
            let hint = "remove the flag; steps run as root of a virtual machine already";
            return Err(Problem::new(format!("`--security={other}` is not supported")).hint(hint));
        }
    }
    let command = command(&parts.rest)?;
    let mut run = Run { command, script: None, mounts };
    let Some(first) = statement.heredocs.first() else {
        return match &run.command {
            Command::Exec(argv) if argv.is_empty() => Err(Problem::new("the list of RUN is empty")),
            _ => Ok(run),
        };
    };
    let Command::Shell(text) = &mut run.command else {
        return Err(Problem::new("RUN with a list in JSON cannot have an inline file"));
    };
    if crate::heredoc::start(text).is_some() {
        // Just an inline file: a program of its own when it names its interpreter, otherwise a script for the shell.
        let script = first.text();
        if script.starts_with("#!") {
            run.script = Some((first.name.clone(), script));
        } else {
            *text = script;
        }
    } else {
        // Part of something larger, which the shell understands as it stands.
        for heredoc in &statement.heredocs {
            text.push('\n');
            text.push_str(&heredoc.content);
            text.push_str(&heredoc.name);
        }
        text.push('\n');
    }
    Ok(run)
}

/// An instruction on one line, cut when it is long.
fn shown(text: &str) -> String {
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    match line.char_indices().nth(TEXT_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
