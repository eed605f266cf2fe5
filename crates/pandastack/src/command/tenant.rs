//! `pandastack tenant`: who may use this server, and how much of it.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use control::{OperatorRequest, QuotaChange, Tenant};

use crate::admin;
use crate::command::serve;
use crate::config::Settings;
use crate::output::{self, Format, say};
use crate::table::table;

/// What to do with tenants.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a tenant with a first API key, which is shown this once.
    #[command(after_help = "Examples:\n  pandastack tenant create team-a\n  \
        pandastack tenant create team-b --max-sandboxes 20 --max-cpus 40")]
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        quota: Quotas,
    },
    /// The tenants there are.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack tenant list")]
    List,
    /// Show what a tenant may have, or change it: limits that are not named stay as they are.
    #[command(after_help = "Examples:\n  pandastack tenant quota team-a\n  \
        pandastack tenant quota team-a --max-sandboxes 50 --max-memory-mib 65536\n  \
        pandastack tenant quota team-a --reset")]
    Quota {
        /// Its name or id.
        tenant: String,
        #[command(flatten)]
        quota: Quotas,
        /// Go back to the server's usual limits first.
        #[arg(long)]
        reset: bool,
    },
}

/// Limits of a tenant's own; without them the server's usual ones hold.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Quotas {
    /// Sandboxes, sleeping ones included.
    #[arg(long, value_name = "COUNT")]
    max_sandboxes: Option<u64>,
    /// Virtual CPUs of all sandboxes together.
    #[arg(long, value_name = "COUNT")]
    max_cpus: Option<u64>,
    /// MiB of memory of all sandboxes together.
    #[arg(long, value_name = "MIB")]
    max_memory_mib: Option<u64>,
    /// Volumes.
    #[arg(long, value_name = "COUNT")]
    max_volumes: Option<u64>,
    /// MiB of all volumes together.
    #[arg(long, value_name = "MIB")]
    max_volume_mib: Option<u64>,
    /// Snapshots.
    #[arg(long, value_name = "COUNT")]
    max_snapshots: Option<u64>,
    /// Templates of its own.
    #[arg(long, value_name = "COUNT")]
    max_templates: Option<u64>,
    /// Builds that wait or run.
    #[arg(long, value_name = "COUNT")]
    max_builds: Option<u64>,
}

impl From<Quotas> for QuotaChange {
    fn from(quotas: Quotas) -> Self {
        Self {
            sandboxes: quotas.max_sandboxes,
            cpus: quotas.max_cpus,
            memory_mib: quotas.max_memory_mib,
            volumes: quotas.max_volumes,
            volume_mib: quotas.max_volume_mib,
            snapshots: quotas.max_snapshots,
            templates: quotas.max_templates,
            builds: quotas.max_builds,
        }
    }
}

pub(crate) async fn run(settings: &Settings, command: Command, format: Format) -> anyhow::Result<ExitCode> {
    crate::engine::require_root("tenant")?;
    let usual = serve::usual_quota(settings);
    let ask = |request| admin::ask(&settings.node.data_dir, &usual, request);
    match command {
        Command::List => {
            let tenants = ask(OperatorRequest::ListTenants).await?;
            output::list(
                format,
                &tenants,
                ["ID", "NAME", "SANDBOXES", "KEYS", "LIMITS", "CREATED"],
                |tenant| {
                    let limits = if tenant.has_own_quota { "own" } else { "usual" };
                    let sandboxes = format!("{} of {}", tenant.sandboxes, tenant.quota.sandboxes);
                    [
                        tenant.id.clone(),
                        tenant.name.clone(),
                        sandboxes,
                        tenant.keys.to_string(),
                        limits.to_owned(),
                        tenant.created_at.clone(),
                    ]
                },
            )?;
        }
        Command::Create { name, quota } => {
            let made = ask(OperatorRequest::CreateTenant { name, quota: quota.into() }).await?;
            for tenant in &made {
                say(format!("tenant {} ({}); its first key is shown this once:", tenant.name, tenant.id));
                output::result(format, tenant, || tenant.key.clone().unwrap_or_default())?;
            }
        }
        Command::Quota { tenant, quota, reset } => {
            let quota = quota.into();
            for tenant in ask(OperatorRequest::SetQuota { tenant, quota, reset }).await? {
                output::result(format, &tenant, || limits(&tenant))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn limits(tenant: &Tenant) -> String {
    let quota = &tenant.quota;
    let rows = [
        ("sandboxes", quota.sandboxes),
        ("cpus", quota.cpus),
        ("memory MiB", quota.memory_mib),
        ("volumes", quota.volumes),
        ("volume MiB", quota.volume_mib),
        ("snapshots", quota.snapshots),
        ("templates", quota.templates),
        ("builds", quota.builds),
    ];
    table(["LIMIT", "VALUE"], &rows.map(|(name, value)| [name.to_owned(), value.to_string()]))
}
