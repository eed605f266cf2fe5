//! Does builds one after the other, or a few at once: the oldest first, those of one name never together.

use std::sync::Arc;
use std::time::{Duration, Instant};

use builder::{BuildError, BuildLog, BuildRequest, BuiltDisk};
use node::{BakeProgress, BakeStage, NodeError};
use store::{BuildChange, BuildRow, BuildStatus, Published, TemplateRow};
use tokio_util::sync::CancellationToken;

use super::log::LogFile;
use super::{Active, CANCELLED, failure_line, source};
use crate::clock::now_ms;
use crate::control::Control;
use crate::error::ControlError;
use crate::templates::{OwnTemplate, describe};

/// How often a build is begun. One that the server did not survive that often is given up.
const ATTEMPTS_MAX: u32 = 3;
/// How soon the store is asked again after it failed.
const AFTER_FAILURE: Duration = Duration::from_secs(5);

/// Runs until the server goes down.
pub(crate) async fn run(control: Control) {
    loop {
        let failed = match control.begin_builds().await {
            Ok(()) => false,
            Err(error) => {
                tracing::error!(?error, "builds could not be looked for");
                true
            }
        };
        tokio::select! {
            () = control.closing().cancelled() => return,
            () = control.builds().nudged.notified() => {}
            () = tokio::time::sleep(AFTER_FAILURE), if failed => {}
        }
    }
}

/// Why a build stopped.
enum Stop {
    /// For good, with a sentence for whoever asked.
    Failed(String),
    /// Somebody cancelled it and was told so.
    Cancelled,
    /// The server goes down; the next one begins it again.
    Closing,
}

impl From<ControlError> for Stop {
    fn from(error: ControlError) -> Self {
        Self::Failed(error.message)
    }
}

impl Control {
    /// Begins as many builds as may run.
    async fn begin_builds(&self) -> Result<(), ControlError> {
        for row in self.store().builds_to_do().await? {
            if self.closing().is_cancelled() {
                return Ok(());
            }
            let active = {
                let mut active = self.builds().active();
                if active.len() >= self.config().builds.at_once.max(1) {
                    return Ok(());
                }
                let same = |other: &Active| other.tenant == row.tenant && other.name == row.name;
                if active.contains_key(&row.id) || active.values().any(same) {
                    continue;
                }
                let log = match LogFile::open(&self.builds().places().log(&row.id)) {
                    Ok(log) => Arc::new(log),
                    Err(error) => return Err(ControlError::internal(error)),
                };
                let cancelled = CancellationToken::new();
                let entry = Active { tenant: row.tenant.clone(), name: row.name.clone(), log, cancelled };
                active.insert(row.id.clone(), entry.clone());
                entry
            };
            let control = self.clone();
            self.tasks().spawn(async move {
                let id = row.id.clone();
                control.perform(row, &active).await;
                control.builds().active().remove(&id);
                control.builds().nudge();
            });
        }
        Ok(())
    }

    /// Does one build to its end, whichever that is.
    async fn perform(&self, row: BuildRow, active: &Active) {
        let started = Instant::now();
        let outcome = self.attempt(&row, active).await;
        let (word, failure) = match outcome {
            Ok(()) => ("done", None),
            Err(Stop::Closing) => {
                // A stop that was asked for is no attempt.
                let change = BuildChange {
                    status: Some(BuildStatus::Queued),
                    attempts: Some(row.attempts),
                    ..BuildChange::default()
                };
                if let Err(error) = self.store().change_build(&row.id, change).await {
                    tracing::warn!(%error, build.id = %row.id, "a build that the next server begins again was counted");
                }
                return;
            }
            Err(Stop::Cancelled) => {
                active.log.end(&failure_line(CANCELLED));
                (CANCELLED, None)
            }
            Err(Stop::Failed(sentence)) => ("failed", Some(sentence)),
        };
        if let Some(sentence) = failure {
            active.log.end(&failure_line(&sentence));
            if let Err(error) = self.store().fail_build(&row.id, &sentence, now_ms()).await {
                tracing::error!(%error, build.id = %row.id, "that a build failed was not written down");
                return;
            }
        }
        self.measurements().built(word, started.elapsed());
        tracing::info!(build.id = %row.id, tenant.id = %row.tenant, "a build ended: {word}");
        self.forget_upload(row.id.clone()).await;
        if let Err(error) = self.sweep_build_logs().await {
            tracing::warn!(?error, "logs of builds were not looked through");
        }
    }

    async fn attempt(&self, row: &BuildRow, active: &Active) -> Result<(), Stop> {
        if row.attempts >= ATTEMPTS_MAX {
            return Err(Stop::Failed(format!(
                "the server ended {ATTEMPTS_MAX} times while it was building this"
            )));
        }
        if row.attempts > 0 {
            active.log.line("the server was started again; so is this build");
        }
        let change = BuildChange {
            status: Some(BuildStatus::Running),
            attempts: Some(row.attempts + 1),
            started_ms: Some(now_ms()),
        };
        if !self.store().change_build(&row.id, change).await.map_err(ControlError::from)? {
            return Err(Stop::Cancelled);
        }
        let destination = self.builds().places().template(&row.id);
        let built = self.build_disk(row, active).await;
        let published = match built {
            Ok(built) => self.bake_and_publish(row, active, built).await,
            Err(stop) => Err(stop),
        };
        if published.is_err() {
            self.forget_machine_template(&row.id);
            let removed = tokio::task::spawn_blocking(move || super::places::remove(&destination)).await;
            if let Err(error) = removed {
                tracing::warn!(%error, build.id = %row.id, "the disk of a build that failed was not removed");
            }
        }
        published
    }

    /// Why something that was cut short was.
    fn stopped(&self, active: &Active) -> Option<Stop> {
        match (active.cancelled.is_cancelled(), self.closing().is_cancelled()) {
            (true, _) => Some(Stop::Cancelled),
            (false, true) => Some(Stop::Closing),
            (false, false) => None,
        }
    }

    async fn build_disk(&self, row: &BuildRow, active: &Active) -> Result<BuiltDisk, Stop> {
        let places = self.builds().places();
        let (upload, destination) = (places.upload(&row.id), places.template(&row.id));
        let context_bytes_max = self.config().builds.context_bytes_max;
        let source = tokio::task::spawn_blocking(move || source::source(&upload, context_bytes_max)).await;
        let source = source.map_err(ControlError::internal)?.map_err(Stop::Failed)?;
        let request =
            BuildRequest { source, owner: row.tenant.to_string(), disk_mib: row.disk_mib, destination };
        let stop = CancellationToken::new();
        let building = self.builds().builder.build(&request, &*active.log, &stop);
        tokio::pin!(building);
        let outcome = tokio::select! {
            outcome = &mut building => outcome,
            () = either(&active.cancelled, self.closing()) => {
                // It tidies up before it ends.
                stop.cancel();
                building.await
            }
        };
        outcome.map_err(|error| self.stopped(active).unwrap_or_else(|| build_failed(row, &error)))
    }

    async fn bake_and_publish(&self, row: &BuildRow, active: &Active, built: BuiltDisk) -> Result<(), Stop> {
        let change = BuildChange { status: Some(BuildStatus::Baking), ..BuildChange::default() };
        if !self.store().change_build(&row.id, change).await.map_err(ControlError::from)? {
            return Err(Stop::Cancelled);
        }
        let length = tokio::fs::metadata(&built.disk).await.map_err(ControlError::internal)?.len();
        let template = TemplateRow {
            build: row.id.clone(),
            tenant: row.tenant.clone(),
            name: row.name.clone(),
            disk_mib: u32::try_from(length >> 20).unwrap_or(u32::MAX),
            cpus: row.cpus,
            memory_mib: row.memory_mib,
            config: OwnTemplate::recipe(&built)?,
            digest: built.digest.clone(),
            bytes: built.bytes,
            image_ref: row.image_ref.clone(),
            created_ms: 0,
        };
        let own = self.own_template(&template)?;
        let log = Arc::clone(&active.log);
        let report = move |progress: BakeProgress| {
            if !matches!(progress.stage, BakeStage::Ready) {
                log.line(&describe(&progress.stage));
            }
        };
        let snapshot = tokio::select! {
            baked = self.node().built_template(&own.built, &report) => baked,
            () = either(&active.cancelled, self.closing()) => Err(NodeError::Closing),
        };
        let snapshot = snapshot
            .map_err(|error| self.stopped(active).unwrap_or_else(|| bake_failed(row, &own, error)))?;
        let template = TemplateRow { created_ms: now_ms(), ..template };
        match self.store().publish_template(template).await.map_err(ControlError::from)? {
            Published::Ended => Err(Stop::Cancelled),
            Published::Yes(previous) => {
                self.own_template_ready(&own, snapshot);
                active.log.end(&format!("template {} is ready", row.name));
                if let Some(previous) = previous {
                    self.forget_template(previous).await;
                }
                Ok(())
            }
        }
    }
}

/// Ends when one of them does.
async fn either(one: &CancellationToken, other: &CancellationToken) {
    tokio::select! {
        () = one.cancelled() => {}
        () = other.cancelled() => {}
    }
}

fn build_failed(row: &BuildRow, error: &BuildError) -> Stop {
    if !error.is_users_fault() {
        tracing::error!(?error, build.id = %row.id, "a template could not be built");
    }
    Stop::Failed(error.to_string())
}

fn bake_failed(row: &BuildRow, own: &OwnTemplate, error: NodeError) -> Stop {
    match &error {
        // What its own commands said, and what it says about itself, is for whoever wrote it.
        NodeError::NotStarted { .. } | NodeError::Defaults { .. } | NodeError::Shape(_) => {
            Stop::Failed(error.to_string().replace(own.key(), &row.name))
        }
        _ => {
            tracing::error!(?error, build.id = %row.id, "a template that was built could not be prepared");
            Stop::Failed(format!("the template was built but does not start: {}", ControlError::from(error)))
        }
    }
}
