//! Rows come back as they went in, whatever is written in them.

use std::collections::BTreeMap;

use domain::{SandboxId, SnapshotId, TenantId, VolumeId};
use proptest::collection::{btree_map, vec};
use proptest::option::of;
use proptest::prelude::*;
use store::{
    AuditRow, EventRow, NetworkMode, ProvisionState, Quota, ReplRow, SandboxChange, SandboxRow, Scope,
    SnapshotRow, Store, TenantRow, TokenRow, VolumeAttachment, VolumeRow,
};

use crate::Fresh;
use crate::sample::plenty;

/// Any characters at all, among them NUL, quotes, line ends and what JSON escapes.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        vec(any::<char>(), 0..20).prop_map(|text| text.into_iter().collect()),
        "[\\x00-\\x1f'\"\\\\{}\\[\\]\u{2028}\u{feff}\u{10ffff}]{0,12}",
        Just("'; DROP TABLE sandboxes; --".to_owned()),
        Just("{}".to_owned()),
    ]
}

fn texts() -> impl Strategy<Value = BTreeMap<String, String>> {
    btree_map(text(), text(), 0..4)
}

fn standing() -> impl Strategy<Value = ProvisionState> {
    prop_oneof![Just(ProvisionState::Creating), Just(ProvisionState::Live), Just(ProvisionState::Deleting)]
}

fn network() -> impl Strategy<Value = NetworkMode> {
    prop_oneof![Just(NetworkMode::None), Just(NetworkMode::All)]
}

fn scope() -> impl Strategy<Value = Scope> {
    prop_oneof![Just(Scope::Read), Just(Scope::Write), Just(Scope::Admin)]
}

/// Any number but those that are none: SQLite keeps no NaN.
fn finite() -> impl Strategy<Value = f64> {
    any::<f64>().prop_filter("a number", |number| !number.is_nan())
}

fn tenant() -> impl Strategy<Value = TenantId> {
    any::<[u8; 16]>().prop_map(TenantId::from_random)
}

fn sandbox() -> impl Strategy<Value = SandboxId> {
    any::<[u8; 16]>().prop_map(SandboxId::from_random)
}

fn snapshot() -> impl Strategy<Value = SnapshotId> {
    any::<[u8; 16]>().prop_map(SnapshotId::from_random)
}

fn volume() -> impl Strategy<Value = VolumeId> {
    any::<[u8; 16]>().prop_map(VolumeId::from_random)
}

prop_compose! {
    fn attachment()(id in volume(), name in text(), read_only: bool, mount in of(text())) -> VolumeAttachment {
        VolumeAttachment { id, name, read_only, mount }
    }
}

prop_compose! {
    fn sandbox_row()(
        (id, tenant, standing, template) in (sandbox(), tenant(), standing(), text()),
        (from_snapshot, parent, tree, fork_index) in (of(snapshot()), of(sandbox()), of(text()), any::<Option<u32>>()),
        (metadata, env, ports) in (texts(), texts(), btree_map(any::<u16>(), text(), 0..4)),
        (ttl_seconds, persistent, network, volumes) in (any::<u64>(), any::<bool>(), network(), vec(attachment(), 0..3)),
        (cpus, memory_mib, created_ms, used_ms) in any::<(u32, u32, i64, i64)>(),
        (boot_ms, boot_mode, timings) in (of(finite()), text(), of(text())),
        (name, ancestors) in (of(text()), vec(sandbox(), 0..3)),
    ) -> SandboxRow {
        SandboxRow {
            id, tenant, standing, template, from_snapshot, parent, tree, fork_index, metadata, env, ports, ttl_seconds,
            persistent, network, volumes, cpus, memory_mib, created_ms, used_ms, boot_ms, boot_mode, timings,
            name, ancestors,
        }
    }
}

prop_compose! {
    fn change()(
        (standing, metadata, env) in (of(standing()), of(texts()), of(texts())),
        ports in of(btree_map(any::<u16>(), text(), 0..4)),
        (ttl_seconds, persistent, network) in (any::<Option<u64>>(), any::<Option<bool>>(), of(network())),
        (tree, boot_ms, timings) in (of(text()), of(finite()), of(text())),
        name in of(of(text())),
    ) -> SandboxChange {
        SandboxChange { standing, name, metadata, env, ports, ttl_seconds, persistent, network, tree, boot_ms, timings }
    }
}

/// What a row is after a change, in other words than the store's.
fn changed(mut row: SandboxRow, change: SandboxChange) -> SandboxRow {
    row.standing = change.standing.unwrap_or(row.standing);
    row.name = change.name.unwrap_or(row.name);
    row.metadata = change.metadata.unwrap_or(row.metadata);
    row.env = change.env.unwrap_or(row.env);
    row.ports = change.ports.unwrap_or(row.ports);
    row.ttl_seconds = change.ttl_seconds.unwrap_or(row.ttl_seconds);
    row.persistent = change.persistent.unwrap_or(row.persistent);
    row.network = change.network.unwrap_or(row.network);
    row.tree = change.tree.or(row.tree);
    row.boot_ms = change.boot_ms.or(row.boot_ms);
    row.timings = change.timings.or(row.timings);
    row
}

prop_compose! {
    fn quota()((sandboxes, cpus, memory_mib) in any::<(u64, u64, u64)>(),
               (volumes, volume_mib, snapshots) in any::<(u64, u64, u64)>(),
               (templates, builds) in any::<(u64, u64)>()) -> Quota {
        Quota { sandboxes, cpus, memory_mib, volumes, volume_mib, snapshots, templates, builds }
    }
}

/// Runs against one store for all cases, since ids are random.
fn cases<T: std::fmt::Debug>(
    rows: impl Strategy<Value = T>,
    check: impl AsyncFn(&dyn Store, T) -> Result<(), TestCaseError>,
) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let fresh = Fresh::new();
    // No file of failures: what failed is printed.
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    proptest::test_runner::TestRunner::new(config)
        .run(&rows, |row| runtime.block_on(check(&fresh.store, row)))
        .unwrap();
}

#[test]
fn sandboxes() {
    cases((sandbox_row(), change()), async |store, (row, change)| {
        store.add_sandboxes(vec![row.clone()], &plenty()).await.unwrap();
        prop_assert_eq!(store.sandbox(&row.id).await.unwrap(), Some(row.clone()));
        prop_assert!(store.change_sandbox(&row.id, change.clone()).await.unwrap());
        let row = changed(row, change);
        prop_assert_eq!(store.sandboxes(&row.tenant).await.unwrap(), vec![row.clone()]);
        if let Some(tree) = row.tree.clone() {
            prop_assert_eq!(store.sandboxes_of_tree(&row.tenant, &tree).await.unwrap(), vec![row.clone()]);
        }
        prop_assert!(store.remove_sandbox(&row.id).await.unwrap());
        Ok(())
    });
}

#[test]
fn owners() {
    let rows = (
        tenant(),
        text(),
        of(quota()),
        any::<[u8; 32]>(),
        text(),
        scope(),
        any::<(i64, Option<i64>, Option<i64>)>(),
    );
    cases(rows, async |store, (id, name, quota, hash, label, scope, times)| {
        let (created_ms, expires_ms, revoked_ms) = times;
        let network_default = created_ms.rem_euclid(2).eq(&0).then_some(NetworkMode::All);
        let row = TenantRow { id: id.clone(), name: name.clone(), quota, network_default, created_ms };
        store.add_tenant(row.clone()).await.unwrap();
        prop_assert_eq!(store.tenant(&id).await.unwrap(), Some(row));
        // Prefixes are unique, so the name alone would not do.
        let prefix = format!("{id}{name}");
        let row = TokenRow {
            hash,
            prefix: prefix.clone(),
            tenant: id.clone(),
            label,
            scope,
            created_ms,
            expires_ms,
            revoked_ms,
        };
        store.add_token(row.clone()).await.unwrap();
        prop_assert_eq!(store.token_by_hash(hash).await.unwrap(), Some(row));
        prop_assert!(store.revoke_token(&id, &prefix, 1).await.unwrap());
        prop_assert_eq!(store.tokens(&id).await.unwrap(), vec![]);
        Ok(())
    });
}

#[test]
fn snapshots_and_volumes() {
    let rows = (
        tenant(),
        (snapshot(), sandbox(), of(snapshot())),
        volume(),
        text(),
        standing(),
        any::<(u64, u32, u32, i64)>(),
    );
    cases(rows, async |store, (tenant, (id, sandbox, parent), volume, name, standing, numbers)| {
        let (size, cpus, memory_mib, created_ms) = numbers;
        let row = SnapshotRow {
            id: id.clone(),
            tenant: tenant.clone(),
            sandbox: sandbox.clone(),
            ancestors: vec![sandbox.clone()],
            template: name.clone(),
            parent,
            size_bytes: size,
            cpus,
            memory_mib,
            created_ms,
        };
        store.add_snapshot(row.clone()).await.unwrap();
        prop_assert_eq!(store.snapshot(&id).await.unwrap(), Some(row.clone()));
        prop_assert_eq!(store.snapshots(&tenant, Some(&sandbox)).await.unwrap(), vec![row]);
        let row = VolumeRow {
            id: volume,
            tenant: tenant.clone(),
            name: name.clone(),
            standing,
            size_mib: size,
            created_ms,
        };
        store.add_volume(row.clone(), &plenty()).await.unwrap();
        prop_assert_eq!(store.volume(&tenant, &name).await.unwrap(), Some(row));
        Ok(())
    });
}

#[test]
fn history_and_repls() {
    let rows = (tenant(), sandbox(), any::<(i64, u16, u64)>(), vec(text(), 5), of(text()));
    cases(rows, async |store, (tenant, sandbox, (at_ms, status, cells), texts, payload)| {
        let text = |number: usize| texts[number].clone();
        let row =
            EventRow { tenant: tenant.clone(), sandbox: sandbox.clone(), at_ms, kind: text(0), payload };
        store.add_event(row.clone()).await.unwrap();
        prop_assert_eq!(store.events(&tenant, &sandbox, 9).await.unwrap(), vec![row]);
        let row = AuditRow {
            at_ms,
            tenant: tenant.clone(),
            token: text(0),
            request_id: text(1),
            method: text(2),
            path: text(3),
            status,
        };
        store.add_audit(vec![row.clone()]).await.unwrap();
        prop_assert_eq!(store.audit(&tenant, i64::MIN, 9).await.unwrap(), vec![row]);
        let row = ReplRow {
            id: text(0),
            sandbox: sandbox.clone(),
            language: text(1),
            handle: text(2),
            cells,
            created_ms: at_ms,
        };
        store.add_repl(row.clone()).await.unwrap();
        let row = ReplRow { handle: text(3), cells: !cells, ..row };
        prop_assert!(store.change_repl(row.clone()).await.unwrap());
        prop_assert_eq!(store.repl(&sandbox, &row.id).await.unwrap(), Some(row));
        Ok(())
    });
}
