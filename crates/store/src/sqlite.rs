//! The store in one SQLite file.
//!
//! ```text
//! callers ─► queue ─► writer thread: one connection, many jobs per transaction (`writer`)
//!        └─► queue ─► reader threads: a read-only connection each (`reader`)
//! ```
//!
//! Threads do the work, so no task of the runtime ever blocks. A write is answered after its commit and a read begins after it is
//! asked for, so a read sees every write that was answered before. The database keeps a write-ahead log with `synchronous=NORMAL`:
//! a killed process loses nothing that was answered. What a loss of power must not take either (tenants, tokens, snapshots,
//! volumes, templates, keys) is committed with `FULL`.

mod builds;
mod column;
mod connect;
mod history;
mod job;
mod keys;
mod lane;
mod migrate;
mod query;
mod reader;
mod repls;
mod sandboxes;
mod snapshots;
mod templates;
mod tenants;
mod volumes;
mod writer;

use std::path::Path;

use async_trait::async_trait;
use domain::{BuildId, SandboxId, SnapshotId, TenantId, VolumeId};
use rusqlite::Connection;

use self::job::Durability::{Power, Process};
use self::lane::Lane;
use crate::{
    AuditRow, BuildChange, BuildRow, EventRow, NetworkMode, PreviewKey, ProvisionState, Published, Quota,
    ReplRow, SandboxChange, SandboxRow, SandboxVisitor, SnapshotRow, Store, StoreError, TemplateRow,
    TenantRow, TokenRow, VolumeRow,
};

/// The store in one SQLite file.
///
/// One process at a time may use it as a store. Dropping it does what [`Store::close`] does, but blocks.
pub struct SqliteStore {
    // In this order: the connection that closes last empties the log, and only the writer can.
    readers: Lane,
    writer: Lane,
}

impl SqliteStore {
    /// Opens the database, makes it when it is not there, and brings its schema up to date. Blocks; needs no runtime.
    ///
    /// The directory must exist. The file is made readable by its owner alone.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut db = connect::writer(path)?;
        migrate::migrate(&mut db, migrate::MIGRATIONS)?;
        let writer = Lane::open(|jobs| writer::start(db, jobs))?;
        let readers = Lane::open(|jobs| reader::start(path, jobs))?;
        Ok(Self { readers, writer })
    }

    async fn read<T, F>(&self, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    {
        self.readers.ask(Process, work).await
    }
}

/// Copies a database, as it is at one instant, to a file that is not there. It may be in use. Blocks.
pub fn copy_database(path: &Path, target: &Path) -> Result<(), StoreError> {
    let db = connect::reader(path)?;
    let target = target.to_str().ok_or_else(|| StoreError::Database("the target is not UTF-8".into()))?;
    db.execute("VACUUM INTO ?1", [target])?;
    Ok(())
}

#[async_trait]
impl Store for SqliteStore {
    async fn add_tenant(&self, tenant: TenantRow) -> Result<(), StoreError> {
        self.writer.ask(Power, move |db| tenants::add_tenant(db, &tenant)).await
    }

    async fn tenants(&self) -> Result<Vec<TenantRow>, StoreError> {
        self.read(tenants::tenants).await
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<TenantRow>, StoreError> {
        let id = id.clone();
        self.read(move |db| tenants::tenant(db, &id)).await
    }

    async fn set_network_default(
        &self,
        id: &TenantId,
        mode: Option<NetworkMode>,
    ) -> Result<bool, StoreError> {
        let id = id.clone();
        self.writer.ask(Power, move |db| tenants::set_network_default(db, &id, mode)).await
    }

    async fn set_quota(&self, id: &TenantId, quota: Option<Quota>) -> Result<bool, StoreError> {
        let id = id.clone();
        self.writer.ask(Power, move |db| tenants::set_quota(db, &id, quota.as_ref())).await
    }

    async fn add_token(&self, token: TokenRow) -> Result<(), StoreError> {
        self.writer.ask(Power, move |db| tenants::add_token(db, &token)).await
    }

    async fn token_by_hash(&self, hash: [u8; 32]) -> Result<Option<TokenRow>, StoreError> {
        self.read(move |db| tenants::token_by_hash(db, &hash)).await
    }

    async fn tokens(&self, tenant: &TenantId) -> Result<Vec<TokenRow>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |db| tenants::tokens(db, &tenant)).await
    }

    async fn revoke_token(&self, tenant: &TenantId, prefix: &str, at_ms: i64) -> Result<bool, StoreError> {
        let (tenant, prefix) = (tenant.clone(), prefix.to_owned());
        self.writer.ask(Power, move |db| tenants::revoke_token(db, &tenant, &prefix, at_ms)).await
    }

    async fn add_sandboxes(&self, rows: Vec<SandboxRow>, quota: &Quota) -> Result<(), StoreError> {
        let quota = quota.clone();
        self.writer.ask(Process, move |db| sandboxes::add_all(db, &rows, &quota)).await
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRow>, StoreError> {
        let id = id.clone();
        self.read(move |db| sandboxes::one(db, &id)).await
    }

    async fn sandbox_named(&self, tenant: &TenantId, name: &str) -> Result<Option<SandboxRow>, StoreError> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.read(move |db| sandboxes::named(db, &tenant, &name)).await
    }

    async fn sandboxes_beginning_with(
        &self,
        tenant: &TenantId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<SandboxRow>, StoreError> {
        let (tenant, prefix) = (tenant.clone(), prefix.to_owned());
        self.read(move |db| sandboxes::beginning_with(db, &tenant, &prefix, limit)).await
    }

    async fn sandboxes(&self, tenant: &TenantId) -> Result<Vec<SandboxRow>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |db| sandboxes::of_tenant(db, &tenant)).await
    }

    async fn all_sandboxes(&self) -> Result<Vec<SandboxRow>, StoreError> {
        self.read(sandboxes::everybodys).await
    }

    async fn visit_sandboxes(
        &self,
        tenant: Option<&TenantId>,
        mut visit: SandboxVisitor,
    ) -> Result<(), StoreError> {
        let tenant = tenant.cloned();
        self.read(move |db| sandboxes::visit(db, tenant.as_ref(), &mut *visit)).await
    }

    async fn sandboxes_of_tree(&self, tenant: &TenantId, tree: &str) -> Result<Vec<SandboxRow>, StoreError> {
        let (tenant, tree) = (tenant.clone(), tree.to_owned());
        self.read(move |db| sandboxes::of_tree(db, &tenant, &tree)).await
    }

    async fn change_sandbox(&self, id: &SandboxId, change: SandboxChange) -> Result<bool, StoreError> {
        let id = id.clone();
        self.writer.ask(Process, move |db| sandboxes::change_one(db, &id, &change)).await
    }

    async fn touch_sandboxes(&self, used: Vec<(SandboxId, i64)>) -> Result<(), StoreError> {
        self.writer.ask(Process, move |db| sandboxes::touch(db, &used)).await
    }

    async fn remove_sandbox(&self, id: &SandboxId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.writer.ask(Process, move |db| sandboxes::remove(db, &id)).await
    }

    async fn add_snapshot(&self, row: SnapshotRow) -> Result<(), StoreError> {
        self.writer.ask(Power, move |db| snapshots::add_one(db, &row)).await
    }

    async fn snapshot(&self, id: &SnapshotId) -> Result<Option<SnapshotRow>, StoreError> {
        let id = id.clone();
        self.read(move |db| snapshots::one(db, &id)).await
    }

    async fn snapshots(
        &self,
        tenant: &TenantId,
        sandbox: Option<&SandboxId>,
    ) -> Result<Vec<SnapshotRow>, StoreError> {
        let (tenant, sandbox) = (tenant.clone(), sandbox.cloned());
        self.read(move |db| match &sandbox {
            Some(sandbox) => snapshots::of_sandbox(db, &tenant, sandbox),
            None => snapshots::of_tenant(db, &tenant),
        })
        .await
    }

    async fn snapshots_beginning_with(
        &self,
        tenant: &TenantId,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<SnapshotRow>, StoreError> {
        let (tenant, prefix) = (tenant.clone(), prefix.to_owned());
        self.read(move |db| snapshots::beginning_with(db, &tenant, &prefix, limit)).await
    }

    async fn all_snapshots(&self) -> Result<Vec<SnapshotRow>, StoreError> {
        self.read(snapshots::everybodys).await
    }

    async fn remove_snapshot(&self, id: &SnapshotId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.writer.ask(Power, move |db| snapshots::remove(db, &id)).await
    }

    async fn add_volume(&self, row: VolumeRow, quota: &Quota) -> Result<(), StoreError> {
        let quota = quota.clone();
        self.writer.ask(Power, move |db| volumes::add_one(db, &row, &quota)).await
    }

    async fn volume(&self, tenant: &TenantId, name: &str) -> Result<Option<VolumeRow>, StoreError> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.read(move |db| volumes::one(db, &tenant, &name)).await
    }

    async fn volumes(&self, tenant: &TenantId) -> Result<Vec<VolumeRow>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |db| volumes::of_tenant(db, &tenant)).await
    }

    async fn all_volumes(&self) -> Result<Vec<VolumeRow>, StoreError> {
        self.read(volumes::everybodys).await
    }

    async fn change_volume(
        &self,
        id: &VolumeId,
        size_mib: u64,
        standing: ProvisionState,
    ) -> Result<bool, StoreError> {
        let id = id.clone();
        self.writer.ask(Power, move |db| volumes::change_one(db, &id, size_mib, standing)).await
    }

    async fn grow_volume(&self, id: &VolumeId, size_mib: u64, quota: &Quota) -> Result<bool, StoreError> {
        let (id, quota) = (id.clone(), quota.clone());
        self.writer.ask(Power, move |db| volumes::grow_one(db, &id, size_mib, &quota)).await
    }

    async fn remove_volume(&self, id: &VolumeId) -> Result<bool, StoreError> {
        let id = id.clone();
        self.writer.ask(Power, move |db| volumes::remove(db, &id)).await
    }

    async fn add_build(&self, row: BuildRow, quota: &Quota) -> Result<(), StoreError> {
        let quota = quota.clone();
        self.writer.ask(Power, move |db| builds::add_one(db, &row, &quota)).await
    }

    async fn build(&self, tenant: &TenantId, id: &BuildId) -> Result<Option<BuildRow>, StoreError> {
        let (tenant, id) = (tenant.clone(), id.clone());
        self.read(move |db| builds::one(db, &tenant, &id)).await
    }

    async fn builds(&self, tenant: &TenantId) -> Result<Vec<BuildRow>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |db| builds::of_tenant(db, &tenant)).await
    }

    async fn all_builds(&self) -> Result<Vec<BuildRow>, StoreError> {
        self.read(builds::everybodys).await
    }

    async fn builds_to_do(&self) -> Result<Vec<BuildRow>, StoreError> {
        self.read(builds::to_do).await
    }

    async fn change_build(&self, id: &BuildId, change: BuildChange) -> Result<bool, StoreError> {
        let id = id.clone();
        self.writer.ask(Power, move |db| builds::change_one(db, &id, &change)).await
    }

    async fn fail_build(&self, id: &BuildId, error: &str, at_ms: i64) -> Result<bool, StoreError> {
        let (id, error) = (id.clone(), error.to_owned());
        self.writer.ask(Power, move |db| builds::fail(db, &id, &error, at_ms)).await
    }

    async fn publish_template(&self, row: TemplateRow) -> Result<Published, StoreError> {
        self.writer.ask(Power, move |db| templates::publish(db, &row)).await
    }

    async fn template(&self, tenant: &TenantId, name: &str) -> Result<Option<TemplateRow>, StoreError> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.read(move |db| templates::one(db, &tenant, &name)).await
    }

    async fn templates(&self, tenant: &TenantId) -> Result<Vec<TemplateRow>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |db| templates::of_tenant(db, &tenant)).await
    }

    async fn all_templates(&self) -> Result<Vec<TemplateRow>, StoreError> {
        self.read(templates::everybodys).await
    }

    async fn remove_template(
        &self,
        tenant: &TenantId,
        name: &str,
    ) -> Result<Option<TemplateRow>, StoreError> {
        let (tenant, name) = (tenant.clone(), name.to_owned());
        self.writer.ask(Power, move |db| templates::remove(db, &tenant, &name)).await
    }

    async fn add_event(&self, event: EventRow) -> Result<(), StoreError> {
        self.writer.ask(Process, move |db| history::add_event(db, &event)).await
    }

    async fn events(
        &self,
        tenant: &TenantId,
        sandbox: &SandboxId,
        newest: usize,
    ) -> Result<Vec<EventRow>, StoreError> {
        let (tenant, sandbox) = (tenant.clone(), sandbox.clone());
        self.read(move |db| history::events(db, &tenant, &sandbox, newest)).await
    }

    async fn add_audit(&self, rows: Vec<AuditRow>) -> Result<(), StoreError> {
        self.writer.ask(Process, move |db| history::add_audit(db, &rows)).await
    }

    async fn audit(
        &self,
        tenant: &TenantId,
        since_ms: i64,
        limit: usize,
    ) -> Result<Vec<AuditRow>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |db| history::audit(db, &tenant, since_ms, limit)).await
    }

    async fn add_repl(&self, row: ReplRow) -> Result<(), StoreError> {
        self.writer.ask(Process, move |db| repls::add_one(db, &row)).await
    }

    async fn repls(&self, sandbox: &SandboxId) -> Result<Vec<ReplRow>, StoreError> {
        let sandbox = sandbox.clone();
        self.read(move |db| repls::of_sandbox(db, &sandbox)).await
    }

    async fn repl(&self, sandbox: &SandboxId, id: &str) -> Result<Option<ReplRow>, StoreError> {
        let (sandbox, id) = (sandbox.clone(), id.to_owned());
        self.read(move |db| repls::one(db, &sandbox, &id)).await
    }

    async fn change_repl(&self, row: ReplRow) -> Result<bool, StoreError> {
        self.writer.ask(Process, move |db| repls::change_one(db, &row)).await
    }

    async fn remove_repl(&self, sandbox: &SandboxId, id: &str) -> Result<bool, StoreError> {
        let (sandbox, id) = (sandbox.clone(), id.to_owned());
        self.writer.ask(Process, move |db| repls::remove(db, &sandbox, &id)).await
    }

    async fn preview_key(&self, fresh: PreviewKey) -> Result<PreviewKey, StoreError> {
        self.writer.ask(Power, move |db| keys::preview_key(db, &fresh)).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.read(|db| query::first(db, "SELECT 1", (), |_| Ok(())).map(drop)).await?;
        self.writer.ask(Process, |_| Ok(())).await
    }

    async fn sync(&self) -> Result<(), StoreError> {
        let statement = "UPDATE sync_count SET count = count + 1";
        self.writer.ask(Power, |db| query::change(db, statement, ()).map(drop)).await
    }

    async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
    }
}
