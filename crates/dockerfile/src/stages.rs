//! A Dockerfile as its stages.

use crate::error::{DockerfileError, Note};
use crate::instruction::{From, Instruction, Kind};
use crate::limits::STAGES_MAX;
use crate::source;

/// A Dockerfile whose every instruction is well-formed and supported.
#[derive(Debug, Clone)]
pub struct Dockerfile {
    pub(crate) escape: char,
    /// `ARG`s before the first `FROM`.
    pub(crate) arguments: Vec<Instruction>,
    /// At least one.
    pub(crate) stages: Vec<Stage>,
    notes: Vec<Note>,
}

/// What follows a `FROM`.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    pub(crate) line: usize,
    pub(crate) from: From,
    pub(crate) instructions: Vec<Instruction>,
}

impl Dockerfile {
    /// Reads the text of a Dockerfile. Fails at the first instruction that is malformed or not supported, wherever it is.
    pub fn parse(text: &str) -> Result<Self, DockerfileError> {
        let source = source::read(text)?;
        let escape = source.escape;
        let mut file = Self { escape, arguments: Vec::new(), stages: Vec::new(), notes: source.notes };
        for statement in &source.statements {
            let instruction = Instruction::parse(statement, escape, &mut file.notes)?;
            let line = instruction.line;
            match (instruction.kind, file.stages.last_mut()) {
                (Kind::From(from), _) => {
                    file.check_stage(&from).map_err(|problem| DockerfileError::new(line, problem))?;
                    file.stages.push(Stage { line, from, instructions: Vec::new() });
                }
                (kind, Some(stage)) => {
                    stage.instructions.push(Instruction { line, text: instruction.text, kind });
                }
                (kind @ Kind::Arg(_), None) => {
                    file.arguments.push(Instruction { line, text: instruction.text, kind });
                }
                (_, None) => {
                    let problem = "only ARG may stand before the first FROM";
                    return Err(DockerfileError::new(line, problem).hint("begin with `FROM image`"));
                }
            }
        }
        if file.stages.is_empty() {
            let error = DockerfileError::new(1, "the file has no FROM");
            return Err(error.hint("begin with `FROM image`, or `FROM scratch` for an empty one"));
        }
        Ok(file)
    }

    fn check_stage(&self, from: &From) -> Result<(), String> {
        if self.stages.len() == STAGES_MAX {
            return Err(format!("there are more than {STAGES_MAX} stages"));
        }
        let taken =
            self.stages.iter().find(|stage| stage.from.name.is_some() && stage.from.name == from.name);
        match (taken, &from.name) {
            (Some(stage), Some(name)) => {
                Err(format!("the stage of line {} is called `{name}` already", stage.line))
            }
            _ => Ok(()),
        }
    }

    /// What was accepted without effect.
    pub fn notes(&self) -> &[Note] {
        &self.notes
    }

    /// Names of stages, in the order of the file; those without a name are left out.
    pub fn stage_names(&self) -> impl Iterator<Item = &str> {
        self.stages.iter().filter_map(|stage| stage.from.name.as_deref())
    }
}
