//! Receives what a template is built from: written down as it comes, complete and synced before anybody is told of a build.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use contract::template::TemplateBuild;
use domain::{BuildId, TenantId};
use store::{BuildRow, BuildStatus, Scope, StoreError};
use tokio::io::AsyncWriteExt;

use super::form::{Allowed, Asked, Fields, PartKind};
use super::part_name::context_path;
use super::places;
use super::view;
use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::{Control, random};
use crate::error::{ControlError, Kind};
use crate::names;

/// Bytes of all fields that are no files; a Dockerfile may have one MiB.
const TEXT_BYTES_MAX: usize = 2 << 20;
/// Fields that are no files.
const TEXTS_MAX: usize = 100;
/// Files of one request.
const PARTS_MAX: usize = 20_000;
/// What one tenant may be sending at once.
const UPLOADS_AT_ONCE: usize = 4;
/// The host keeps this much free, whoever sends what.
const RESERVE_BYTES: u64 = 1 << 30;
/// How often that is looked at.
const LOOK_EVERY_BYTES: u64 = 64 << 20;
/// Up to so many files are synced one by one; for more the whole file system is, once.
const SYNC_SINGLY_MAX: usize = 64;

/// What a request of a build is kept as, in its directory.
pub(super) const REQUEST_FILE: &str = "request.json";

/// Where a kind of part ends up in the upload's directory.
pub(super) fn file_name(kind: PartKind) -> &'static str {
    match kind {
        PartKind::Rootfs => "rootfs",
        PartKind::Image => "image",
        PartKind::Context => "context.tar",
        PartKind::File => "context",
    }
}

/// A request for a build that is being received. Dropped before its end it leaves nothing.
pub struct Upload {
    control: Control,
    caller: Caller,
    id: BuildId,
    received: Received,
    fields: Fields,
    texts: usize,
    text_bytes: usize,
    parts: Vec<(String, Option<String>)>,
    part_bytes: u64,
    bytes: u64,
    looked_at: u64,
    writing: Option<tokio::fs::File>,
    _turn: Turn,
}

/// Files that go unless somebody takes them.
struct Received {
    control: Control,
    directory: PathBuf,
}

impl Drop for Received {
    fn drop(&mut self) {
        let directory = std::mem::take(&mut self.directory);
        // Many files take a while; a task that may wait removes them.
        self.control.tasks().spawn_blocking(move || places::remove(&directory));
    }
}

/// Counts what a tenant is sending.
struct Turn {
    control: Control,
    tenant: TenantId,
}

impl Turn {
    fn take(control: &Control, tenant: &TenantId) -> Result<Self, ControlError> {
        let mut sending = control.builds().sending();
        let count = sending.entry(tenant.clone()).or_insert(0);
        if *count >= UPLOADS_AT_ONCE {
            let message = format!("at most {UPLOADS_AT_ONCE} builds can be sent at once");
            return Err(ControlError::new(Kind::Rate, message).retry_after(std::time::Duration::from_secs(5)));
        }
        *count += 1;
        Ok(Self { control: control.clone(), tenant: tenant.clone() })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut sending = self.control.builds().sending();
        if let Some(count) = sending.get_mut(&self.tenant) {
            *count -= 1;
            if *count == 0 {
                sending.remove(&self.tenant);
            }
        }
    }
}

fn io_failed(error: io::Error) -> ControlError {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            ControlError::new(Kind::NoSpace, "the host's disk is full").because(error)
        }
        _ => ControlError::internal(error),
    }
}

impl Control {
    /// Begins to receive a request for a build.
    pub async fn receive_build(&self, caller: &Caller) -> Result<Upload, ControlError> {
        caller.require(Scope::Write)?;
        let turn = Turn::take(self, &caller.tenant)?;
        let id = BuildId::from_random(random().map_err(ControlError::internal)?);
        let directory = self.builds().places().receiving(&id);
        tokio::fs::create_dir_all(directory.join("parts")).await.map_err(io_failed)?;
        Ok(Upload {
            control: self.clone(),
            caller: caller.clone(),
            id,
            received: Received { control: self.clone(), directory },
            fields: Fields::default(),
            texts: 0,
            text_bytes: 0,
            parts: Vec::new(),
            part_bytes: 0,
            bytes: 0,
            looked_at: 0,
            writing: None,
            _turn: turn,
        })
    }
}

impl Upload {
    /// A field that is no file.
    pub fn text(&mut self, name: &str, value: String) -> Result<(), ControlError> {
        self.texts += 1;
        self.text_bytes = self.text_bytes.saturating_add(name.len() + value.len());
        if self.texts > TEXTS_MAX || self.text_bytes > TEXT_BYTES_MAX {
            let message = format!("the fields have more than {} MiB together", TEXT_BYTES_MAX >> 20);
            return Err(ControlError::new(Kind::TooLarge, message));
        }
        self.fields.add(name, value)
    }

    /// Bytes that the fields may still have.
    pub fn text_bytes_left(&self) -> usize {
        TEXT_BYTES_MAX.saturating_sub(self.text_bytes)
    }

    /// Begins a file.
    pub async fn file(&mut self, name: &str, content_type: Option<&str>) -> Result<(), ControlError> {
        self.end_file().await?;
        if self.parts.len() >= PARTS_MAX {
            return Err(ControlError::new(Kind::TooLarge, format!("there are more than {PARTS_MAX} files")));
        }
        // Nobody's name is used for a file before all is known.
        let path = part_path(&self.received.directory, self.parts.len());
        let file = tokio::fs::File::create_new(path).await.map_err(io_failed)?;
        self.parts.push((name.to_owned(), content_type.map(str::to_owned)));
        self.writing = Some(file);
        Ok(())
    }

    /// More of the file that was begun last.
    pub async fn write(&mut self, bytes: &[u8]) -> Result<(), ControlError> {
        let limit = self.control.config().builds.upload_bytes_max;
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        if self.bytes > limit {
            let message = format!("more than {} MiB are sent", limit >> 20);
            return Err(ControlError::new(Kind::TooLarge, message));
        }
        if self.bytes >= self.looked_at {
            self.looked_at = self.bytes + LOOK_EVERY_BYTES;
            if self.control.node().stats().pool_free_bytes < RESERVE_BYTES {
                return Err(ControlError::new(Kind::NoSpace, "the host has no room for a build"));
            }
        }
        let Some(file) = &mut self.writing else {
            return Err(ControlError::invalid("there are bytes that belong to no file"));
        };
        self.part_bytes += bytes.len() as u64;
        file.write_all(bytes).await.map_err(io_failed)
    }

    async fn end_file(&mut self) -> Result<(), ControlError> {
        match self.writing.take() {
            Some(mut file) => file.flush().await.map_err(io_failed),
            None => Ok(()),
        }
    }

    /// All is there: the build begins when its turn comes. `replace` may be asked for outside the form too.
    pub async fn start(mut self, replace: bool) -> Result<TemplateBuild, ControlError> {
        self.end_file().await?;
        let config = &self.control.config().builds;
        let allowed = Allowed { disk_mib_max: config.disk_mib_max, naming: &config.builder.naming };
        let mut asked = self.fields.read(&self.parts, &allowed)?;
        asked.replace |= replace;
        let is_context = asked.parts.iter().any(|kind| matches!(kind, PartKind::File | PartKind::Context));
        if is_context && self.part_bytes > config.context_bytes_max {
            let message = format!("the context has more than {} MiB", config.context_bytes_max >> 20);
            return Err(ControlError::new(Kind::TooLarge, message));
        }
        if self.control.is_in_catalogue(&asked.name) {
            let message =
                format!("{} is the name of a template that everybody has", names::shown(&asked.name));
            return Err(ControlError::forbidden(message).hint("choose another name"));
        }
        let quota = self.control.quota(&self.caller.tenant).await?;
        for (what, limit, value) in
            [("CPUs", quota.cpus, asked.cpus), ("MiB of memory", quota.memory_mib, asked.memory_mib)]
        {
            if u64::from(value) > limit {
                return Err(StoreError::Quota { what, limit }.into());
            }
        }
        let row = self.row(&asked);
        let control = self.control.clone();
        let work = control.clone();
        control
            .finish(async move {
                let upload = work.builds().places().upload(&row.id);
                let (from, parts) = (self.received.directory.clone(), self.parts.clone());
                let (to, kept) = (upload.clone(), asked.clone());
                let arranged = tokio::task::spawn_blocking(move || arrange(&from, &to, &parts, &kept)).await;
                arranged.map_err(ControlError::internal)??;
                if let Err(error) = work.store().add_build(row.clone(), &quota).await {
                    tokio::task::spawn_blocking(move || places::remove(&upload));
                    return Err(match error {
                        StoreError::Exists { what } => {
                            ControlError::conflict(format!("{what} exists already"))
                                .hint("choose another name, or ask for the old one to be replaced: the new one takes its place when it is done")
                        }
                        other => other.into(),
                    });
                }
                work.builds().nudge();
                Ok(view(&row))
            })
            .await
    }

    fn row(&self, asked: &Asked) -> BuildRow {
        let image_ref = match &asked.kept {
            super::form::Kept::Image { reference } => Some(reference.clone()),
            _ => None,
        };
        BuildRow {
            id: self.id.clone(),
            tenant: self.caller.tenant.clone(),
            name: asked.name.clone(),
            status: BuildStatus::Queued,
            error: None,
            replace: asked.replace,
            source: asked.kept.source(),
            image_ref,
            disk_mib: asked.disk_mib,
            cpus: asked.cpus,
            memory_mib: asked.memory_mib,
            attempts: 0,
            bytes: None,
            created_ms: now_ms(),
            started_ms: None,
            ended_ms: None,
        }
    }
}

fn part_path(directory: &Path, index: usize) -> PathBuf {
    directory.join("parts").join(index.to_string())
}

/// Gives the parts their names, syncs everything and moves it to where builds look for it.
fn arrange(
    from: &Path,
    to: &Path,
    parts: &[(String, Option<String>)],
    asked: &Asked,
) -> Result<(), ControlError> {
    let context = from.join(file_name(PartKind::File));
    fs::create_dir(&context).map_err(io_failed)?;
    for (index, ((name, _), kind)) in parts.iter().zip(&asked.parts).enumerate() {
        let part = part_path(from, index);
        match kind {
            PartKind::File => place(&part, &context, name)?,
            kind => fs::rename(part, from.join(file_name(*kind))).map_err(io_failed)?,
        }
    }
    fs::remove_dir(from.join("parts")).map_err(io_failed)?;
    let request = serde_json::to_vec(&asked.kept).map_err(ControlError::internal)?;
    fs::write(from.join(REQUEST_FILE), request).map_err(io_failed)?;
    sync(from, parts.len()).map_err(io_failed)?;
    fs::rename(from, to).map_err(io_failed)?;
    let parent = to.parent().unwrap_or(to);
    File::open(parent).and_then(|folder| folder.sync_all()).map_err(io_failed)
}

/// Puts one file into the context. Only directories and files of ours are there, so no name leads out of it.
fn place(part: &Path, context: &Path, name: &str) -> Result<(), ControlError> {
    use std::os::unix::fs::PermissionsExt;
    let collides = || {
        let message =
            format!("{} is in the context twice, or is both a file and a directory", names::shown(name));
        ControlError::invalid(message)
    };
    let target = context.join(context_path(name)?);
    let folder = target.parent().unwrap_or(context);
    fs::create_dir_all(folder).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => collides(),
        _ => io_failed(error),
    })?;
    // Forms do not say which files are programs, so all may be run.
    fs::set_permissions(part, fs::Permissions::from_mode(0o755)).map_err(io_failed)?;
    // Linked, because renaming would take the place of what is there.
    fs::hard_link(part, &target).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => collides(),
        _ => io_failed(error),
    })?;
    fs::remove_file(part).map_err(io_failed)
}

fn sync(directory: &Path, parts: usize) -> io::Result<()> {
    if parts > SYNC_SINGLY_MAX {
        return Ok(rustix::fs::syncfs(File::open(directory)?)?);
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => sync(&entry.path(), 0)?,
            false => File::open(entry.path())?.sync_all()?,
        }
    }
    File::open(directory)?.sync_all()
}
