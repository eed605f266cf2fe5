//! The machine that a stage's steps are done in, with the disks they read from.

use std::path::PathBuf;

use dockerfile::{Action, Mount, Origin, Step};
use guest_link::GuestPath;
use node::{Node, VOLUMES_MAX, Workshop, WorkshopPlan};

use crate::error::BuildError;
use crate::guest_tree::below;

/// A disk that a step reads from.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// What the host gives.
    Context,
    /// What came of a stage.
    Stage(usize),
    /// An image or a template.
    Image(String),
    /// A cache of the build's owner. The only one that is written.
    Cache(String),
}

impl Need {
    /// The id, if it is a cache.
    pub(super) fn cache(&self) -> Option<&str> {
        match self {
            Self::Cache(id) => Some(id),
            _ => None,
        }
    }
}

impl From<&Origin> for Need {
    fn from(origin: &Origin) -> Self {
        match origin {
            Origin::Context => Self::Context,
            Origin::Stage(index) => Self::Stage(*index),
            Origin::Image(name) => Self::Image(name.clone()),
        }
    }
}

/// The caches that a step uses.
pub(super) fn caches_of(step: &Step) -> Vec<&str> {
    let Action::Run(run) = &step.action else { return Vec::new() };
    let ids = run.mounts.iter().filter_map(|mount| match mount {
        Mount::Cache { id, .. } => Some(id.as_str()),
        Mount::Bind { .. } | Mount::Tmpfs { .. } => None,
    });
    ids.collect()
}

/// The disks that a step reads from.
pub(super) fn needs(step: &Step) -> Vec<Need> {
    let mut needs: Vec<Need> = Vec::new();
    match &step.action {
        Action::Copy(copy) => {
            if !copy.sources.is_empty() {
                needs.push(Need::from(&copy.origin));
            }
            if !copy.inline.is_empty() {
                needs.push(Need::Context);
            }
        }
        Action::Run(run) => {
            needs.extend(run.mounts.iter().filter_map(|mount| match mount {
                Mount::Bind { origin, .. } => Some(Need::from(origin)),
                Mount::Cache { id, .. } => Some(Need::Cache(id.clone())),
                Mount::Tmpfs { .. } => None,
            }));
        }
        _ => {}
    }
    needs.sort();
    needs.dedup();
    needs
}

/// The disks to attach for the first of some steps, and for as many of the following as one machine can serve.
pub(super) fn disks_for<'a>(steps: impl Iterator<Item = &'a Step>) -> Result<Vec<Need>, BuildError> {
    let mut disks: Vec<Need> = Vec::new();
    for (number, step) in steps.enumerate() {
        let more: Vec<Need> = needs(step).into_iter().filter(|need| !disks.contains(need)).collect();
        if disks.len() + more.len() > VOLUMES_MAX {
            if number == 0 {
                let problem = format!("it uses more than {VOLUMES_MAX} stages, images and caches at once");
                return Err(BuildError::step(step.line, problem));
            }
            break;
        }
        disks.extend(more);
    }
    Ok(disks)
}

/// A machine and what is attached to it.
pub(super) struct Machine {
    pub(super) workshop: Workshop,
    attached: Vec<Need>,
}

impl Machine {
    pub(super) async fn boot(
        node: &Node,
        plan: WorkshopPlan,
        attached: Vec<(Need, PathBuf)>,
    ) -> Result<Self, BuildError> {
        let is_cache = |(need, _): &(Need, PathBuf)| need.cache().is_some();
        let (writable, read): (Vec<_>, Vec<_>) = attached.into_iter().partition(is_cache);
        let (mut attached, disks): (Vec<Need>, Vec<PathBuf>) = read.into_iter().unzip();
        let (caches, writable): (Vec<Need>, Vec<PathBuf>) = writable.into_iter().unzip();
        attached.extend(caches);
        let workshop = node.workshop(WorkshopPlan { attached: disks, writable, ..plan }).await;
        Ok(Self { workshop: workshop.map_err(BuildError::node)?, attached })
    }

    /// Whether it has all disks that a step reads from.
    pub(super) fn serves(&self, step: &Step) -> bool {
        needs(step).iter().all(|need| self.attached.contains(need))
    }

    /// Where the guest has a disk.
    pub(super) fn root_of(&self, need: &Need) -> Option<GuestPath> {
        let index = self.attached.iter().position(|attached| attached == need)?;
        Some(self.workshop.attached(index))
    }

    /// The number of a cache among the disks that are written.
    pub(super) fn writable(&self, id: &str) -> Option<usize> {
        self.attached.iter().filter_map(Need::cache).position(|cache| cache == id)
    }

    /// Where the guest has a path of a disk.
    pub(super) fn path_in(&self, need: &Need, path: &str, line: usize) -> Result<GuestPath, BuildError> {
        let place = self.root_of(need).and_then(|root| below(&root, path));
        place.ok_or_else(|| BuildError::step(line, format!("the path `{path}` cannot be used")))
    }
}

#[cfg(test)]
mod tests {
    use dockerfile::{Build, BuildRequest, Dockerfile, ImageConfig, StagePlan};

    use super::*;

    fn plan(text: &str) -> StagePlan {
        let build = Build::new(Dockerfile::parse(text).unwrap(), BuildRequest::default()).unwrap();
        build.plan(|_| ImageConfig::default()).unwrap().pop().unwrap()
    }

    #[test]
    fn one_machine_serves_as_many_steps_as_it_can() {
        let text = "FROM scratch\nCOPY a /\nRUN x\nCOPY --from=i1 a /\nRUN --mount=from=i2,target=/m x\n\
                    COPY --from=i1 <<E /b\nCOPY --from=i3 a /\nCOPY --from=i4 a /\nCOPY --from=i5 a /";
        let text = text.replace("COPY --from=i1 <<E /b\n", "COPY <<E /b\ntext\nE\n");
        let plan = plan(&text);
        let image = |name: &str| Need::Image(name.to_owned());
        let first = disks_for(plan.steps.iter()).unwrap();
        assert_eq!(first, [Need::Context, image("i1"), image("i2"), image("i3")]);
        let rest = disks_for(plan.steps.iter().skip(6)).unwrap();
        assert_eq!(rest, [image("i4"), image("i5")]);
    }

    #[test]
    fn a_step_that_reads_too_much_is_named() {
        let mounts: Vec<String> = (0..5).map(|n| format!("--mount=from=i{n},target=/m{n}")).collect();
        let plan = plan(&format!("FROM scratch\n\nRUN {} x", mounts.join(" ")));
        let error = disks_for(plan.steps.iter()).unwrap_err().to_string();
        assert!(error.starts_with("line 3: it uses more than 4"), "{error}");
    }
}
