//! Goes through the instructions of a stage and keeps what is true at each: variables, directory, user, shell.

use std::collections::BTreeMap;

use super::{Action, InlineFile, Origin, PROXY_ARGUMENTS, RunStep, StagePlan, Step};
use crate::build::{Build, StageOutline};
use crate::error::{DockerfileError, Problem};
use crate::expand::Reading;
use crate::image_config::ImageConfig;
use crate::instruction::{Kind, Pair, Run};
use crate::limits::ENVIRONMENT_BYTES_MAX;
use crate::path;

/// What is true at an instruction.
pub(super) struct State<'a> {
    pub(super) build: &'a Build,
    pub(super) index: usize,
    pub(super) config: ImageConfig,
    /// Values of `ARG`s.
    args: BTreeMap<String, String>,
    /// What variables are in words and for commands: of `ENV` and `ARG`, whichever came last.
    scope: BTreeMap<String, String>,
    /// Whether this stage has had a `CMD`.
    pub(super) has_cmd: bool,
    /// Whether this stage or one it starts from has had a `CMD` or an `ENTRYPOINT`.
    pub(super) sets_command: bool,
}

/// What a stage starts with besides files.
#[derive(Default)]
pub(crate) struct Inherited {
    pub(crate) config: ImageConfig,
    pub(crate) args: BTreeMap<String, String>,
    pub(crate) sets_command: bool,
}

/// Plans the stage `outline`.
pub(crate) fn plan_stage(
    build: &Build,
    outline: &StageOutline,
    inherited: Inherited,
) -> Result<StagePlan, DockerfileError> {
    let Inherited { mut config, args, sets_command } = inherited;
    config.set_default_path();
    let mut scope: BTreeMap<String, String> = config.env.iter().cloned().collect();
    scope.extend(args.clone());
    let mut state = State { build, index: outline.index, config, args, scope, has_cmd: false, sets_command };
    let mut steps = Vec::new();
    for instruction in &build.file.stages[outline.index].instructions {
        let action = state.action(&instruction.kind).map_err(|problem| problem.at(instruction.line))?;
        steps.push(Step { line: instruction.line, text: instruction.text.clone(), action });
    }
    Ok(StagePlan {
        index: outline.index,
        name: outline.name.clone(),
        start: outline.start.clone(),
        steps,
        config: state.config,
        sets_command: state.sets_command,
        args: state.args,
    })
}

impl State<'_> {
    fn action(&mut self, kind: &Kind) -> Result<Action, Problem> {
        match kind {
            Kind::Arg(arguments) => self.declare(arguments)?,
            Kind::Env(pairs) => self.set(pairs)?,
            Kind::Workdir(text) => {
                let wanted = self.expand(text)?;
                if wanted.is_empty() {
                    return Err(Problem::new("WORKDIR is empty with its variables put in"));
                }
                self.config.working_dir = path::absolute(&self.config.working_dir, &wanted);
                let path = self.config.working_dir.clone();
                if path != "/" {
                    return Ok(Action::MakeDirectory { path, user: self.config.user.clone() });
                }
            }
            Kind::Copy(copy) => return self.copy(copy).map(Action::Copy),
            Kind::Run(run) => return self.run(run).map(Action::Run),
            other => self.configure(other)?,
        }
        Ok(Action::Configure)
    }

    /// A word with its quotes, escapes and variables.
    pub(super) fn expand(&self, word: &str) -> Result<String, Problem> {
        self.expand_as(Reading::words(self.build.file.escape), word)
    }

    pub(super) fn expand_as(&self, reading: Reading, text: &str) -> Result<String, Problem> {
        reading.expand(text, &|name| self.scope.get(name).cloned())
    }

    /// A text as words, variables put in first.
    pub(super) fn split(&self, text: &str) -> Result<Vec<String>, Problem> {
        let reading = Reading::words(self.build.file.escape);
        reading.split(text, &|name| self.scope.get(name).cloned())
    }

    pub(super) fn pairs(&self, pairs: &[Pair]) -> Result<Vec<(String, String)>, Problem> {
        let expanded = pairs.iter().map(|pair| {
            let name = self.expand(&pair.name)?;
            if name.is_empty() {
                return Err(Problem::new(format!("`{}` is empty with its variables put in", pair.name)));
            }
            Ok((name, self.expand(&pair.value)?))
        });
        expanded.collect()
    }

    fn declare(&mut self, arguments: &[(String, Option<String>)]) -> Result<(), Problem> {
        for (name, default) in arguments {
            let value = match (self.build.args.get(name), default) {
                (Some(given), _) => given.clone(),
                (None, Some(default)) => self.expand(default)?,
                (None, None) => match self.build.globals.get(name) {
                    Some(global) => global.clone(),
                    None => continue,
                },
            };
            self.args.insert(name.clone(), value.clone());
            self.scope.insert(name.clone(), value);
        }
        self.check_size()
    }

    /// All values are read before the first name is set: `ENV a=1 b=$a` gives `b` what `a` was before.
    fn set(&mut self, pairs: &[Pair]) -> Result<(), Problem> {
        for (name, value) in self.pairs(pairs)? {
            if name.contains('=') {
                return Err(Problem::new(format!("a variable cannot be called `{name}`")));
            }
            self.scope.insert(name.clone(), value.clone());
            match self.config.env.iter_mut().find(|(known, _)| *known == name) {
                Some((_, known)) => *known = value,
                None => self.config.env.push((name, value)),
            }
        }
        self.check_size()
    }

    fn check_size(&self) -> Result<(), Problem> {
        let bytes: usize = self.scope.iter().map(|(name, value)| name.len() + value.len()).sum();
        match bytes {
            0..=ENVIRONMENT_BYTES_MAX => Ok(()),
            _ => Err(Problem::new(format!(
                "all variables together are larger than {ENVIRONMENT_BYTES_MAX} bytes"
            ))),
        }
    }

    fn run(&self, run: &Run) -> Result<RunStep, Problem> {
        let mounts = run.mounts.iter().map(|mount| self.mount(mount)).collect::<Result<_, _>>()?;
        let script = run.script.clone().map(|(name, content)| InlineFile { name, content });
        let argv = match &script {
            Some(_) => Vec::new(),
            None => run.command.argv(&self.config.shell()),
        };
        let proxy = self.build.args.iter().filter(|(name, _)| PROXY_ARGUMENTS.contains(&name.as_str()));
        Ok(RunStep {
            argv,
            script,
            env: self.scope.clone().into_iter().collect(),
            proxy: proxy
                .filter(|(name, _)| !self.scope.contains_key(*name))
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            working_dir: path::absolute("/", &self.config.working_dir),
            user: self.config.user.clone(),
            mounts,
        })
    }

    pub(super) fn origin(&self, from: Option<&str>) -> Result<Origin, Problem> {
        match from {
            Some(from) => self.build.origin(from, self.index),
            None => Ok(Origin::Context),
        }
    }
}
