//! Durable state behind one trait: who owns what, and what was asked for.
//!
//! What a machine is *doing* is the node's to know and to write down; rows here say that a sandbox is wanted, by whom, and how.
//! A row is written before the thing it names is made ([`SandboxRow::standing`]), so that after a crash whatever nobody was told
//! about can be removed, and whatever somebody was told about is there.
//!
//! Every method is one transaction. After `Err` nothing has changed.

mod error;
mod hidden;
mod rows;
mod sqlite;

use async_trait::async_trait;
use domain::{BuildId, SandboxId, SnapshotId, TenantId, VolumeId};

pub use error::StoreError;
pub use rows::{
    AuditRow, BuildChange, BuildRow, BuildSource, BuildStatus, EventRow, NetworkMode, PreviewKey,
    ProvisionState, Published, Quota, ReplRow, SandboxChange, SandboxRow, Scope, SnapshotRow, TemplateRow,
    TenantRow, TokenRow, VolumeAttachment, VolumeRow,
};
pub use sqlite::{SqliteStore, copy_database};

/// What is done with each of many sandboxes.
pub type SandboxVisitor = Box<dyn FnMut(SandboxRow) + Send>;

/// Durable state. Lists come newest first.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Adds a tenant.
    async fn add_tenant(&self, tenant: TenantRow) -> Result<(), StoreError>;
    /// All tenants.
    async fn tenants(&self) -> Result<Vec<TenantRow>, StoreError>;
    /// One tenant.
    async fn tenant(&self, id: &TenantId) -> Result<Option<TenantRow>, StoreError>;
    /// Changes what a tenant's sandboxes reach when their caller does not say; `false` when there is no such tenant.
    async fn set_network_default(&self, id: &TenantId, mode: Option<NetworkMode>)
    -> Result<bool, StoreError>;
    /// Changes what a tenant may have; without limits of its own it may have the usual. `false` when there is no such tenant.
    async fn set_quota(&self, id: &TenantId, quota: Option<Quota>) -> Result<bool, StoreError>;

    /// Adds a token. [`StoreError::Exists`] when its prefix or hash is taken.
    async fn add_token(&self, token: TokenRow) -> Result<(), StoreError>;
    /// The token with this hash, revoked or expired ones too.
    async fn token_by_hash(&self, hash: [u8; 32]) -> Result<Option<TokenRow>, StoreError>;
    /// A tenant's tokens that are not revoked.
    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>, StoreError>;
    /// Revokes a token; `false` when the tenant has none of that prefix.
    async fn revoke_token(&self, tenant: &TenantId, prefix: &str, at_ms: i64) -> Result<bool, StoreError>;

    /// Adds sandboxes, all or none, unless the tenant would then have more of them, of their CPUs or of their memory than its own
    /// quota allows, or `quota` when it has none of its own, counting every row that is there: then [`StoreError::Quota`]. The check
    /// and the insert are one transaction. [`StoreError::Exists`] when the tenant has one of a name among them.
    async fn add_sandboxes(&self, rows: Vec<SandboxRow>, quota: &Quota) -> Result<(), StoreError>;
    /// One sandbox, whoever owns it.
    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRow>, StoreError>;
    /// A tenant's sandbox by name.
    async fn sandbox_named(&self, tenant: &TenantId, name: &str) -> Result<Option<SandboxRow>, StoreError>;
    /// A tenant's sandboxes whose id begins with a text of lowercase letters and digits, at most `limit` of them, by id.
    async fn sandboxes_beginning_with(
        &self,
        tenant: &TenantId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<SandboxRow>, StoreError>;
    /// A tenant's sandboxes whose standing is `Creating`, `Live` or `Deleting`.
    async fn sandboxes(&self, tenant: &TenantId) -> Result<Vec<SandboxRow>, StoreError>;
    /// Everybody's sandboxes, for recovery.
    async fn all_sandboxes(&self) -> Result<Vec<SandboxRow>, StoreError>;
    /// Shows sandboxes one by one, so that not all are in memory at once: a tenant's newest first, or everybody's in any order. `visit` is called on a thread of
    /// the store and must not wait for anything.
    async fn visit_sandboxes(
        &self,
        tenant: Option<&TenantId>,
        visit: SandboxVisitor,
    ) -> Result<(), StoreError>;
    /// A tenant's sandboxes of one fork tree.
    async fn sandboxes_of_tree(&self, tenant: &TenantId, tree: &str) -> Result<Vec<SandboxRow>, StoreError>;
    /// Changes a sandbox; `false` when it is not there. [`StoreError::Exists`] when the tenant has another of the new name.
    async fn change_sandbox(&self, id: &SandboxId, change: SandboxChange) -> Result<bool, StoreError>;
    /// Writes down when sandboxes were last used; unknown ids are ignored.
    async fn touch_sandboxes(&self, used: Vec<(SandboxId, i64)>) -> Result<(), StoreError>;
    /// Forgets a sandbox and its REPL contexts; its events stay. `false` when it is not there.
    async fn remove_sandbox(&self, id: &SandboxId) -> Result<bool, StoreError>;

    /// Adds a snapshot.
    async fn add_snapshot(&self, row: SnapshotRow) -> Result<(), StoreError>;
    /// One snapshot, whoever owns it.
    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRow>, StoreError>;
    /// A tenant's snapshots, of one sandbox when given.
    async fn snapshots(
        &self,
        tenant: &TenantId,
        sandbox: Option<&SandboxId>,
    ) -> Result<Vec<SnapshotRow>, StoreError>;
    /// A tenant's snapshots whose id begins with a text of lowercase letters and digits, at most `limit` of them, by id.
    async fn snapshots_beginning_with(
        &self,
        tenant: &TenantId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<SnapshotRow>, StoreError>;
    /// Everybody's, for recovery.
    async fn all_snapshots(&self) -> Result<Vec<SnapshotRow>, StoreError>;
    /// Forgets a snapshot; `false` when it is not there.
    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<bool, StoreError>;

    /// Adds a volume. [`StoreError::Exists`] when the tenant has one of that name; [`StoreError::Quota`] beyond the tenant's limits.
    async fn add_volume(&self, row: VolumeRow, quota: &Quota) -> Result<(), StoreError>;
    /// A tenant's volume by name.
    async fn volume(&self, tenant: &TenantId, name: &str) -> Result<Option<VolumeRow>, StoreError>;
    /// A tenant's volumes.
    async fn volumes(&self, tenant: &TenantId) -> Result<Vec<VolumeRow>, StoreError>;
    /// Everybody's, for recovery.
    async fn all_volumes(&self) -> Result<Vec<VolumeRow>, StoreError>;
    /// Changes a volume's size and standing.
    async fn change_volume(
        &self,
        id: &VolumeId,
        size_mib: u64,
        standing: ProvisionState,
    ) -> Result<bool, StoreError>;
    /// Makes a volume larger, never smaller. [`StoreError::Quota`] beyond the tenant's limits, `false` when it is not there.
    async fn grow_volume(&self, id: &VolumeId, size_mib: u64, quota: &Quota) -> Result<bool, StoreError>;
    /// Forgets a volume.
    async fn remove_volume(&self, id: &VolumeId) -> Result<bool, StoreError>;

    /// Adds a build. [`StoreError::Exists`] when it may not take another's place and the tenant has a template of that name, or a
    /// build of one that has not ended; [`StoreError::Quota`] when the tenant would then have more templates, or more builds that
    /// have not ended, than it may. Only the newest [`BUILDS_PER_TENANT_MAX`] of a tenant's that ended are kept.
    async fn add_build(&self, row: BuildRow, quota: &Quota) -> Result<(), StoreError>;
    /// A tenant's build.
    async fn build(&self, tenant: &TenantId, id: &BuildId) -> Result<Option<BuildRow>, StoreError>;
    /// A tenant's builds.
    async fn builds(&self, tenant: &TenantId) -> Result<Vec<BuildRow>, StoreError>;
    /// Everybody's builds, for recovery.
    async fn all_builds(&self) -> Result<Vec<BuildRow>, StoreError>;
    /// Everybody's builds that have not ended, the oldest first.
    async fn builds_to_do(&self) -> Result<Vec<BuildRow>, StoreError>;
    /// Changes a build; `false` when it has ended or is not there.
    async fn change_build(&self, id: &BuildId, change: BuildChange) -> Result<bool, StoreError>;
    /// Ends a build that came to nothing; `false` when it had ended or is not there.
    async fn fail_build(&self, id: &BuildId, error: &str, at_ms: i64) -> Result<bool, StoreError>;

    /// Ends a build whose template is made and makes the template known, in place of one of that name.
    async fn publish_template(&self, row: TemplateRow) -> Result<Published, StoreError>;
    /// A tenant's template by name.
    async fn template(&self, tenant: &TenantId, name: &str) -> Result<Option<TemplateRow>, StoreError>;
    /// A tenant's templates.
    async fn templates(&self, tenant: &TenantId) -> Result<Vec<TemplateRow>, StoreError>;
    /// Everybody's, for recovery.
    async fn all_templates(&self) -> Result<Vec<TemplateRow>, StoreError>;
    /// Forgets a template; the row it had.
    async fn remove_template(&self, tenant: &TenantId, name: &str)
    -> Result<Option<TemplateRow>, StoreError>;

    /// Adds an event. Only the newest [`EVENTS_PER_SANDBOX_MAX`] of a sandbox are kept.
    async fn add_event(&self, event: EventRow) -> Result<(), StoreError>;
    /// A sandbox's newest events, oldest of them first.
    async fn events(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        newest: usize,
    ) -> Result<Vec<EventRow>, StoreError>;

    /// Adds lines to the audit log. Only the newest [`AUDIT_ROWS_MAX`] are kept.
    async fn add_audit(&self, rows: Vec<AuditRow>) -> Result<(), StoreError>;
    /// A tenant's audit lines since a time, newest first.
    async fn audit(
        &self,
        tenant: &TenantId,
        since_ms: i64,
        limit: usize,
    ) -> Result<Vec<AuditRow>, StoreError>;

    /// Adds a REPL context.
    async fn add_repl(&self, row: ReplRow) -> Result<(), StoreError>;
    /// A sandbox's REPL contexts.
    async fn repls(&self, sandbox: &SandboxId) -> Result<Vec<ReplRow>, StoreError>;
    /// One REPL context of a sandbox.
    async fn repl(&self, sandbox: &SandboxId, id: &str) -> Result<Option<ReplRow>, StoreError>;
    /// Counts a cell and remembers what the interpreter wants remembered.
    async fn change_repl(&self, row: ReplRow) -> Result<bool, StoreError>;
    /// Forgets a REPL context.
    async fn remove_repl(&self, sandbox: &SandboxId, id: &str) -> Result<bool, StoreError>;

    /// The key that signs preview links; made with `fresh` at first use.
    async fn preview_key(&self, fresh: PreviewKey) -> Result<PreviewKey, StoreError>;

    /// Whether the store answers, for health checks.
    async fn ping(&self) -> Result<(), StoreError>;
    /// Waits until everything written so far survives a loss of power.
    async fn sync(&self) -> Result<(), StoreError>;
    /// Finishes what is under way and closes.
    async fn close(&self);
}

/// Events kept of one sandbox; older ones are dropped.
pub const EVENTS_PER_SANDBOX_MAX: usize = 1000;
/// Events kept in all, those of sandboxes that are gone included; the oldest are dropped, whosever they are.
pub const EVENTS_MAX: usize = 1_000_000;
/// Builds kept of one tenant, apart from those that have not ended; older ones are dropped.
pub const BUILDS_PER_TENANT_MAX: usize = 200;
/// Audit lines kept in all; older ones are dropped.
pub const AUDIT_ROWS_MAX: usize = 200_000;
