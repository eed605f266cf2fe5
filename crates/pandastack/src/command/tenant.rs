//! `pandastack tenant`: who may use this server, and how much of it.

use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use contract::sandbox::NetworkMode;
use control::{NetworkDefault, OperatorRequest, QuotaChange, Tenant};

use crate::admin;
use crate::command::serve;
use crate::config::Settings;
use crate::duration::since;
use crate::output::{self, Format, say};
use crate::table::table;

/// What to do with tenants.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Add a tenant with a first API key, which is shown this once.
    #[command(after_help = "Examples:\n  pandastack tenant create team-a\n  \
        pandastack tenant create team-b --max-sandboxes 20 --max-cpus 40 --network all")]
    Create {
        /// Its name.
        name: String,
        #[command(flatten)]
        quota: Quotas,
        /// What its sandboxes reach unless their creation says otherwise [default: as the server decides].
        #[arg(long, value_enum)]
        network: Option<Network>,
    },
    /// The tenants there are.
    #[command(visible_alias = "ls", after_help = "Example:\n  pandastack tenant list")]
    List {
        /// Only the ids.
        #[arg(long, short)]
        quiet: bool,
    },
    /// Show what a tenant may have and reach, or change it: what is not named stays as it is.
    #[command(after_help = "Examples:\n  pandastack tenant quota team-a\n  \
        pandastack tenant quota team-a --max-sandboxes 50 --max-memory-mib 65536\n  \
        pandastack tenant quota team-a --network all\n  \
        pandastack tenant quota team-a --reset")]
    Quota {
        /// Its name or id.
        tenant: String,
        #[command(flatten)]
        quota: Quotas,
        /// Go back to the server's usual limits first.
        #[arg(long)]
        reset: bool,
        /// What its sandboxes reach from now on unless their creation says otherwise.
        #[arg(long, value_enum)]
        network: Option<Network>,
    },
}

/// What a tenant's sandboxes reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Network {
    /// Nothing.
    None,
    /// Whatever the operator lets guests reach.
    All,
    /// As the server decides (`serve --network-default`).
    Default,
}

impl Network {
    fn asked(given: Option<Self>) -> NetworkDefault {
        match given {
            None => NetworkDefault::Kept,
            Some(Self::None) => NetworkDefault::None,
            Some(Self::All) => NetworkDefault::All,
            Some(Self::Default) => NetworkDefault::Server,
        }
    }
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
        Command::List { quiet: true } => {
            output::names(format, &ask(OperatorRequest::ListTenants).await?, |one| one.id.clone())?;
        }
        Command::List { quiet: false } => {
            let tenants = ask(OperatorRequest::ListTenants).await?;
            output::list(
                format,
                &tenants,
                ["ID", "NAME", "SANDBOXES", "KEYS", "LIMITS", "NETWORK", "AGE"],
                |tenant| {
                    let limits = if tenant.has_own_quota { "own" } else { "usual" };
                    let sandboxes = format!("{} of {}", tenant.sandboxes, tenant.quota.sandboxes);
                    [
                        tenant.id.clone(),
                        tenant.name.clone(),
                        sandboxes,
                        tenant.keys.to_string(),
                        limits.to_owned(),
                        network(tenant).to_owned(),
                        since(&tenant.created_at),
                    ]
                },
            )?;
        }
        Command::Create { name, quota, network } => {
            let made = ask(OperatorRequest::CreateTenant {
                name,
                quota: quota.into(),
                network: Network::asked(network),
            })
            .await?;
            for tenant in &made {
                say(format!("tenant {} ({}); its first key is shown this once:", tenant.name, tenant.id));
                output::result(format, tenant, || tenant.key.clone().unwrap_or_default())?;
            }
        }
        Command::Quota { tenant, quota, reset, network } => {
            let (quota, network) = (quota.into(), Network::asked(network));
            for tenant in ask(OperatorRequest::SetQuota { tenant, quota, reset, network }).await? {
                output::result(format, &tenant, || limits(&tenant))?;
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// What a tenant's sandboxes reach, as it is said.
fn network(tenant: &Tenant) -> &'static str {
    match tenant.network_default {
        Some(NetworkMode::None) => "none",
        Some(NetworkMode::All) => "all",
        None => "default",
    }
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
    let mut rows = rows.map(|(name, value)| [name.to_owned(), value.to_string()]).to_vec();
    rows.push(["network".to_owned(), network(tenant).to_owned()]);
    table(["LIMIT", "VALUE"], &rows)
}
