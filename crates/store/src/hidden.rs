//! What rows say of themselves in logs: everything but the environment of a sandbox.

use std::collections::BTreeMap;
use std::fmt;

use crate::{SandboxChange, SandboxRow};

/// Stands for an environment.
struct Hidden(usize);

impl Hidden {
    fn of(secret: &BTreeMap<String, String>) -> Self {
        Self(secret.len())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} secret)", self.0)
    }
}

impl fmt::Debug for SandboxRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart, so that a field added later is not forgotten here.
        let Self {
            id,
            tenant,
            standing,
            template,
            from_snapshot,
            name,
            parent,
            ancestors,
            tree,
            fork_index,
            metadata,
            env,
            ports,
            ttl_seconds,
            persistent,
            network,
            volumes,
            cpus,
            memory_mib,
            created_ms,
            used_ms,
            boot_ms,
            boot_mode,
            timings,
        } = self;
        f.debug_struct("SandboxRow")
            .field("id", id)
            .field("tenant", tenant)
            .field("standing", standing)
            .field("template", template)
            .field("from_snapshot", from_snapshot)
            .field("name", name)
            .field("parent", parent)
            .field("ancestors", ancestors)
            .field("tree", tree)
            .field("fork_index", fork_index)
            .field("metadata", metadata)
            .field("env", &Hidden::of(env))
            .field("ports", ports)
            .field("ttl_seconds", ttl_seconds)
            .field("persistent", persistent)
            .field("network", network)
            .field("volumes", volumes)
            .field("cpus", cpus)
            .field("memory_mib", memory_mib)
            .field("created_ms", created_ms)
            .field("used_ms", used_ms)
            .field("boot_ms", boot_ms)
            .field("boot_mode", boot_mode)
            .field("timings", timings)
            .finish()
    }
}

impl fmt::Debug for SandboxChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Taken apart, so that a field added later is not forgotten here.
        let Self {
            standing,
            name,
            metadata,
            env,
            ports,
            ttl_seconds,
            persistent,
            network,
            tree,
            boot_ms,
            timings,
        } = self;
        f.debug_struct("SandboxChange")
            .field("standing", standing)
            .field("name", name)
            .field("metadata", metadata)
            .field("env", &env.as_ref().map(Hidden::of))
            .field("ports", ports)
            .field("ttl_seconds", ttl_seconds)
            .field("persistent", persistent)
            .field("network", network)
            .field("tree", tree)
            .field("boot_ms", boot_ms)
            .field("timings", timings)
            .finish()
    }
}
