//! What to build: a target of a Dockerfile, the arguments it is given, and the stages it needs.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{DockerfileError, Note, Problem};
use crate::expand::Reading;
use crate::image_config::ImageConfig;
use crate::instruction::{Instruction, Kind};
use crate::plan::{Inherited, Origin, PROXY_ARGUMENTS, StagePlan, plan_stage};
use crate::stages::Dockerfile;

/// The one platform that guests have.
const PLATFORM: &str = "linux/amd64";

/// What is asked for.
#[derive(Debug, Clone, Default)]
pub struct BuildRequest {
    /// Name or number of the stage to build; the last one when not said.
    pub target: Option<String>,
    /// Values for `ARG`s.
    pub args: BTreeMap<String, String>,
}

/// Where a stage starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Start {
    /// With nothing.
    Scratch,
    /// With the outcome of an earlier stage.
    Stage(usize),
    /// With an image, by reference.
    Image(String),
}

/// A stage that has to be built.
#[derive(Debug, Clone)]
pub struct StageOutline {
    /// Its number in the file, from 0.
    pub index: usize,
    /// Its name, in small letters.
    pub name: Option<String>,
    /// The line of its `FROM`.
    pub line: usize,
    /// Where it starts.
    pub start: Start,
}

/// A Dockerfile with a target and arguments: which stages are needed, and from which images.
#[derive(Debug, Clone)]
pub struct Build {
    pub(crate) file: Dockerfile,
    pub(crate) args: BTreeMap<String, String>,
    /// Values of `ARG`s before the first `FROM`, and of those that describe the platform.
    pub(crate) globals: BTreeMap<String, String>,
    stages: Vec<StageOutline>,
    notes: Vec<Note>,
}

impl Build {
    /// Finds out what has to be built.
    pub fn new(file: Dockerfile, request: BuildRequest) -> Result<Self, DockerfileError> {
        let target = target(&file, request.target.as_deref())?;
        let mut globals = platform_arguments();
        let name = file.stages[target].from.name.clone();
        globals.insert("TARGETSTAGE".to_owned(), name.unwrap_or_else(|| "default".to_owned()));
        for instruction in &file.arguments {
            let Kind::Arg(arguments) = &instruction.kind else { continue };
            for (name, default) in arguments {
                let value = match (request.args.get(name), default) {
                    (Some(value), _) => value.clone(),
                    (None, Some(default)) => {
                        let read = Reading::words(file.escape);
                        read.expand(default, &|name| globals.get(name).cloned())
                            .map_err(|problem| problem.at(instruction.line))?
                    }
                    (None, None) => continue,
                };
                globals.insert(name.clone(), value);
            }
        }
        let notes = unused(&file, &request.args);
        let mut build = Self { file, args: request.args, globals, stages: Vec::new(), notes };
        build.stages = build.needed(target)?;
        Ok(build)
    }

    /// The stages to build, in order; the last one is the target.
    pub fn stages(&self) -> &[StageOutline] {
        &self.stages
    }

    /// Arguments that no `ARG` asks for, which is often a mistyped name.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// References of all images that are needed, to start from or to copy from.
    pub fn images(&self) -> BTreeSet<&str> {
        let starts = self.stages.iter().filter_map(|stage| match &stage.start {
            Start::Image(reference) => Some(reference.as_str()),
            _ => None,
        });
        let copied = self.stages.iter().flat_map(|stage| {
            let froms = self.file.stages[stage.index].instructions.iter().flat_map(froms);
            froms.filter(|from| matches!(self.origin(from, stage.index), Ok(Origin::Image(_))))
        });
        starts.chain(copied).collect()
    }

    /// Plans all stages. `config_of` gives the config of each image that a stage starts from, as named in [`Build::stages`].
    ///
    /// An image with `ONBUILD` instructions is refused: it expects to run them here.
    pub fn plan(
        &self,
        mut config_of: impl FnMut(&str) -> ImageConfig,
    ) -> Result<Vec<StagePlan>, DockerfileError> {
        let mut plans: Vec<StagePlan> = Vec::new();
        for outline in &self.stages {
            let plan = match &outline.start {
                Start::Scratch => plan_stage(self, outline, Inherited::default()),
                Start::Image(reference) => {
                    let config = config_of(reference);
                    if !config.on_build.is_empty() {
                        let problem =
                            format!("image `{reference}` has ONBUILD instructions, which are not run");
                        let hint = "use the image it was made from and write those instructions here";
                        return Err(DockerfileError::new(outline.line, problem).hint(hint));
                    }
                    plan_stage(self, outline, Inherited { config, ..Inherited::default() })
                }
                Start::Stage(index) => {
                    let base = plans.iter().find(|plan| plan.index == *index);
                    let inherited = base.map(|plan| Inherited {
                        config: plan.config.clone(),
                        args: plan.args.clone(),
                        sets_command: plan.sets_command,
                    });
                    plan_stage(self, outline, inherited.unwrap_or_default())
                }
            };
            plans.push(plan?);
        }
        Ok(plans)
    }

    /// What `from` names, in stage `index`.
    pub(crate) fn origin(&self, from: &str, index: usize) -> Result<Origin, Problem> {
        let name = from.to_ascii_lowercase();
        let stages = &self.file.stages;
        let number = from.parse::<usize>().ok();
        let named = stages.iter().position(|stage| stage.from.name.as_deref() == Some(&name));
        match number.or(named) {
            Some(found) if found < index => Ok(Origin::Stage(found)),
            Some(found) if found >= stages.len() => Err(Problem::new(format!("there is no stage {found}"))
                .hint("stages are counted from 0; better to name them with `FROM … AS name`")),
            Some(found) if found == index => Err(Problem::new(format!("`{from}` is this stage itself"))),
            Some(_) => Err(Problem::new(format!("stage `{from}` comes later in the file"))
                .hint("move it before the stage that uses it")),
            None if from.is_empty() || name == "scratch" => {
                Err(Problem::new(format!("nothing can be copied from `{from}`")))
            }
            None => Ok(Origin::Image(from.to_owned())),
        }
    }

    /// The stages that `target` needs, itself last.
    fn needed(&self, target: usize) -> Result<Vec<StageOutline>, DockerfileError> {
        let mut wanted = BTreeSet::from([target]);
        let mut outlines = Vec::new();
        while let Some(index) = wanted.pop_last() {
            let stage = &self.file.stages[index];
            let at = |problem: Problem| problem.at(stage.line);
            let start = self.start(index).map_err(at)?;
            if let Start::Stage(base) = start {
                wanted.insert(base);
            }
            for instruction in &stage.instructions {
                for from in froms(instruction) {
                    let origin = self.origin(from, index).map_err(|problem| problem.at(instruction.line))?;
                    if let Origin::Stage(other) = origin {
                        wanted.insert(other);
                    }
                }
            }
            outlines.push(StageOutline { index, name: stage.from.name.clone(), line: stage.line, start });
        }
        outlines.reverse();
        Ok(outlines)
    }

    fn start(&self, index: usize) -> Result<Start, Problem> {
        let from = &self.file.stages[index].from;
        let expand = |text: &str| {
            Reading::words(self.file.escape).expand(text, &|name| self.globals.get(name).cloned())
        };
        if let Some(platform) = &from.platform {
            check_platform(&expand(platform)?)?;
        }
        let base = expand(&from.base)?;
        if base.trim().is_empty() || base.contains(char::is_whitespace) {
            let problem = format!("`{}` does not name an image with its variables put in", from.base);
            let hint = "declare the variable before the first FROM, as `ARG name=default`";
            return Err(Problem::new(problem).hint(hint));
        }
        let name = base.to_ascii_lowercase();
        let earlier = &self.file.stages[..index];
        Ok(match earlier.iter().position(|stage| stage.from.name.as_deref() == Some(&name)) {
            Some(stage) => Start::Stage(stage),
            None if base == "scratch" => Start::Scratch,
            None => Start::Image(base),
        })
    }
}

/// Stages and images that an instruction copies or mounts from.
fn froms(instruction: &Instruction) -> impl Iterator<Item = &str> {
    let (copied, mounts) = match &instruction.kind {
        Kind::Copy(copy) => (copy.from.as_deref(), &[][..]),
        Kind::Run(run) => (None, run.mounts.as_slice()),
        _ => (None, &[][..]),
    };
    copied.into_iter().chain(mounts.iter().filter_map(|mount| mount.from.as_deref()))
}

fn target(file: &Dockerfile, wanted: Option<&str>) -> Result<usize, DockerfileError> {
    let last = file.stages.len() - 1;
    let Some(wanted) = wanted else { return Ok(last) };
    let name = wanted.to_ascii_lowercase();
    let named = file.stages.iter().position(|stage| stage.from.name.as_deref() == Some(&name));
    let number = wanted.parse().ok().filter(|number| *number <= last);
    named.or(number).ok_or_else(|| {
        let names: Vec<&str> = file.stage_names().collect();
        let error = DockerfileError::new(1, format!("there is no stage `{wanted}` to build"));
        match names.is_empty() {
            true => error.hint("give a stage a name with `FROM … AS name`"),
            false => error.hint(format!("stages are: {}", names.join(", "))),
        }
    })
}

fn check_platform(platform: &str) -> Result<(), Problem> {
    match platform.to_ascii_lowercase().as_str() {
        "linux/amd64" | "linux/x86_64" | "linux/x86-64" | "linux/amd64/v1" => Ok(()),
        _ => Err(Problem::new(format!("guests are {PLATFORM}, so `{platform}` cannot be built"))
            .hint("remove `--platform`, or use $BUILDPLATFORM or $TARGETPLATFORM")),
    }
}

fn platform_arguments() -> BTreeMap<String, String> {
    let mut arguments = BTreeMap::new();
    for side in ["BUILD", "TARGET"] {
        for (part, value) in [("PLATFORM", PLATFORM), ("OS", "linux"), ("ARCH", "amd64"), ("VARIANT", "")] {
            arguments.insert(format!("{side}{part}"), value.to_owned());
        }
    }
    arguments
}

fn unused(file: &Dockerfile, args: &BTreeMap<String, String>) -> Vec<Note> {
    let stages = file.stages.iter().flat_map(|stage| &stage.instructions);
    let declared: BTreeSet<&str> = file
        .arguments
        .iter()
        .chain(stages)
        .filter_map(|instruction| match &instruction.kind {
            Kind::Arg(arguments) => Some(arguments.iter().map(|(name, _)| name.as_str())),
            _ => None,
        })
        .flatten()
        .collect();
    args.keys()
        .filter(|name| !declared.contains(name.as_str()) && !PROXY_ARGUMENTS.contains(&name.as_str()))
        .map(|name| Note::new(1, format!("no ARG asks for the argument `{name}`")))
        .collect()
}
