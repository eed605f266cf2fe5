//! A Dockerfile is followed: what it starts from is found, what was done before is found again, and the rest is done in machines.
//!
//! ```text
//! text ─► Build ─► bases (catalogue, registries) ─► plans ─► a key for each step ─► which layers are kept
//!      ─► the stages that something is missing of ─► a disk with what the host gives them ─► their steps, each kept
//! ```
//!
//! A step's key stands for everything the step depends on, so a layer that is kept under it is the outcome, whoever made it. When the
//! last step of the target is kept nothing is booted.

mod bases;
mod copy;
mod course;
mod machine;
mod run;
mod stage;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use dockerfile::{Action, Build, BuildRequest, Dockerfile, Origin, StagePlan};
use domain::MachineShape;
use node::Node;

use self::bases::Bases;
use self::course::Course;
use self::stage::Stage;
use crate::builder::Made;
use crate::context::{Context, ContextDisk};
use crate::error::BuildError;
use crate::layers::Layer;
use crate::staging::blocking;
use crate::stock::{Making, Stock};

/// Follows Dockerfiles.
#[derive(Clone, Copy)]
pub(crate) struct Recipe<'a> {
    pub(crate) node: &'a Node,
    pub(crate) stock: &'a Stock,
    pub(crate) shape: MachineShape,
    pub(crate) making: Making<'a>,
}

/// What is to be built.
pub(crate) struct Wanted<'a> {
    pub(crate) text: &'a str,
    pub(crate) context: &'a Path,
    pub(crate) args: BTreeMap<String, String>,
    pub(crate) target: Option<String>,
}

impl Recipe<'_> {
    /// Builds the target and gives the layer of its last step.
    pub(crate) async fn follow(&self, wanted: Wanted<'_>) -> Result<Made, BuildError> {
        let journal = self.making.journal;
        let file = Dockerfile::parse(wanted.text)?;
        let notes = file.notes().to_vec();
        let build = Build::new(file, BuildRequest { target: wanted.target, args: wanted.args })?;
        for note in notes.iter().chain(build.notes()) {
            journal.note(&format!("note: {note}"));
        }
        let bases = Bases::find(*self, &build).await?;
        let plans = build.plan(|reference| bases.config(reference))?;
        let context = Arc::new(self.context(wanted.context, &plans).await?);
        let mut stages = self.stages(plans, &bases, &context).await?;
        stage::mark_needed(&mut stages, &self.stock.layers);
        let context_disk = self.context_disk(&stages, &context).await?;

        let mut course = Course {
            recipe: *self,
            bases: &bases,
            context: &context,
            context_disk: context_disk.as_ref(),
            stages_shown: stages.len() > 1,
            done: BTreeMap::new(),
            images: BTreeMap::new(),
        };
        let mut target = None;
        for stage in stages {
            let (index, config, starts) =
                (stage.plan.index, stage.plan.config.clone(), stage.plan.sets_command);
            if let Some(layer) = course.stage(stage).await? {
                course.done.insert(index, Arc::new(layer));
            }
            target = Some((index, config, starts));
        }
        let made = target.and_then(|(index, config, starts)| {
            let layer: Layer = Arc::into_inner(course.done.remove(&index)?)?;
            Some(Made { layer, config, starts })
        });
        made.ok_or_else(|| BuildError::Source { problem: "the Dockerfile has no stage to build".to_owned() })
    }

    /// The context, if anything is read from it.
    async fn context(&self, path: &Path, plans: &[StagePlan]) -> Result<Context, BuildError> {
        let steps = plans.iter().flat_map(|plan| &plan.steps);
        let is_read = steps.flat_map(|step| step.inputs()).any(|input| *input.origin == Origin::Context);
        if !is_read {
            return Ok(Context::empty());
        }
        let (path, cancelled) = (path.to_owned(), self.making.cancelled.clone());
        blocking(move || Context::read(&path, &cancelled)).await
    }

    /// All stages with the keys of their steps.
    async fn stages(
        &self,
        plans: Vec<StagePlan>,
        bases: &Bases,
        context: &Arc<Context>,
    ) -> Result<Vec<Stage>, BuildError> {
        let (bases, context, size) = (bases.keys(self.making), Arc::clone(context), self.making.size);
        let owner = self.making.owner.to_owned();
        // Files of the context are read to find out whether they are the same as last time.
        blocking(move || {
            let mut stages: Vec<Stage> = Vec::new();
            for plan in plans {
                let mut stage = Stage::new(plan, &stages, &bases, &context, size)?;
                stage.set_apart(&owner);
                stages.push(stage);
            }
            Ok(stages)
        })
        .await
    }

    /// A disk with everything that steps to be done need of the host, if they need anything.
    async fn context_disk(
        &self,
        stages: &[Stage],
        context: &Arc<Context>,
    ) -> Result<Option<ContextDisk>, BuildError> {
        let mut supply = crate::context::Supply::default();
        for stage in stages.iter().filter(|stage| stage.needed) {
            for (number, step) in stage.steps_to_do() {
                let failed = |error: dockerfile::SelectError| BuildError::step(step.line, error.to_string());
                if let Action::Copy(copy) = &step.action
                    && !copy.inline.is_empty()
                {
                    supply.inline.insert(stage.place_of(number), copy.inline.clone());
                }
                for selected in stage::context_files(step, context).map_err(failed)? {
                    match selected.unpack_to {
                        Some(_) => supply.archives.insert(selected.path),
                        None => supply.paths.insert(selected.path),
                    };
                }
            }
        }
        if supply.is_empty() {
            return Ok(None);
        }
        let part = self.making.journal.begin("load the context");
        let mib = self.making.size.mib();
        let disk = ContextDisk::make(Arc::clone(context), supply, mib, self.stock.staging()?).await;
        match disk {
            Ok(disk) => {
                part.done();
                Ok(Some(disk))
            }
            Err(error) => {
                part.failed(&error);
                Err(error)
            }
        }
    }
}
