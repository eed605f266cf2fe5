//! A stage, the keys of its steps, and how far it was built before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use dockerfile::{
    Action, CacheKey, CopyStep, Destination, Input, Mount, Origin, SelectError, Selected, StagePlan, Start,
    Step,
};
use image::DiskSize;

use crate::context::Context;
use crate::error::BuildError;
use crate::layers::{Layer, Layers};
use crate::stock::base_key;

use super::machine::caches_of;

/// Steps of all stages have numbers of their own: those of a stage begin at its number times this. More than a Dockerfile may have.
const STEPS_MAX: usize = 10_000;

/// A stage of a build.
pub(super) struct Stage {
    pub(super) plan: StagePlan,
    /// Of what it starts from.
    base: CacheKey,
    /// After each step.
    pub(super) keys: Vec<CacheKey>,
    /// How many steps need not be done.
    pub(super) done: usize,
    /// The layer after those, unless that is what the stage starts from and is still to be made.
    pub(super) layer: Option<Layer>,
    /// Whether anything needs it.
    pub(super) needed: bool,
}

impl Stage {
    /// Finds the keys. Blocks on reading files of the context.
    pub(super) fn new(
        plan: StagePlan,
        earlier: &[Stage],
        bases: &BTreeMap<String, CacheKey>,
        context: &Context,
        size: DiskSize,
    ) -> Result<Self, BuildError> {
        let key_of =
            |index: usize| earlier.iter().find(|stage| stage.plan.index == index).map(Stage::last_key);
        let unknown =
            || BuildError::Source { problem: "a stage needs something that is not there".to_owned() };
        let base = match &plan.start {
            Start::Scratch => base_key("scratch", size),
            Start::Stage(index) => key_of(*index).ok_or_else(unknown)?,
            Start::Image(name) => *bases.get(name).ok_or_else(unknown)?,
        };
        let digest_of = |step: &Step, input: &Input<'_>| match input.origin {
            Origin::Stage(index) => key_of(*index).ok_or_else(unknown).map(|key| key.to_string()),
            Origin::Image(name) => bases.get(name).ok_or_else(unknown).map(CacheKey::to_string),
            Origin::Context => {
                let copy = reading(step, input);
                let selection = context.select(&copy, Destination::Directory);
                let selection = selection.map_err(|error| BuildError::step(step.line, error.to_string()))?;
                context.digest(&selection)
            }
        };
        let keys = plan.keys(base, digest_of)?;
        Ok(Self { plan, base, keys, done: 0, layer: None, needed: false })
    }

    /// What a step makes of a cache is its owner's: keys from the first such step on are the owner's own. Otherwise one tenant could
    /// leave in a cache what others then find in layers.
    pub(super) fn set_apart(&mut self, owner: &str) {
        let first = self.plan.steps.iter().position(|step| !caches_of(step).is_empty());
        for key in self.keys.iter_mut().skip(first.unwrap_or(usize::MAX)) {
            *key = CacheKey::of_base(&format!("{key} with caches of {owner}"));
        }
    }

    /// The key of what comes of it.
    pub(super) fn last_key(&self) -> CacheKey {
        self.keys.last().copied().unwrap_or(self.base)
    }

    /// Finds the last step that was done before.
    fn look(&mut self, layers: &Arc<Layers>) {
        for done in (1..=self.keys.len()).rev() {
            if let Some(layer) = layers.find(&self.keys[done - 1].to_string()) {
                (self.done, self.layer) = (done, Some(layer));
                return;
            }
        }
    }

    pub(super) fn steps_to_do(&self) -> impl Iterator<Item = (usize, &Step)> {
        self.plan.steps.iter().enumerate().skip(self.done)
    }

    /// A number for a step that no other step of the build has.
    pub(super) fn place_of(&self, step: usize) -> usize {
        self.plan.index * STEPS_MAX + step
    }
}

/// Marks the stages that have to be looked at for the last one, and finds how far each is. What is needed only for layers that are kept
/// is not needed.
pub(super) fn mark_needed(stages: &mut [Stage], layers: &Arc<Layers>) {
    let mut wanted: BTreeSet<usize> = stages.last().map(|stage| stage.plan.index).into_iter().collect();
    for stage in stages.iter_mut().rev() {
        if !wanted.contains(&stage.plan.index) {
            continue;
        }
        stage.needed = true;
        stage.look(layers);
        if let (Start::Stage(base), None) = (&stage.plan.start, &stage.layer) {
            wanted.insert(*base);
        }
        for (_, step) in stage.steps_to_do() {
            for input in step.inputs() {
                if let Origin::Stage(other) = input.origin {
                    wanted.insert(*other);
                }
            }
        }
    }
}

/// A copy of what an input reads: the step itself, or for a mount one that stands for it.
fn reading(step: &Step, input: &Input<'_>) -> CopyStep {
    match &step.action {
        Action::Copy(copy) => copy.clone(),
        _ => mounting(input.paths.first().copied().unwrap_or_default()),
    }
}

/// What copies exactly what is at `source` of the context.
fn mounting(source: &str) -> CopyStep {
    CopyStep {
        origin: Origin::Context,
        sources: vec![source.to_owned()],
        inline: Vec::new(),
        destination: "/".to_owned(),
        owner: None,
        mode: None,
        extracts: false,
    }
}

/// Files of the context that a step reads.
pub(super) fn context_files(step: &Step, context: &Context) -> Result<Vec<Selected>, SelectError> {
    let mut files = Vec::new();
    match &step.action {
        Action::Copy(copy) if copy.origin == Origin::Context => {
            files.extend(context.select(copy, Destination::Directory)?.files);
        }
        Action::Run(run) => {
            for mount in &run.mounts {
                if let Mount::Bind { origin: Origin::Context, source, .. } = mount {
                    files.extend(context.select(&mounting(source), Destination::Directory)?.files);
                }
            }
        }
        _ => {}
    }
    Ok(files)
}
