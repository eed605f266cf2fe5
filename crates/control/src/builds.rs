//! Builds of templates: durable jobs that the next server goes on with.
//!
//! ```text
//! received (`upload`) ─► row `queued` ─► answered
//! queued ─► running ─► baking ─► done          running | baking ─► failed (also when cancelled)
//! ```
//!
//! The template of a build becomes known in the transaction that ends the build, and not before its snapshot is there: what had its
//! name until then serves to that moment.

mod form;
mod log;
mod part_name;
mod places;
mod runner;
mod source;
mod upload;

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use builder::Builder;
use contract::template::TemplateBuild;
use contract::time::rfc3339;
use domain::{BuildId, TenantId};
use store::{BuildRow, BuildSource, BuildStatus, Scope, StoreError, TemplateRow};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use self::log::LogFile;
use self::places::Places;
use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::ControlError;
use crate::names;

pub(crate) use self::runner::run;
pub use self::upload::Upload;

/// How often a followed log is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// The error of a build that somebody cancelled.
const CANCELLED: &str = "cancelled";

/// What is known of builds in this process.
pub(crate) struct Builds {
    builder: Builder,
    places: Places,
    active: Mutex<HashMap<BuildId, Active>>,
    sending: Mutex<HashMap<TenantId, usize>>,
    nudged: Notify,
}

/// A build that is under way.
#[derive(Clone)]
struct Active {
    tenant: TenantId,
    name: String,
    log: Arc<LogFile>,
    cancelled: CancellationToken,
}

impl Builds {
    pub(crate) fn new(builder: Builder, root: PathBuf) -> io::Result<Self> {
        Ok(Self {
            builder,
            places: Places::new(root)?,
            active: Mutex::default(),
            sending: Mutex::default(),
            nudged: Notify::new(),
        })
    }

    fn places(&self) -> &Places {
        &self.places
    }

    fn active(&self) -> MutexGuard<'_, HashMap<BuildId, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sending(&self) -> MutexGuard<'_, HashMap<TenantId, usize>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There may be something to do.
    fn nudge(&self) {
        self.nudged.notify_one();
    }

    /// What makes disks.
    pub(crate) fn builder(&self) -> &Builder {
        &self.builder
    }

    /// Where the disk of a template is.
    pub(crate) fn template_directory(&self, build: &BuildId) -> PathBuf {
        self.places.template(build)
    }

    /// Removes the disk of a template that is gone.
    pub(crate) fn remove_template_directory(&self, build: &BuildId) {
        places::remove(&self.places.template(build));
    }
}

/// Lines of a build's log.
#[derive(Debug)]
pub struct LogLines {
    /// The lines.
    pub lines: Vec<String>,
    /// Where the next begin.
    pub next: u64,
    /// Whether there will be no more.
    pub is_last: bool,
}

fn status_name(status: BuildStatus) -> &'static str {
    match status {
        BuildStatus::Queued => "queued",
        BuildStatus::Running => "running",
        BuildStatus::Baking => "baking",
        BuildStatus::Done => "done",
        BuildStatus::Failed => "failed",
    }
}

fn view(row: &BuildRow) -> TemplateBuild {
    let source = match row.source {
        BuildSource::Dockerfile => "dockerfile",
        BuildSource::Image => "image",
        BuildSource::Archive => "archive",
        BuildSource::Tarball => "tarball",
    };
    TemplateBuild {
        id: row.id.to_string(),
        name: row.name.clone(),
        status: status_name(row.status).to_owned(),
        error: row.error.clone(),
        started_at: rfc3339(row.started_ms.unwrap_or(row.created_ms)),
        ended_at: row.ended_ms.map(rfc3339),
        size_mb: row.disk_mib,
        cpu: row.cpus,
        memory_mb: row.memory_mib,
        bytes: row.bytes,
        image_ref: row.image_ref.clone(),
        source: source.to_owned(),
        owner_workspace: row.tenant.to_string(),
    }
}

impl Control {
    async fn build_row(&self, caller: &Caller, id: &str) -> Result<BuildRow, ControlError> {
        let missing = || ControlError::not_found(format!("there is no build {}", names::shown(id)));
        let id = BuildId::parse(id).map_err(|_| missing())?;
        self.store().build(&caller.tenant, &id).await?.ok_or_else(missing)
    }

    /// The caller's builds, newest first.
    pub async fn list_builds(&self, caller: &Caller) -> Result<Vec<TemplateBuild>, ControlError> {
        Ok(self.store().builds(&caller.tenant).await?.iter().map(view).collect())
    }

    /// One build.
    pub async fn build(&self, caller: &Caller, id: &str) -> Result<TemplateBuild, ControlError> {
        Ok(view(&self.build_row(caller, id).await?))
    }

    /// Ends a build that has not ended. Doing it twice is fine; a build that is done stays done.
    pub async fn cancel_build(&self, caller: &Caller, id: &str) -> Result<(), ControlError> {
        caller.require(Scope::Write)?;
        let row = self.build_row(caller, id).await?;
        let control = self.clone();
        self.finish(async move {
            let active = control.builds().active().get(&row.id).cloned();
            if active.is_none() && !row.status.has_ended() {
                // Whoever follows it sees its last line before its end.
                control.end_log(&row.id, &failure_line(CANCELLED));
            }
            if !control.store().fail_build(&row.id, CANCELLED, now_ms()).await? {
                return Ok(());
            }
            match active {
                Some(active) => {
                    active.log.end(&failure_line(CANCELLED));
                    active.cancelled.cancel();
                }
                None => {
                    control.measurements().built(CANCELLED, Duration::ZERO);
                    control.forget_upload(row.id).await;
                }
            }
            Ok(())
        })
        .await
    }

    /// Lines of a build's log from an offset on.
    pub async fn build_log(&self, caller: &Caller, id: &str, offset: u64) -> Result<LogLines, ControlError> {
        let row = self.build_row(caller, id).await?;
        // Looked at before the log is read: what ended it writes a last line.
        let writing = self.builds().active().get(&row.id).is_some_and(|active| !active.log.has_ended());
        let path = self.builds().places().log(&row.id);
        let read = tokio::task::spawn_blocking(move || log::read(&path, offset)).await;
        let (lines, next) = read.map_err(ControlError::internal)?.map_err(ControlError::internal)?;
        let is_last = row.status.has_ended() && !writing && next == offset;
        Ok(LogLines { lines, next, is_last })
    }

    /// Waits a moment for more of a log; `false` when the server goes down.
    pub async fn build_log_pause(&self) -> bool {
        tokio::select! {
            () = self.closing().cancelled() => false,
            () = tokio::time::sleep(LOOK_EVERY) => true,
        }
    }

    fn end_log(&self, id: &BuildId, line: &str) {
        match LogFile::open(&self.builds().places().log(id)) {
            Ok(log) => log.end(line),
            Err(error) => tracing::warn!(%error, build.id = %id, "a build's log could not be written"),
        }
    }

    async fn forget_upload(&self, id: BuildId) {
        let upload = self.builds().places().upload(&id);
        if let Err(error) = tokio::task::spawn_blocking(move || places::remove(&upload)).await {
            tracing::warn!(%error, build.id = %id, "the files of a build were not removed");
        }
    }

    /// After a start: files that belong to nothing go. Builds that were under way are begun again by the runner.
    pub(crate) async fn recover_builds(&self, templates: &[TemplateRow]) -> Result<(), StoreError> {
        let rows = self.store().all_builds().await?;
        let known: HashSet<_> = rows.iter().map(|row| row.id.clone()).collect();
        let needed: HashSet<_> =
            rows.iter().filter(|row| !row.status.has_ended()).map(|row| row.id.clone()).collect();
        let kept: HashSet<_> = templates.iter().map(|row| row.build.clone()).collect();
        let places = self.builds().places().clone();
        let swept = tokio::task::spawn_blocking(move || {
            places.sweep_uploads(&needed);
            places.sweep_logs(&known);
            places.sweep_templates(&kept);
        });
        if let Err(error) = swept.await {
            tracing::warn!(%error, "files of builds were not looked through");
        }
        Ok(())
    }

    /// Logs of builds that are forgotten go.
    async fn sweep_build_logs(&self) -> Result<(), ControlError> {
        // Looked at before the rows: a build that is added meanwhile has no log yet, or one that is not removed.
        let known: HashSet<_> = self.store().all_builds().await?.into_iter().map(|row| row.id).collect();
        let (places, active) =
            (self.builds().places().clone(), self.builds().active().keys().cloned().collect::<Vec<_>>());
        let known = known.into_iter().chain(active).collect();
        tokio::task::spawn_blocking(move || places.sweep_logs(&known)).await.map_err(ControlError::internal)
    }
}

/// How a build that failed ends its log.
fn failure_line(error: &str) -> String {
    format!("error: {error}")
}
