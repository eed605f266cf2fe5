//! Making sandboxes.
//!
//! ```text
//! checked ─► row `Creating` (quota in the same transaction) ─► machine restored, guest confirmed ─► row `Live` ─► answered
//! ```
//!
//! Killed before the row is `Live`, nobody was told, and the next start removes whatever is there.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use contract::sandbox::{CreateSandbox, CreateTimings, Sandbox};
use domain::{HostName, SandboxId, SnapshotId};
use node::{CreateFrom, CreateRequest, RestoreTimings};
use serde_json::json;
use store::{NetworkMode, ProvisionState, SandboxChange, SandboxRow, Scope};
use tracing::field::Empty;
use tracing::{Instrument, Span, info_span};

use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::{Control, random};
use crate::error::{ControlError, Kind};
use crate::names;
use crate::operation::{operation, traced};
use crate::sandboxes::stored_mode;
use crate::templates::AskedSize;
use crate::view::view;
use crate::volumes::node_volumes;

/// The template of a caller who names none.
const TEMPLATE_DEFAULT: &str = "base";

/// What a sandbox starts from.
struct Origin {
    snapshot: SnapshotId,
    template: String,
    /// What the node knows the template by, where it is one.
    key: Option<String>,
    cpus: u32,
    memory_mib: u32,
    /// The sandboxes it comes from.
    ancestors: Vec<SandboxId>,
}

impl Control {
    /// Makes a sandbox. When this returns, its guest takes commands. A caller that would rather hear how far its template is than wait for
    /// it says how long it waits.
    pub async fn create_sandbox(
        &self,
        caller: &Caller,
        request: CreateSandbox,
        wait: Option<Duration>,
    ) -> Result<Sandbox, ControlError> {
        let longest = self.config().template_patience;
        let wait = wait.map_or(longest, |wait| wait.min(longest));
        caller.require(Scope::Write)?;
        let metadata = request.metadata.clone().unwrap_or_default();
        names::metadata(&metadata)?;
        let env = request.env.clone().unwrap_or_default();
        names::env(&env)?;
        let name = request.name.as_deref().map(names::sandbox_name).transpose()?;
        let ttl_seconds = self.ttl(request.ttl_seconds)?;
        let disk_bytes = self.disk_bytes(request.disk_gb)?;
        let volumes = self.attachments(caller, request.volumes.as_deref().unwrap_or_default()).await?;
        let size = AskedSize::parse(request.cpu, request.memory_mb)?;
        let network = self.network_of(caller, request.network).await?;
        let origin = self.origin(caller, &request, size, wait).await?;
        let now = now_ms();
        let row = SandboxRow {
            id: SandboxId::from_random(random().map_err(ControlError::internal)?),
            tenant: caller.tenant.clone(),
            standing: ProvisionState::Creating,
            template: origin.template.clone(),
            from_snapshot: request.from_snapshot.as_ref().map(|_| origin.snapshot.clone()),
            name,
            parent: None,
            ancestors: origin.ancestors,
            tree: None,
            fork_index: None,
            metadata,
            env,
            ports: BTreeMap::new(),
            ttl_seconds,
            persistent: request.persistent.unwrap_or(false),
            network,
            volumes,
            cpus: origin.cpus,
            memory_mib: origin.memory_mib,
            created_ms: now,
            used_ms: now,
            boot_ms: None,
            boot_mode: "snapshot".to_owned(),
            timings: None,
        };
        let mut outcome = self.make_traced(row.clone(), origin.snapshot.clone(), disk_bytes).await;
        let gone = matches!(&outcome, Err(error) if error.kind == Kind::NotFound);
        if gone && let Some(key) = &origin.key {
            // Another template took the place of the one that was found, or a size of it that was not used for long has gone.
            self.templates().forget(key);
            let Origin { snapshot, template, cpus, memory_mib, .. } =
                self.origin(caller, &request, size, wait).await?;
            let row = SandboxRow { template, cpus, memory_mib, ..row };
            outcome = self.make_traced(row, snapshot, disk_bytes).await;
        }
        match &mut outcome {
            Ok(sandbox) => sandbox.warnings = self.network_warnings(network),
            Err(error) => self.measurements().create_failed(error.kind),
        }
        outcome
    }

    /// Makes a sandbox in a task and a span of its own.
    async fn make_traced(
        &self,
        row: SandboxRow,
        snapshot: SnapshotId,
        disk_bytes: Option<u64>,
    ) -> Result<Sandbox, ControlError> {
        let control = self.clone();
        let span = operation!("sandbox.create", row, template = %row.template, boot_ms = Empty);
        self.finish(async move { traced(span, control.make(row, snapshot, disk_bytes)).await }).await
    }

    /// Idle seconds as asked for.
    pub(crate) fn ttl(&self, asked: Option<i64>) -> Result<u64, ControlError> {
        let max = self.config().ttl_seconds_max;
        match asked {
            None | Some(0) => Ok(self.config().ttl_seconds_default),
            Some(seconds) if seconds < 0 => Err(ControlError::invalid("ttl_seconds must not be negative")),
            Some(seconds) if seconds as u64 > max => {
                Err(ControlError::invalid(format!("ttl_seconds exceeds tier maximum of {max}")))
            }
            Some(seconds) => Ok(seconds as u64),
        }
    }

    /// What a new sandbox reaches: what its caller says, else its workspace, else the operator.
    async fn network_of(
        &self,
        caller: &Caller,
        asked: Option<contract::sandbox::NetworkMode>,
    ) -> Result<NetworkMode, ControlError> {
        if let Some(mode) = asked {
            return Ok(stored_mode(mode));
        }
        let own = self.tenant(&caller.tenant).await?.network_default;
        Ok(own.unwrap_or(self.config().network_default))
    }

    async fn origin(
        &self,
        caller: &Caller,
        request: &CreateSandbox,
        size: AskedSize,
        wait: Duration,
    ) -> Result<Origin, ControlError> {
        let Some(named) = request.from_snapshot.as_deref().filter(|named| !named.is_empty()) else {
            let name =
                request.template.as_deref().filter(|name| !name.is_empty()).unwrap_or(TEMPLATE_DEFAULT);
            let ready = self.ready_template(caller, name, size, wait).await?;
            return Ok(Origin {
                snapshot: ready.snapshot,
                template: ready.name,
                key: Some(ready.key),
                cpus: ready.vcpus,
                memory_mib: ready.memory_mib,
                ancestors: Vec::new(),
            });
        };
        let row = self.snapshot_row(caller, named).await?;
        size.check_snapshot(row.cpus, row.memory_mib)?;
        Ok(Origin {
            snapshot: row.id,
            template: row.template,
            key: None,
            cpus: row.cpus,
            memory_mib: row.memory_mib,
            ancestors: row.ancestors,
        })
    }

    /// Size of a root disk as asked for.
    fn disk_bytes(&self, asked: Option<i64>) -> Result<Option<u64>, ControlError> {
        let max = self.config().disk_gib_max;
        match asked.map(u64::try_from) {
            None | Some(Ok(0)) => Ok(None),
            Some(Ok(gib)) if gib <= max => Ok(Some(gib << 30)),
            Some(_) => Err(ControlError::invalid(format!("disk_gb must be between 1 and {max}"))),
        }
    }

    async fn make(
        &self,
        mut row: SandboxRow,
        snapshot: SnapshotId,
        disk_bytes: Option<u64>,
    ) -> Result<Sandbox, ControlError> {
        let started = Instant::now();
        let record = info_span!("sandbox.record", otel.kind = "internal");
        self.store().add_sandboxes(vec![row.clone()], &self.config().quota).instrument(record).await?;
        let record_ms = started.elapsed().as_secs_f64() * 1000.0;
        let request = CreateRequest {
            id: Some(row.id.clone()),
            host_name: host_name(&row),
            from: CreateFrom::Snapshot(snapshot),
            volumes: node_volumes(&row.volumes),
            network: crate::sandboxes::policy(row.network),
            disk_bytes,
        };
        let timings = match self.node().create(request).await {
            Ok((_, timings)) => timings,
            Err(error) => {
                self.store().remove_sandbox(&row.id).await?;
                return Err(error.into());
            }
        };
        let timings = create_timings(record_ms, timings);
        let boot_ms = started.elapsed().as_secs_f64() * 1000.0;
        Span::current().record("boot_ms", boot_ms);
        self.settle(&mut row, boot_ms, &timings).await?;
        Ok(view(self.node(), row))
    }

    /// Makes a sandbox whose machine runs one that exists for everybody.
    pub(crate) async fn settle(
        &self,
        row: &mut SandboxRow,
        boot_ms: f64,
        timings: &CreateTimings,
    ) -> Result<(), ControlError> {
        row.standing = ProvisionState::Live;
        row.boot_ms = Some(boot_ms);
        row.timings = serde_json::to_string(timings).ok();
        let change = SandboxChange {
            standing: Some(ProvisionState::Live),
            boot_ms: row.boot_ms,
            timings: row.timings.clone(),
            ..SandboxChange::default()
        };
        self.activity().learn(&row.id, row.used_ms);
        let payload = json!({ "template": row.template, "boot_mode": row.boot_mode, "boot_ms": boot_ms });
        // Asked for together, they share a commit: the caller waits for one turn of the store instead of two.
        let (changed, ()) = async {
            tokio::join!(
                self.store().change_sandbox(&row.id, change),
                self.happened(&row.tenant, &row.id, "sandbox.running", Some(payload)),
            )
        }
        .instrument(info_span!("sandbox.settle", otel.kind = "internal"))
        .await;
        if let Err(error) = changed {
            self.remove(row, "sandbox.deleted").await?;
            return Err(error.into());
        }
        self.measurements().created(&row.template, &row.boot_mode, &row.id, boot_ms, timings);
        self.watch_for_death(row);
        Ok(())
    }
}

/// What a sandbox's guest calls itself, if it has a name: every name of a sandbox is a host name.
pub(crate) fn host_name(row: &SandboxRow) -> Option<HostName> {
    HostName::parse(row.name.as_deref()?).ok()
}

pub(crate) fn create_timings(record_ms: f64, timings: RestoreTimings) -> CreateTimings {
    CreateTimings {
        record_ms,
        prepare_ms: timings.prepare_ms,
        load_ms: timings.load_ms,
        confirm_ms: timings.confirm_ms,
        prestarted: timings.prestarted,
    }
}
