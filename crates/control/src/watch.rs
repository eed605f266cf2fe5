//! Watching files of a sandbox: what the guest tells about names, as changes of paths.
//!
//! The guest watches directories. A single file is watched by watching its directory, so that one that is replaced by renaming
//! another over it is still watched.

use std::collections::VecDeque;
use std::time::Duration;

use contract::file::{FileEvent, FileEventKind};
use guest_link::WRITTEN_ASIDE;
use guest_link::client::Watch;
use guest_link::message::{EntryKind, Links, WatchEvent, WatchKind, WatchScope, WatchSpec};
use tokio::time::timeout;

use crate::access::InUse;
use crate::caller::Caller;
use crate::control::Control;
use crate::error::{ControlError, Kind};
use crate::exec::guest_path;
use crate::files::path_of;

/// How long the second half of a move may take to follow the first. The guest's kernel tells both at once, but they may be read in
/// two pieces.
const MOVE_TIMEOUT: Duration = Duration::from_millis(200);

/// What a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Watched {
    /// Something changed.
    Change(FileEvent),
    /// Changes were lost: the caller must look for itself.
    Overflow,
    /// There are more directories than a watch covers. Nothing follows.
    TooMany,
}

/// A watch. The sandbox is in use for as long as it is held.
pub struct FileWatch {
    watch: Watch,
    changes: Changes,
    /// Understood, not yet told.
    ready: VecDeque<Watched>,
    /// How the watch ended, to be told after what is ready.
    ended: Option<ControlError>,
    _sandbox: InUse,
}

/// Makes changes of paths from what is told about names.
#[derive(Debug)]
struct Changes {
    /// The watched directory, without a slash at its end.
    root: String,
    /// The one path that is of interest.
    only: Option<String>,
    /// The first half of a move.
    leaving: Option<(u32, FileEvent)>,
}

impl Changes {
    fn event(&self, name: &[u8], kind: FileEventKind, is_dir: bool) -> FileEvent {
        let path = format!("{}/{}", self.root, String::from_utf8_lossy(name));
        FileEvent { path, kind, is_dir, to: None }
    }

    fn tell(&self, event: FileEvent, ready: &mut VecDeque<Watched>) {
        let wanted = |path: &String| self.only.as_ref().is_none_or(|only| only == path);
        if !wanted(&event.path) && !event.to.as_ref().is_some_and(wanted) {
            return;
        }
        let told = Watched::Change(event);
        // A program that writes in small pieces changes its file many times.
        if ready.back() != Some(&told) {
            ready.push_back(told);
        }
    }

    /// A file that moved away, and not to where it would be seen, is gone.
    fn settle(&mut self, ready: &mut VecDeque<Watched>) {
        if let Some((_, event)) = self.leaving.take() {
            self.tell(FileEvent { kind: FileEventKind::Removed, ..event }, ready);
        }
    }

    fn take(&mut self, change: &WatchEvent, ready: &mut VecDeque<Watched>) {
        if is_written_aside(&change.name) {
            // What comes of it is told when it gets its name.
            return;
        }
        if let WatchKind::MovedTo { cookie } = change.kind
            && let Some((_, event)) = self.leaving.take_if(|(left, _)| *left == cookie)
        {
            let to = self.event(&change.name, FileEventKind::Moved, change.directory).path;
            self.tell(FileEvent { to: Some(to), ..event }, ready);
            return;
        }
        self.settle(ready);
        let kind = match change.kind {
            WatchKind::Created | WatchKind::MovedTo { .. } => FileEventKind::Created,
            WatchKind::Modified | WatchKind::Attributes => FileEventKind::Changed,
            WatchKind::Removed => FileEventKind::Removed,
            WatchKind::MovedFrom { cookie } => {
                let event = self.event(&change.name, FileEventKind::Moved, change.directory);
                self.leaving = Some((cookie, event));
                return;
            }
            WatchKind::Overflow => return ready.push_back(Watched::Overflow),
            WatchKind::TooMany => return ready.push_back(Watched::TooMany),
        };
        self.tell(self.event(&change.name, kind, change.directory), ready);
    }
}

/// Whether this is a file that the platform is writing for a caller, which gets its own name once it is whole.
fn is_written_aside(name: &[u8]) -> bool {
    let last = name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    last.strip_prefix(WRITTEN_ASIDE.as_bytes())
        .is_some_and(|rest| rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-'))
}

impl FileWatch {
    /// What happened next. The future may be dropped without loss.
    pub async fn next(&mut self) -> Result<Watched, ControlError> {
        loop {
            if let Some(told) = self.ready.pop_front() {
                return Ok(told);
            }
            if let Some(error) = self.ended.take() {
                return Err(error);
            }
            let next = match &self.changes.leaving {
                None => self.watch.next().await,
                Some(_) => match timeout(MOVE_TIMEOUT, self.watch.next()).await {
                    Ok(next) => next,
                    Err(_) => {
                        self.changes.settle(&mut self.ready);
                        continue;
                    }
                },
            };
            match next {
                Ok(changes) => {
                    for change in &changes {
                        self.changes.take(change, &mut self.ready);
                    }
                }
                Err(error) => {
                    self.changes.settle(&mut self.ready);
                    self.ended = Some(error.into());
                }
            }
        }
    }
}

impl Control {
    /// Watches a directory, or a single file. Every change after the return is told.
    pub async fn watch_files(
        &self,
        caller: &Caller,
        id: &str,
        path: &str,
        recursive: bool,
    ) -> Result<FileWatch, ControlError> {
        let guest = path_of(path)?;
        let sandbox = self.enter_to_look(caller, id).await?;
        let entry = sandbox.link.stat(guest.clone(), Links::Follow).await?;
        let target = entry.link.as_ref().and_then(|link| link.kind);
        let is_dir = entry.kind == EntryKind::Directory || target == Some(EntryKind::Directory);
        let plain = path.trim_end_matches('/');
        let (directory, root, only) = match plain.rsplit_once('/') {
            Some((parent, _)) if !is_dir => {
                let above = if parent.is_empty() { "/" } else { parent };
                (guest_path(above)?, parent.to_owned(), Some(plain.to_owned()))
            }
            _ if is_dir => (guest, plain.to_owned(), None),
            _ => return Err(ControlError::new(Kind::NotFound, "there is no such file or directory")),
        };
        let scope = if recursive && is_dir { WatchScope::Recursive } else { WatchScope::Directory };
        let watch = sandbox.link.watch(WatchSpec { path: directory, scope }).await?;
        let changes = Changes { root, only, leaving: None };
        Ok(FileWatch { watch, changes, ready: VecDeque::new(), ended: None, _sandbox: sandbox })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(only: Option<&str>, changes: &[(&str, WatchKind)]) -> Vec<String> {
        let mut rules = Changes { root: "/srv".to_owned(), only: only.map(str::to_owned), leaving: None };
        let mut ready = VecDeque::new();
        for (name, kind) in changes {
            let change = WatchEvent { name: name.as_bytes().to_vec(), kind: *kind, directory: false };
            rules.take(&change, &mut ready);
        }
        rules.settle(&mut ready);
        let line = |told: &Watched| match told {
            Watched::Change(FileEvent { path, kind, to: None, .. }) => format!("{kind:?} {path}"),
            Watched::Change(FileEvent { path, kind, to: Some(to), .. }) => format!("{kind:?} {path} {to}"),
            other => format!("{other:?}"),
        };
        ready.iter().map(line).collect()
    }

    #[test]
    fn halves_of_a_move_are_put_together() {
        let (from, to) = (|cookie| WatchKind::MovedFrom { cookie }, |cookie| WatchKind::MovedTo { cookie });
        assert_eq!(told(None, &[("a", from(1)), ("b", to(1))]), ["Moved /srv/a /srv/b"]);
        assert_eq!(told(None, &[("a", from(1)), ("b", to(2))]), ["Removed /srv/a", "Created /srv/b"]);
        assert_eq!(told(None, &[("a", from(1))]), ["Removed /srv/a"]);
        let between = [("a", from(1)), ("c", WatchKind::Created), ("b", to(1))];
        assert_eq!(told(None, &between), ["Removed /srv/a", "Created /srv/c", "Created /srv/b"]);
        let twice = [("a", from(1)), ("b", from(2)), ("c", to(2))];
        assert_eq!(told(None, &twice), ["Removed /srv/a", "Moved /srv/b /srv/c"]);
    }

    #[test]
    fn changes_in_a_row_are_told_once_and_losses_always() {
        let changes = [
            ("a", WatchKind::Created),
            ("a", WatchKind::Modified),
            ("a", WatchKind::Attributes),
            ("", WatchKind::Overflow),
            ("a", WatchKind::Modified),
            ("", WatchKind::TooMany),
        ];
        let expected = ["Created /srv/a", "Changed /srv/a", "Overflow", "Changed /srv/a", "TooMany"];
        assert_eq!(told(None, &changes), expected);
    }

    #[test]
    fn a_file_that_a_caller_writes_appears_whole() {
        let changes = [
            (".upload-1-7", WatchKind::Created),
            (".upload-1-7", WatchKind::Modified),
            (".upload-1-7", WatchKind::MovedFrom { cookie: 3 }),
            ("sub/a", WatchKind::MovedTo { cookie: 3 }),
            (".upload-mine", WatchKind::Created),
        ];
        assert_eq!(told(None, &changes), ["Created /srv/sub/a", "Created /srv/.upload-mine"]);
    }

    #[test]
    fn one_file_is_watched_for_itself() {
        let changes = [
            ("a", WatchKind::Modified),
            ("b", WatchKind::Created),
            ("b", WatchKind::MovedFrom { cookie: 1 }),
            ("a", WatchKind::MovedTo { cookie: 1 }),
            ("a", WatchKind::Removed),
        ];
        let expected = ["Changed /srv/a", "Moved /srv/b /srv/a", "Removed /srv/a"];
        assert_eq!(told(Some("/srv/a"), &changes), expected);
    }
}
