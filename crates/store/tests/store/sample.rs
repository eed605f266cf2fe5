//! Rows to begin with. Tests change what they are about.

use std::collections::BTreeMap;

use domain::{BuildId, SandboxId, SnapshotId, TenantId, VolumeId};
use store::{
    AuditRow, BuildRow, BuildSource, BuildStatus, EventRow, NetworkMode, ProvisionState, Quota, ReplRow,
    SandboxRow, Scope, SnapshotRow, TemplateRow, TenantRow, TokenRow, VolumeAttachment, VolumeRow,
};

pub(crate) fn tenant_id(name: &str) -> TenantId {
    TenantId::parse(name).unwrap()
}

pub(crate) fn sandbox_id(number: usize) -> SandboxId {
    SandboxId::parse(&format!("s{number}")).unwrap()
}

pub(crate) fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect()
}

/// More than any test needs.
pub(crate) fn plenty() -> Quota {
    let all = u64::MAX;
    Quota {
        sandboxes: all,
        cpus: all,
        memory_mib: all,
        volumes: all,
        volume_mib: all,
        snapshots: all,
        templates: all,
        builds: all,
    }
}

pub(crate) fn tenant(id: &str, created_ms: i64) -> TenantRow {
    TenantRow {
        id: tenant_id(id),
        name: format!("Tenant {id}"),
        quota: None,
        network_default: None,
        created_ms,
    }
}

pub(crate) fn token(tenant: &str, number: u8) -> TokenRow {
    TokenRow {
        hash: [number; 32],
        prefix: format!("pds_{number}"),
        tenant: tenant_id(tenant),
        label: "laptop".to_owned(),
        scope: Scope::Write,
        created_ms: i64::from(number),
        expires_ms: Some(99),
        revoked_ms: None,
    }
}

/// One whose fields are all in use.
pub(crate) fn sandbox(tenant: &str, number: usize) -> SandboxRow {
    SandboxRow {
        id: sandbox_id(number),
        tenant: tenant_id(tenant),
        standing: ProvisionState::Creating,
        template: "python".to_owned(),
        from_snapshot: Some(SnapshotId::parse("snap1").unwrap()),
        name: None,
        parent: Some(SandboxId::parse("parent").unwrap()),
        ancestors: vec![SandboxId::parse("parent").unwrap()],
        tree: None,
        fork_index: Some(3),
        metadata: map(&[("purpose", "test")]),
        env: map(&[("API_KEY", "hunter2")]),
        ports: [(8080, "web".to_owned())].into(),
        ttl_seconds: 300,
        persistent: true,
        network: NetworkMode::All,
        volumes: vec![VolumeAttachment {
            id: VolumeId::parse("vol1").unwrap(),
            name: "data".to_owned(),
            read_only: true,
            mount: None,
        }],
        cpus: 2,
        memory_mib: 512,
        created_ms: number as i64,
        used_ms: number as i64,
        boot_ms: Some(41.5),
        boot_mode: "restore".to_owned(),
        timings: Some("{\"load\":1}".to_owned()),
    }
}

pub(crate) fn snapshot(tenant: &str, number: usize, sandbox: usize) -> SnapshotRow {
    SnapshotRow {
        id: SnapshotId::parse(&format!("n{number}")).unwrap(),
        tenant: tenant_id(tenant),
        sandbox: sandbox_id(sandbox),
        ancestors: vec![SandboxId::parse("parent").unwrap(), sandbox_id(sandbox)],
        template: "python".to_owned(),
        parent: None,
        size_bytes: 1 << 40,
        cpus: 2,
        memory_mib: 512,
        created_ms: number as i64,
    }
}

pub(crate) fn volume(tenant: &str, number: usize, name: &str) -> VolumeRow {
    VolumeRow {
        id: VolumeId::parse(&format!("v{number}")).unwrap(),
        tenant: tenant_id(tenant),
        name: name.to_owned(),
        standing: ProvisionState::Live,
        size_mib: 100,
        created_ms: number as i64,
    }
}

pub(crate) fn build_id(number: usize) -> BuildId {
    BuildId::parse(&format!("b{number}")).unwrap()
}

pub(crate) fn build(tenant: &str, number: usize, name: &str) -> BuildRow {
    BuildRow {
        id: build_id(number),
        tenant: tenant_id(tenant),
        name: name.to_owned(),
        status: BuildStatus::Queued,
        error: None,
        replace: false,
        source: BuildSource::Image,
        image_ref: Some("registry.test/image".to_owned()),
        disk_mib: 1024,
        cpus: 2,
        memory_mib: 512,
        attempts: 0,
        bytes: None,
        created_ms: number as i64,
        started_ms: None,
        ended_ms: None,
    }
}

/// What comes of a build.
pub(crate) fn template(tenant: &str, number: usize, name: &str) -> TemplateRow {
    TemplateRow {
        build: build_id(number),
        tenant: tenant_id(tenant),
        name: name.to_owned(),
        disk_mib: 1024,
        cpus: 2,
        memory_mib: 512,
        config: "{\"env\":[]}".to_owned(),
        digest: "sha256:00".to_owned(),
        bytes: u64::MAX,
        image_ref: None,
        created_ms: 1000 + number as i64,
    }
}

pub(crate) fn event(tenant: &str, sandbox: usize, number: usize) -> EventRow {
    EventRow {
        tenant: tenant_id(tenant),
        sandbox: sandbox_id(sandbox),
        at_ms: number as i64,
        kind: "sandbox.running".to_owned(),
        payload: Some(format!("{{\"number\":{number}}}")),
    }
}

pub(crate) fn audit(tenant: &str, number: usize) -> AuditRow {
    AuditRow {
        at_ms: number as i64,
        tenant: tenant_id(tenant),
        token: "pds_1".to_owned(),
        request_id: format!("r{number}"),
        method: "POST".to_owned(),
        path: "/v1/sandboxes".to_owned(),
        status: 201,
    }
}

pub(crate) fn repl(sandbox: usize, id: &str, created_ms: i64) -> ReplRow {
    ReplRow {
        id: id.to_owned(),
        sandbox: sandbox_id(sandbox),
        language: "python".to_owned(),
        handle: "{}".to_owned(),
        cells: 0,
        created_ms,
    }
}
