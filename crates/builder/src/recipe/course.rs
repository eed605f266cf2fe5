//! The steps of a build, done in order, each outcome kept.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use dockerfile::{Action, Start, Step};
use node::{NodeError, WorkshopPlan};

use super::Recipe;
use super::bases::Bases;
use super::machine::{Machine, Need, caches_of, disks_for};
use super::stage::Stage;
use crate::context::{Context, ContextDisk};
use crate::error::BuildError;
use crate::layers::{About, Layer, disk_in};
use crate::log::Part;

/// A pool with less than this is full: what guests write comes in larger pieces.
const FULL_BYTES: u64 = 16 << 20;
/// How often a machine is started with caches that are kept before they are thought to be damaged.
const BOOTS_WITH_CACHES: u32 = 2;

/// What is known while the stages are gone through.
pub(super) struct Course<'a> {
    pub(super) recipe: Recipe<'a>,
    pub(super) bases: &'a Bases,
    pub(super) context: &'a Context,
    pub(super) context_disk: Option<&'a ContextDisk>,
    /// Whether lines of the log say which stage they are about.
    pub(super) stages_shown: bool,
    /// What came of stages so far, by their number.
    pub(super) done: BTreeMap<usize, Arc<Layer>>,
    /// Disks of images that were copied from.
    pub(super) images: BTreeMap<String, Arc<Layer>>,
}

/// A step and where it stands.
pub(super) struct Doing<'a> {
    pub(super) step: &'a Step,
    /// A number that no other step of the build has.
    pub(super) place: usize,
    pub(super) part: &'a Part<'a>,
}

impl Course<'_> {
    /// Does what is left of a stage; the layer of its last step, unless nothing needs it.
    pub(super) async fn stage(&mut self, mut stage: Stage) -> Result<Option<Layer>, BuildError> {
        let titles = self.titles(&stage);
        let mut layer = match (stage.layer.take(), stage.needed) {
            (_, false) => {
                for (_, title) in titles {
                    self.recipe.making.journal.begin(&title).cached();
                }
                return Ok(None);
            }
            (Some(layer), true) => {
                for (_, title) in titles.iter().filter(|(step, _)| step.is_none_or(|step| step < stage.done))
                {
                    self.recipe.making.journal.begin(title).cached();
                }
                layer
            }
            (None, true) => {
                let part = self.recipe.making.journal.begin(&titles[0].1);
                let layer = self.start(&stage).await?;
                part.done();
                layer
            }
        };
        let mut machine = None;
        let outcome = self.steps(&stage, &titles, &mut layer, &mut machine).await;
        if let Some(Machine { workshop, .. }) = machine {
            workshop.close().await;
        }
        outcome?;
        Ok(Some(layer))
    }

    /// The disk that a stage starts from.
    async fn start(&self, stage: &Stage) -> Result<Layer, BuildError> {
        let recipe = self.recipe;
        match &stage.plan.start {
            Start::Scratch => recipe.stock.scratch_disk(recipe.making).await,
            Start::Image(name) => self.bases.layer(recipe, name).await,
            Start::Stage(index) => {
                let key = self.done.get(index).map(|layer| layer.key().to_owned());
                let again = key.and_then(|key| recipe.stock.layers.find(&key));
                again.ok_or_else(|| BuildError::Source { problem: format!("stage {index} is not there") })
            }
        }
    }

    async fn steps(
        &mut self,
        stage: &Stage,
        titles: &[(Option<usize>, String)],
        layer: &mut Layer,
        machine: &mut Option<Machine>,
    ) -> Result<(), BuildError> {
        for (number, step) in stage.steps_to_do() {
            let Some((_, title)) = titles.iter().find(|(step, _)| *step == Some(number)) else { continue };
            let part = self.recipe.making.journal.begin(title);
            let doing = Doing { step, place: stage.place_of(number), part: &part };
            let key = stage.keys[number].to_string();
            let steps = stage.plan.steps.iter().skip(number);
            let done = async {
                if !machine.as_ref().is_some_and(|machine| machine.serves(step)) {
                    if let Some(Machine { workshop, .. }) = machine.take() {
                        workshop.close().await;
                    }
                    *machine = Some(self.boot(layer, disks_for(steps)?).await?);
                }
                let Some(machine) = machine.as_ref() else { return Ok(()) };
                let acted = self.act(machine, &doing).await;
                // Also when the step failed: what it fetched until then need not be fetched again.
                self.keep_caches(machine, &doing).await;
                acted?;
                *layer = self.keep(machine, &key).await?;
                Ok(())
            };
            match done.await {
                Ok(()) => part.done(),
                Err(error) => {
                    let error = self.cause(error);
                    part.failed(&error);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Why a step failed. A guest sees a full pool as a disk that fails, and its programs say all sorts of things then.
    fn cause(&self, error: BuildError) -> BuildError {
        match error {
            BuildError::Cancelled => error,
            _ if self.recipe.node.stats().pool_free_bytes < FULL_BYTES => BuildError::NoSpace,
            error => error,
        }
    }

    async fn act(&self, machine: &Machine, doing: &Doing<'_>) -> Result<(), BuildError> {
        match &doing.step.action {
            Action::Configure => Ok(()),
            Action::MakeDirectory { path, user } => {
                let made = machine.workshop.make_directory(path, user).await;
                made.map_err(|error| explain(doing.step.line, error))
            }
            Action::Copy(copy) => self.copy(machine, doing, copy).await,
            Action::Run(run) => self.run(machine, doing, run).await,
        }
    }

    async fn boot(&mut self, layer: &Layer, needs: Vec<Need>) -> Result<Machine, BuildError> {
        let ids: Vec<String> = needs.iter().filter_map(Need::cache).map(str::to_owned).collect();
        let stock = self.recipe.stock;
        for attempt in 1..=BOOTS_WITH_CACHES {
            match self.boot_with(layer, &needs).await {
                Err(BuildError::Node(error)) if !ids.is_empty() => {
                    tracing::warn!(%error, attempt, "a build machine with caches did not start");
                }
                booted => return booted,
            }
        }
        // A guest can have left a disk that no other can mount, or that ends whoever tries.
        for id in ids {
            stock.caches.forget(self.recipe.making.owner, &id, &stock.staging()?).await?;
        }
        self.boot_with(layer, &needs).await
    }

    async fn boot_with(&mut self, layer: &Layer, needs: &[Need]) -> Result<Machine, BuildError> {
        let recipe = self.recipe;
        let (mut attached, mut caches) = (Vec::new(), Vec::new());
        for need in needs {
            let disk = match need {
                Need::Cache(id) => {
                    let stock = recipe.stock;
                    let cache = stock.caches.disk(recipe.making.owner, id, stock.staging()?).await?;
                    let file = cache.file();
                    caches.push(cache);
                    file
                }
                need => self.disk_of(need).await?,
            };
            attached.push((need.clone(), disk));
        }
        let (network, none) = (recipe.stock.settings.network, Vec::new);
        let (disk, shape) = (layer.disk(), recipe.shape);
        let plan = WorkshopPlan { disk, shape, network, attached: none(), writable: none() };
        Machine::boot(recipe.node, plan, attached).await
    }

    /// Keeps what a step left in caches. A cache that could not be kept is told of and costs time, nothing else.
    async fn keep_caches(&self, machine: &Machine, doing: &Doing<'_>) {
        let (stock, owner) = (self.recipe.stock, self.recipe.making.owner);
        for id in caches_of(doing.step) {
            let kept = async {
                let Some(index) = machine.writable(id) else { return Ok(()) };
                let staging = stock.staging()?;
                let to = disk_in(staging.path());
                machine.workshop.keep_writable(index, &to).await.map_err(BuildError::node)?;
                stock.caches.put(owner, id, &staging).await
            };
            if let Err(error) = kept.await {
                tracing::warn!(%error, "a cache of a build was not kept");
                doing.part.say(&format!("note: the cache `{id}` could not be kept"));
            }
        }
    }

    async fn disk_of(&mut self, need: &Need) -> Result<PathBuf, BuildError> {
        let missing = || BuildError::Source { problem: "what a step copies from is not there".to_owned() };
        match need {
            Need::Context => Ok(self.context_disk.ok_or_else(missing)?.file.clone()),
            Need::Stage(index) => Ok(self.done.get(index).ok_or_else(missing)?.disk()),
            Need::Image(name) => {
                if !self.images.contains_key(name) {
                    let layer = self.bases.layer(self.recipe, name).await?;
                    self.images.insert(name.clone(), Arc::new(layer));
                }
                Ok(self.images.get(name).ok_or_else(missing)?.disk())
            }
            Need::Cache(_) => Err(missing()),
        }
    }

    async fn keep(&self, machine: &Machine, key: &str) -> Result<Layer, BuildError> {
        let stock = self.recipe.stock;
        let staging = stock.staging()?;
        machine.workshop.keep(&disk_in(staging.path())).await.map_err(BuildError::node)?;
        let (layers, key) = (Arc::clone(&stock.layers), key.to_owned());
        staging.blocking(move |folder| layers.add(&key, folder, About::default())).await
    }

    /// What the log says of each step that does something, `FROM` first.
    fn titles(&self, stage: &Stage) -> Vec<(Option<usize>, String)> {
        let plan = &stage.plan;
        let from = match &plan.start {
            Start::Scratch => "FROM scratch".to_owned(),
            Start::Stage(index) => format!("FROM stage {index}"),
            Start::Image(name) => format!("FROM {name}"),
        };
        let acting = plan.steps.iter().enumerate().filter(|(_, step)| step.action != Action::Configure);
        let acting = acting.map(|(number, step)| (Some(number), step.text.clone()));
        let all: Vec<(Option<usize>, String)> = std::iter::once((None, from)).chain(acting).collect();
        let (count, name) = (all.len(), plan.name.clone().unwrap_or_else(|| format!("stage-{}", plan.index)));
        let prefix = if self.stages_shown { format!("{name} ") } else { String::new() };
        let numbered = all.into_iter().enumerate();
        numbered.map(|(at, (step, text))| (step, format!("[{prefix}{}/{count}] {text}", at + 1))).collect()
    }
}

/// What the machine said about a step: the user's to know where it is about the step.
pub(super) fn explain(line: usize, error: NodeError) -> BuildError {
    match error {
        NodeError::Tool { said, .. } => BuildError::step(line, said),
        NodeError::GuestSilent { what, seconds } => {
            BuildError::step(line, format!("the machine could not {what} within {seconds} s"))
        }
        other => BuildError::node(other),
    }
}
