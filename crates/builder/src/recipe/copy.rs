//! `COPY` and `ADD`.

use dockerfile::{CopyStep, Destination, Origin};
use guest_link::GuestPath;
use guest_link::message::EntryKind;
use node::{CopyItem, CopySettings, CopyWhat};

use super::course::{Course, Doing, explain};
use super::machine::{Machine, Need};
use crate::context::{archive_place, files_place, inline_place};
use crate::error::BuildError;
use crate::guest_tree::{ChooseError, choose};

impl Course<'_> {
    pub(super) async fn copy(
        &self,
        machine: &Machine,
        doing: &Doing<'_>,
        copy: &CopyStep,
    ) -> Result<(), BuildError> {
        let line = doing.step.line;
        let guest = |path: &str| {
            GuestPath::parse(path).map_err(|error| BuildError::step(line, format!("`{path}`: {error}")))
        };
        let bare = match copy.destination.trim_end_matches('/') {
            "" => "/",
            bare => bare,
        };
        let found = machine.workshop.look(&guest(bare)?).await.map_err(|error| explain(line, error))?;
        let there = match found.map(|found| found.kind) {
            None => Destination::Absent,
            Some(EntryKind::Directory) => Destination::Directory,
            Some(_) => Destination::File,
        };
        let need = Need::from(&copy.origin);
        let selection = if copy.origin == Origin::Context {
            self.context.select(copy, there).map_err(|error| BuildError::step(line, error.to_string()))?
        } else {
            let root = machine.path_in(&need, "", line)?;
            choose(&machine.workshop, &root, copy, there).await.map_err(|error| match error {
                ChooseError::Select(error) => BuildError::step(line, error.to_string()),
                ChooseError::Node(error) => explain(line, error),
                ChooseError::TooDeep => BuildError::step(line, "its sources lead through too many links"),
            })?
        };
        for pattern in &selection.unmatched {
            doing.part.say(&format!("note: `{pattern}` matches nothing"));
        }
        let mut items = Vec::new();
        for file in &selection.files {
            let archives = self.context_disk.map(|disk| &disk.archives);
            let archive = file.unpack_to.as_ref().zip(archives.and_then(|all| all.get(&file.path)));
            let (place, to, what) = match (archive, file.is_directory) {
                (Some((to, number)), _) => (archive_place(*number), to, CopyWhat::Contents),
                (None, true) => (self.place_of(copy, &file.path), &file.target, CopyWhat::Contents),
                (None, false) => (self.place_of(copy, &file.path), &file.target, CopyWhat::Itself),
            };
            items.push(CopyItem { from: machine.path_in(&need, &place, line)?, to: guest(to)?, what });
        }
        for (file, target) in copy.inline.iter().zip(&selection.inline_targets) {
            let place = inline_place(doing.place, &file.name);
            let from = machine.path_in(&Need::Context, &place, line)?;
            items.push(CopyItem { from, to: guest(target)?, what: CopyWhat::Itself });
        }
        let timeout = self.recipe.stock.settings.step_timeout;
        let settings = CopySettings { owner: copy.owner.clone(), mode: copy.mode, timeout };
        machine.workshop.copy(&items, &settings).await.map_err(|error| explain(line, error))
    }

    /// Where the disk that a step copies from has a path.
    fn place_of(&self, copy: &CopyStep, path: &str) -> String {
        match copy.origin {
            Origin::Context => files_place(path),
            Origin::Stage(_) | Origin::Image(_) => path.to_owned(),
        }
    }
}
