//! A sandbox as callers see it: what was asked for, and what its machine does.

use std::collections::BTreeMap;

use contract::sandbox::{AttachedVolume, NetworkMode, Sandbox, SandboxStatus};
use contract::time::rfc3339;
use domain::lifecycle::Phase;
use network::Slot;
use node::Node;
use store::{ProvisionState, SandboxRow};

use crate::activity::Activity;
use crate::reaper::idle_seconds_left;

/// Values of these keys are written, never read back.
const SECRET_PREFIX: &str = "secret.";
const HIDDEN: &str = "***";

pub(crate) fn status(standing: ProvisionState, phase: Option<Phase>) -> SandboxStatus {
    match (standing, phase) {
        (ProvisionState::Creating, _) | (_, Some(Phase::Creating)) => SandboxStatus::Creating,
        (ProvisionState::Deleting, _) | (_, Some(Phase::Deleting)) => SandboxStatus::Stopping,
        (_, Some(Phase::Running | Phase::Waking | Phase::Starting)) => SandboxStatus::Running,
        (_, Some(Phase::Paused)) => SandboxStatus::Paused,
        (_, Some(Phase::Hibernating | Phase::Hibernated)) => SandboxStatus::Hibernated,
        (_, Some(Phase::Died) | None) => SandboxStatus::Failed,
    }
}

/// Device of the n-th volume: the root disk is `vda`.
fn device(index: usize) -> String {
    format!("/dev/vd{}", char::from(b'b' + (index % 25) as u8))
}

pub(crate) fn network_mode(mode: store::NetworkMode) -> NetworkMode {
    match mode {
        store::NetworkMode::None => NetworkMode::None,
        store::NetworkMode::All => NetworkMode::All,
    }
}

/// Metadata as it is shown: the caller's own, without secrets, and over it what the server knows.
fn metadata(row: &mut SandboxRow) -> BTreeMap<String, String> {
    let mut shown = std::mem::take(&mut row.metadata);
    for (key, value) in &mut shown {
        if key.starts_with(SECRET_PREFIX) {
            HIDDEN.clone_into(value);
        }
    }
    let mut put = |key: &str, value: String| shown.insert(key.to_owned(), value);
    put("workspace", row.tenant.to_string());
    for (port, label) in std::mem::take(&mut row.ports) {
        put(&format!("port.{port}"), label);
    }
    if let Some(parent) = &row.parent {
        put("fork_parent_id", parent.to_string());
    }
    if let Some(tree) = row.tree.take() {
        put("fork_tree_id", tree);
        put("fork_tree_role", if row.fork_index.is_some() { "child" } else { "parent" }.to_owned());
    }
    if let Some(index) = row.fork_index {
        put("fork_index", index.to_string());
    }
    shown
}

/// What a sandbox is doing.
pub(crate) fn status_of(node: &Node, row: &SandboxRow) -> SandboxStatus {
    let phase = node.sandbox(&row.id).ok().map(|sandbox| sandbox.watch().borrow().record.phase);
    status(row.standing, phase)
}

/// A row as callers see it who look at what is there: also how long it may still idle.
pub(crate) fn listed(node: &Node, activity: &Activity, row: SandboxRow) -> Sandbox {
    let phase = node.sandbox(&row.id).ok().map(|sandbox| sandbox.watch().borrow().record.phase);
    let idle_seconds_left = phase.and_then(|phase| idle_seconds_left(activity, &row, phase));
    Sandbox { idle_seconds_left, ..view(node, row) }
}

/// A row as callers see it. Many are shown at once, so nothing is copied that can be moved.
pub(crate) fn view(node: &Node, mut row: SandboxRow) -> Sandbox {
    let sandbox = node.sandbox(&row.id).ok();
    let state = sandbox.as_ref().map(node::Sandbox::watch);
    let state = state.as_ref().map(|state| state.borrow());
    let record = state.as_ref().map(|state| &state.record);
    let slot = record.and_then(|record| record.slot);
    let addresses = slot.and_then(|slot| node.network().addresses(Slot::new(slot)));
    let volumes = row.volumes.drain(..).enumerate().map(|(index, volume)| AttachedVolume {
        name: volume.name,
        read_only: volume.read_only,
        device: device(index),
        mount: volume.mount,
    });
    Sandbox {
        volumes: volumes.collect(),
        metadata: metadata(&mut row),
        id: row.id.to_string(),
        name: row.name,
        ancestors: row.ancestors.into_iter().map(String::from).collect(),
        idle_seconds_left: None,
        template: row.template,
        cpu: row.cpus,
        memory_mb: row.memory_mib,
        disk_gb: node.disk_bytes(&row.id).unwrap_or_default().div_ceil(1 << 30),
        status: status(row.standing, record.map(|record| record.phase)),
        guest_ip: addresses.as_ref().map(|addresses| addresses.ip.to_string()),
        mac: addresses.as_ref().map(|addresses| addresses.mac.to_string()),
        from_snapshot: row.from_snapshot.as_ref().map(ToString::to_string),
        parent_id: row.parent.as_ref().map(ToString::to_string),
        boot_ms: row.boot_ms.map(|ms| ms.round() as u64),
        boot_mode: row.boot_mode,
        timings: row.timings.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        created_at: rfc3339(row.created_ms),
        persistent: row.persistent,
        ttl_seconds: row.ttl_seconds,
        network: network_mode(row.network),
        env_names: row.env.into_keys().collect(),
        failure: record.and_then(|record| record.died.clone()),
        unique_bytes: None,
        warnings: Vec::new(),
    }
}
