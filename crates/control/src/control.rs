//! All services together.

use std::sync::Arc;
use std::time::Duration;

use builder::{BuildError, Builder};
use domain::TenantId;
use node::Node;
use rustix::rand::{GetRandomFlags, getrandom};
use store::{PreviewKey, Quota, Store, StoreError, TenantRow};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::activity::Activity;
use crate::audit::AuditLog;
use crate::authenticate::KnownTokens;
use crate::builds::{self, Builds};
use crate::config::ControlConfig;
use crate::console::Consoles;
use crate::contexts::OpenContexts;
use crate::error::{ControlError, Kind};
use crate::events::Broadcaster;
use crate::measure::Measurements;
use crate::rate::{Rates, TOOL_CALLS_PER_MINUTE};
use crate::templates::Templates;
use crate::{reaper, recovery};

/// How long what is under way gets to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);

/// The services. Cheap to clone.
#[derive(Clone)]
pub struct Control {
    inner: Arc<Inner>,
}

struct Inner {
    config: ControlConfig,
    store: Arc<dyn Store>,
    node: Node,
    templates: Templates,
    builds: Builds,
    activity: Activity,
    broadcaster: Broadcaster,
    audit: AuditLog,
    tokens: KnownTokens,
    rates: Rates,
    tool_rates: Rates,
    consoles: Consoles,
    contexts: OpenContexts,
    measurements: Measurements,
    preview_key: PreviewKey,
    tasks: TaskTracker,
    closing: CancellationToken,
}

/// Why the services could not be started.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The store failed.
    #[error("could not read what was kept")]
    Store(#[from] StoreError),
    /// No random numbers.
    #[error("could not get random numbers")]
    Random(#[source] std::io::Error),
    /// Nothing can be built.
    #[error("could not open the builder")]
    Builder(#[source] BuildError),
    /// Builds have nowhere to keep their files.
    #[error("could not make the directories of builds")]
    Builds(#[source] std::io::Error),
}

impl Control {
    /// Starts the services: finds what an earlier process left, finishes or removes what was under way.
    pub async fn open(config: ControlConfig, store: Arc<dyn Store>, node: Node) -> Result<Self, OpenError> {
        let preview_key = store.preview_key(PreviewKey(random().map_err(OpenError::Random)?)).await?;
        let (audit, write_audit) = AuditLog::new(Arc::clone(&store));
        let tasks = TaskTracker::new();
        tasks.spawn(write_audit);
        let builder =
            Builder::new(node.clone(), config.builds.builder.clone()).map_err(OpenError::Builder)?;
        let builds = Builds::new(builder, node.builds_directory()).map_err(OpenError::Builds)?;
        let inner = Inner {
            rates: Rates::new(config.rate_burst, config.rate_per_second),
            tool_rates: Rates::new(TOOL_CALLS_PER_MINUTE, TOOL_CALLS_PER_MINUTE / 60.0),
            config,
            store,
            templates: Templates::new(),
            builds,
            node,
            activity: Activity::default(),
            broadcaster: Broadcaster::default(),
            audit,
            tokens: KnownTokens::default(),
            consoles: Consoles::default(),
            contexts: OpenContexts::default(),
            measurements: Measurements::default(),
            preview_key,
            tasks,
            closing: CancellationToken::new(),
        };
        let control = Self { inner: Arc::new(inner) };
        recovery::recover(&control).await?;
        control.inner.tasks.spawn(reaper::run(control.clone()));
        control.adopt_prepared_templates().await?;
        control.inner.tasks.spawn(builds::run(control.clone()));
        Ok(control)
    }

    /// Lets what is under way finish, then closes the node (machines go on) and the store.
    pub async fn close(self) {
        self.inner.closing.cancel();
        self.write_activity().await;
        let (store, node, tasks) = (self.store().clone(), self.node().clone(), self.inner.tasks.clone());
        let builder = self.builds().builder().clone();
        tasks.close();
        drop(self);
        let drained = async move {
            tasks.wait().await;
            builder.close().await;
        };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            tracing::warn!("some work was still under way and is finished or undone at the next start");
        }
        node.close().await;
        if let Err(error) = store.sync().await {
            tracing::error!(%error, "what was kept last may not survive a loss of power");
        }
        store.close().await;
    }

    /// The settings.
    pub fn config(&self) -> &ControlConfig {
        &self.inner.config
    }

    pub(crate) fn store(&self) -> &Arc<dyn Store> {
        &self.inner.store
    }

    pub(crate) fn node(&self) -> &Node {
        &self.inner.node
    }

    pub(crate) fn templates(&self) -> &Templates {
        &self.inner.templates
    }

    pub(crate) fn builds(&self) -> &Builds {
        &self.inner.builds
    }

    pub(crate) fn activity(&self) -> &Activity {
        &self.inner.activity
    }

    pub(crate) fn broadcaster(&self) -> &Broadcaster {
        &self.inner.broadcaster
    }

    pub(crate) fn audit_log(&self) -> &AuditLog {
        &self.inner.audit
    }

    pub(crate) fn known_tokens(&self) -> &KnownTokens {
        &self.inner.tokens
    }

    pub(crate) fn rates(&self) -> &Rates {
        &self.inner.rates
    }

    pub(crate) fn tool_rates(&self) -> &Rates {
        &self.inner.tool_rates
    }

    pub(crate) fn consoles(&self) -> &Consoles {
        &self.inner.consoles
    }

    pub(crate) fn open_contexts(&self) -> &OpenContexts {
        &self.inner.contexts
    }

    /// What is measured.
    pub fn measurements(&self) -> &Measurements {
        &self.inner.measurements
    }

    pub(crate) fn preview_key(&self) -> &PreviewKey {
        &self.inner.preview_key
    }

    /// Ends when the server goes down: what would go on for ever must watch it.
    pub fn closing(&self) -> &CancellationToken {
        &self.inner.closing
    }

    pub(crate) fn tasks(&self) -> &TaskTracker {
        &self.inner.tasks
    }

    /// Looks after what belongs to no request any more, such as a connection that became a WebSocket. It is cut off when the server
    /// goes down.
    pub fn attend(&self, work: impl Future<Output = ()> + Send + 'static) {
        let closing = self.inner.closing.clone();
        self.inner.tasks.spawn(async move {
            tokio::select! {
                () = work => {}
                () = closing.cancelled() => {}
            }
        });
    }

    /// Runs work to its end even when the caller goes away.
    pub(crate) async fn finish<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, ControlError>> + Send + 'static,
    ) -> Result<T, ControlError> {
        let outcome = self.inner.tasks.spawn(work.in_current_span()).await;
        outcome.unwrap_or_else(|error| Err(ControlError::internal(error)))
    }

    /// What a tenant may have.
    pub(crate) async fn quota(&self, tenant: &TenantId) -> Result<Quota, ControlError> {
        Ok(self.tenant(tenant).await?.quota.unwrap_or_else(|| self.inner.config.quota.clone()))
    }

    pub(crate) async fn tenant(&self, tenant: &TenantId) -> Result<TenantRow, ControlError> {
        let found = self.store().tenant(tenant).await?;
        found.ok_or_else(|| ControlError::new(Kind::Unauthorized, "this key's workspace is gone"))
    }

    /// What a health check tells: each part, and whether it works.
    pub async fn health(&self) -> Vec<(&'static str, Result<String, String>)> {
        let store = match tokio::time::timeout(Duration::from_secs(5), self.store().ping()).await {
            Ok(Ok(())) => Ok("ok".to_owned()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("no answer within 5 s".to_owned()),
        };
        let stats = self.node().stats();
        let sandboxes: usize = stats.sandboxes.values().sum();
        let disk = match stats.pool_free_bytes {
            0 => Err("no disk space is left".to_owned()),
            bytes => Ok(format!("{} MiB free", bytes >> 20)),
        };
        vec![("database", store), ("node", Ok(format!("{sandboxes} sandboxes"))), ("disk", disk)]
    }
}

/// Random bytes of the kernel.
pub(crate) fn random<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        filled += getrandom(&mut bytes[filled..], GetRandomFlags::empty())?;
    }
    Ok(bytes)
}
