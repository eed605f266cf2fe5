//! `pandastack serve`: the API, its database and its node in one process.

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;
use control::{Control, ControlConfig, catalogue_names, check_bootstrap_key};
use node::{AddressChoice, Fresh, Node};
use server::ServerConfig;
use store::{NetworkMode, Quota, SqliteStore};
use telemetry::{Counts, Exporter, Traces};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::admin::AdminSocket;
use crate::config::{LogFormat, NetworkSetting, ServeSettings, Settings};
use crate::engine::{open_node, require_root};
use crate::{build_info, builds, output, traces};

const LISTEN_DEFAULT: &str = "127.0.0.1:8080";
/// Holds the first key, for automation. Read from the environment only: arguments are seen by everybody on the host.
const BOOTSTRAP_KEY: &str = "PANDASTACK_BOOTSTRAP_KEY";
pub(crate) const DATABASE: &str = "control.db";
/// How long the last traces may take when the server stops.
const TRACES_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: ServeSettings,
}

/// What a tenant may have that has no limits of its own, as the settings file says it.
pub(crate) fn usual_quota(settings: &Settings) -> Quota {
    control_config(&ServeSettings::default(), &settings.serve).quota
}

/// The first key that the operator chose, and the templates to prepare: checked before anything is made.
fn check(prepare: &[String]) -> anyhow::Result<Option<String>> {
    let key = std::env::var(BOOTSTRAP_KEY).ok().filter(|key| !key.is_empty());
    if let Some(Err(error)) = key.as_deref().map(check_bootstrap_key) {
        bail!("{BOOTSTRAP_KEY}: {error}");
    }
    let known = catalogue_names();
    if let Some(unknown) = prepare.iter().find(|name| !known.contains(name)) {
        bail!("prepare: there is no template {unknown}, there are {}", known.join(", "));
    }
    Ok(key)
}

/// Options and environment over the settings file over the usual ones.
fn control_config(given: &ServeSettings, file: &ServeSettings) -> ControlConfig {
    let mut config = ControlConfig::default();
    let set = |into: &mut u64, given: Option<u64>, file: Option<u64>| {
        if let Some(value) = given.or(file) {
            *into = value;
        }
    };
    set(&mut config.ttl_seconds_default, given.default_ttl_seconds, file.default_ttl_seconds);
    set(&mut config.ttl_seconds_max, given.max_ttl_seconds, file.max_ttl_seconds);
    set(&mut config.disk_gib_max, given.max_disk_gib, file.max_disk_gib);
    set(&mut config.quota.sandboxes, given.quota_sandboxes, file.quota_sandboxes);
    set(&mut config.quota.cpus, given.quota_cpus, file.quota_cpus);
    set(&mut config.quota.memory_mib, given.quota_memory_mib, file.quota_memory_mib);
    set(&mut config.quota.volumes, given.quota_volumes, file.quota_volumes);
    set(&mut config.quota.volume_mib, given.quota_volume_mib, file.quota_volume_mib);
    set(&mut config.quota.snapshots, given.quota_snapshots, file.quota_snapshots);
    set(&mut config.quota.templates, given.quota_templates, file.quota_templates);
    set(&mut config.quota.builds, given.quota_builds, file.quota_builds);
    if let Some(cpus) = given.max_cpu.or(file.max_cpu) {
        config.cpus_max = cpus;
    }
    if let Some(mib) = given.max_memory_mib.or(file.max_memory_mib) {
        config.memory_mib_max = mib;
    }
    if let Some(burst) = given.rate_burst.or(file.rate_burst) {
        config.rate_burst = f64::from(burst);
    }
    if let Some(rate) = given.rate_per_second.or(file.rate_per_second) {
        config.rate_per_second = f64::from(rate);
    }
    if let Some(mode) = given.network_default.or(file.network_default) {
        config.network_default = match mode {
            NetworkSetting::None => NetworkMode::None,
            NetworkSetting::All => NetworkMode::All,
        };
    }
    config.public_url = given.public_url.clone().or_else(|| file.public_url.clone());
    config
}

/// The host of a URL, without its port.
fn host(url: &str) -> Option<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = rest.split(['/', ':']).next().unwrap_or_default();
    (!host.is_empty()).then(|| host.to_owned())
}

fn server_config(given: &ServeSettings, file: &ServeSettings, public_url: Option<&str>) -> ServerConfig {
    let mut config = ServerConfig { build: build_info::build(), ..ServerConfig::default() };
    let public = public_url.and_then(host);
    // Published clients leave out a leading `api.` when they make a preview's host name.
    let without_api = public.as_deref().and_then(|host| host.strip_prefix("api.")).map(str::to_owned);
    config.preview_suffixes.extend(public);
    config.preview_suffixes.extend(without_api);
    config.preview_suffixes.extend(given.preview_host.clone().or_else(|| file.preview_host.clone()));
    config
}

impl Arguments {
    /// Both halves of tracing, when traces are to be sent somewhere.
    pub(crate) fn traces(&self, settings: &Settings) -> anyhow::Result<Option<Traces>> {
        Ok(traces::config(&self.settings, &settings.serve)?.map(Traces::new))
    }

    /// How log lines are written.
    pub(crate) fn log_format(&self, settings: &Settings) -> LogFormat {
        self.settings.log_format.or(settings.serve.log_format).unwrap_or_default()
    }
}

pub(crate) async fn run(
    settings: &Settings,
    arguments: Arguments,
    exporter: Option<Exporter>,
) -> anyhow::Result<ExitCode> {
    let (given, file) = (&arguments.settings, &settings.serve);
    // All that can be wrong without looking at the host comes first: a start that is refused makes nothing.
    require_root("serve")?;
    let prepare = given.prepare.as_ref().or(file.prepare.as_ref()).cloned().unwrap_or_default();
    let key = check(&prepare)?;
    let address = given.listen.as_deref().or(file.listen.as_deref()).unwrap_or(LISTEN_DEFAULT);
    let mut config = control_config(given, file);
    config.builds = builds::config(given, file, config.network_default)?;
    let server_config = server_config(given, file, config.public_url.as_deref());
    // An address that is taken is the commonest mistake.
    let listener = TcpListener::bind(address).await.with_context(|| format!("listen on {address}"))?;
    let counts = exporter.as_ref().map(|exporter| exporter.counts().clone());
    let traces = exporter.map(Exporter::start);
    let data_dir = &settings.node.data_dir;
    let before = Fresh::before(data_dir);
    let node = open_node(settings).await?;
    let addresses = node.addresses();
    if settings.node.address_choice == AddressChoice::Preferred && addresses != settings.node.addresses {
        output::say(format!("guests have addresses of {addresses}"));
    }
    let opened = open_services(config, data_dir, node.clone()).await;
    let (control, admin) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            node.close().await;
            tokio::task::block_in_place(|| before.undo());
            return Err(error);
        }
    };
    drop(node);
    if let Some(Counts { sent, lost }) = counts {
        control.measurements().show_traces(sent, lost);
    }
    match control.bootstrap(key.as_deref()).await {
        Ok(Some(made)) if key.is_none() => {
            output::say("this is the first key; it is shown this once:");
            output::result(output::Format::Table, &made, || made.clone())?;
        }
        Ok(_) => {}
        Err(error) => bail!("{BOOTSTRAP_KEY}: {error}"),
    }
    for name in &prepare {
        control.prepare_from_catalogue(name).map_err(|error| anyhow::anyhow!("{error}"))?;
    }
    output::say(format!("serving on http://{}", listener.local_addr()?));
    let stop = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).context("watch for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("watch for SIGINT")?;
    let told = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        output::say("finishing what is under way; machines go on running");
        // Streams that would go on for ever end now, so that connections can.
        control.closing().cancel();
        stop.cancel();
    };
    let served = async { server::serve(listener, &control, &server_config, stop.clone()).await };
    let operators = admin.serve(&control, stop.clone());
    let (served, (), ()) = tokio::join!(served, told, operators);
    control.close().await;
    if let Some(traces) = traces {
        traces.finish(TRACES_TIMEOUT).await;
    }
    served.context("serve")?;
    Ok(ExitCode::SUCCESS)
}

async fn open_services(
    config: ControlConfig,
    data_dir: &Path,
    node: Node,
) -> anyhow::Result<(Control, AdminSocket)> {
    let database = data_dir.join(DATABASE);
    let store = tokio::task::block_in_place(|| SqliteStore::open(&database)).context("open the database")?;
    let admin = AdminSocket::open(data_dir).context("open the socket for operators")?;
    let control = Control::open(config, Arc::new(store), node).await.context("start the services")?;
    Ok((control, admin))
}
