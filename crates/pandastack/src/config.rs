//! Settings: from a TOML file, environment variables and options, each overriding the one before.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, ValueEnum};
use network::{AddressPool, InterfaceName, Uplink};
use node::NodeConfig;
use serde::Deserialize;
use storage::PoolSize;

/// Chooses what is logged, in the syntax of `tracing`'s filters, such as `info` or `node=debug`.
pub(crate) const LOG_VARIABLE: &str = "PANDASTACK_LOG";

/// Options every command takes.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Settings file in TOML; its keys are these options' names with `_` for `-`.
    #[arg(long, global = true, env = "PANDASTACK_CONFIG")]
    config: Option<PathBuf>,
    /// Directory for everything PandaStack keeps [default: /var/lib/pandastack].
    #[arg(long, global = true, env = "PANDASTACK_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Which engine runs machines [default: auto, decided by booting a tiny guest].
    #[arg(long, global = true, env = "PANDASTACK_ENGINE", value_enum)]
    engine: Option<EngineSetting>,
    /// QEMU to use instead of the one on the search path.
    #[arg(long, global = true, env = "PANDASTACK_QEMU")]
    qemu: Option<PathBuf>,
    /// Addresses for guests, as `a.b.c.d/prefix` [default: 10.201.0.0/16].
    #[arg(long, global = true, env = "PANDASTACK_ADDRESSES")]
    addresses: Option<String>,
    /// Interface by which guests with an open network reach the world: `none`, `default-route` or a name [default: none].
    #[arg(long, global = true, env = "PANDASTACK_UPLINK")]
    uplink: Option<String>,
    /// Size limit of the pool image in GiB, where one is needed [default: nine tenths of the free space].
    #[arg(long, global = true, env = "PANDASTACK_POOL_GIB")]
    pool_gib: Option<u64>,
    /// Machine processes without a guest to keep ready for each template in use [default: 2].
    #[arg(long, global = true, env = "PANDASTACK_MACHINES_WAITING")]
    machines_waiting: Option<usize>,
    /// Networks to keep ready [default: 4].
    #[arg(long, global = true, env = "PANDASTACK_NETWORKS_PREPARED")]
    networks_prepared: Option<u32>,
}

/// Which engine runs machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum EngineSetting {
    /// The best that works here.
    Auto,
    /// QEMU with hardware virtualization.
    QemuKvm,
    /// QEMU with software emulation. Not a security boundary.
    QemuTcg,
}

/// The settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    data_dir: Option<PathBuf>,
    engine: Option<EngineSetting>,
    qemu: Option<PathBuf>,
    addresses: Option<String>,
    uplink: Option<String>,
    pool_gib: Option<u64>,
    machines_waiting: Option<usize>,
    networks_prepared: Option<u32>,
}

/// What was decided.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) engine: EngineSetting,
    pub(crate) qemu: Option<PathBuf>,
    pub(crate) node: NodeConfig,
}

impl Options {
    /// Reads the file and lets environment and options override it.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let file = match &self.config {
            None => File::default(),
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
                toml::from_str(&text).with_context(|| format!("understand {}", path.display()))?
            }
        };
        let data_dir =
            self.data_dir.clone().or(file.data_dir).unwrap_or_else(|| "/var/lib/pandastack".into());
        let mut node = NodeConfig::new(std::path::absolute(&data_dir).context("find the data directory")?);
        if let Some(addresses) = self.addresses.as_ref().or(file.addresses.as_ref()) {
            node.addresses =
                parse_addresses(addresses).with_context(|| format!("understand addresses `{addresses}`"))?;
        }
        if let Some(uplink) = self.uplink.as_ref().or(file.uplink.as_ref()) {
            node.uplink = match uplink.as_str() {
                "none" => Uplink::None,
                "default-route" => Uplink::DefaultRoute,
                name => Uplink::Interface(
                    InterfaceName::parse(name).with_context(|| format!("understand uplink `{name}`"))?,
                ),
            };
        }
        if let Some(gib) = self.pool_gib.or(file.pool_gib) {
            node.pool_size = PoolSize::Bytes(gib.checked_mul(1 << 30).context("the pool is too large")?);
        }
        if let Some(waiting) = self.machines_waiting.or(file.machines_waiting) {
            node.machines_waiting = waiting;
        }
        if let Some(prepared) = self.networks_prepared.or(file.networks_prepared) {
            node.networks_prepared = prepared;
        }
        Ok(Settings {
            engine: self.engine.or(file.engine).unwrap_or(EngineSetting::Auto),
            qemu: self.qemu.clone().or(file.qemu),
            node,
        })
    }
}

fn parse_addresses(text: &str) -> anyhow::Result<AddressPool> {
    let (base, prefix) = text.split_once('/').context("it has no prefix")?;
    Ok(AddressPool::new(base.parse()?, prefix.parse()?)?)
}
