//! Settings: from a TOML file, environment variables and options, each overriding the one before.

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use image::KernelSource;
use machine::Rates;
use network::{AddressPool, InterfaceName, Uplink};
use node::{AddressChoice, ArchiveConfig, NodeConfig};
use serde::Deserialize;
use storage::PoolSize;
use storage::blobs::BlobsConfig;

use crate::output::Hinted;

/// Chooses what is logged, in the syntax of `tracing`'s filters, such as `info` or `node=debug`.
pub(crate) const LOG_VARIABLE: &str = "PANDASTACK_LOG";

/// What parts of archived snapshots take here where nobody says.
const ARCHIVE_CACHE_GIB: u64 = 10;

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
    /// Firecracker to use instead of the one on the search path, or the one that `pandastack setup` installed.
    #[arg(long, global = true, env = "FIRECRACKER_BIN")]
    firecracker: Option<PathBuf>,
    /// Kernel for guests, a vmlinux or bzImage, instead of Debian's. Hosts with software virtualization (PVM) need one built for it.
    #[arg(long, global = true, env = "PANDASTACK_KERNEL", value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Modules of that kernel, as lib/modules/RELEASE has them [default: none, all it needs is built in].
    #[arg(long, global = true, env = "PANDASTACK_KERNEL_MODULES", value_name = "DIRECTORY")]
    kernel_modules: Option<PathBuf>,
    /// Whether machine processes are held to their share of processors, memory and processes by the kernel (cgroup v2) [default: auto, as
    /// far as this host can].
    #[arg(long, global = true, env = "PANDASTACK_CGROUPS", value_enum)]
    cgroups: Option<CgroupSetting>,
    /// In which pages machines have their memory; those of 2 MiB have to be set aside (vm.nr_hugepages), are not shared between machines,
    /// and are with Firecracker only [default: off].
    #[arg(long, global = true, env = "PANDASTACK_HUGE_PAGES", value_enum)]
    huge_pages: Option<HugePagesSetting>,
    /// MiB that may be read from and written to each disk of a machine in a second [default: no limit].
    #[arg(long, global = true, env = "PANDASTACK_DISK_MIB_PER_SECOND", value_name = "MIB")]
    disk_mib_per_second: Option<u64>,
    /// Reads and writes of each disk of a machine in a second [default: no limit].
    #[arg(long, global = true, env = "PANDASTACK_DISK_OPS_PER_SECOND", value_name = "OPS")]
    disk_ops_per_second: Option<u64>,
    /// MiB that a machine may send, and as many that it may receive, in a second; with Firecracker only [default: no limit].
    #[arg(long, global = true, env = "PANDASTACK_NETWORK_MIB_PER_SECOND", value_name = "MIB")]
    network_mib_per_second: Option<u64>,
    /// Addresses for guests, as `a.b.c.d/prefix`. Where others on this host have some of them it is refused [default: those of the last
    /// start, else 10.201.0.0/16 or the next range that is free].
    #[arg(long, global = true, env = "PANDASTACK_ADDRESSES")]
    addresses: Option<String>,
    /// Interface by which guests with an open network reach the world: `none`, `default-route` or a name [default: none].
    #[arg(long, global = true, env = "PANDASTACK_UPLINK")]
    uplink: Option<String>,
    /// Directory with certificate authorities (*.crt) that guests trust besides the public ones, for hosts behind an intercepting
    /// proxy; `none` for none [default: /usr/local/share/ca-certificates].
    #[arg(long, global = true, env = "PANDASTACK_GUEST_CERTIFICATES")]
    guest_certificates: Option<PathBuf>,
    /// Size limit of the pool image in GiB, where one is needed [default: nine tenths of the free space].
    #[arg(long, global = true, env = "PANDASTACK_POOL_GIB")]
    pool_gib: Option<u64>,
    /// Archive of snapshots: a directory, or s3://BUCKET/PREFIX with the usual AWS_ variables for where and who. Snapshots that
    /// users keep are copied there and can be used from there [default: none].
    #[arg(long, global = true, env = "PANDASTACK_ARCHIVE")]
    archive: Option<String>,
    /// GiB that archived snapshots may take on this host; those used least lately are then in the archive only [default: no limit].
    #[arg(long, global = true, env = "PANDASTACK_ARCHIVE_LOCAL_GIB")]
    archive_local_gib: Option<u64>,
    /// GiB that parts of snapshots from the archive may take on this host, for the next use of them [default: 10].
    #[arg(long, global = true, env = "PANDASTACK_ARCHIVE_CACHE_GIB")]
    archive_cache_gib: Option<u64>,
    /// Machine processes without a guest to keep ready for each template in use, at least; 0 for none at all [default: 2].
    #[arg(long, global = true, env = "PANDASTACK_PRESTARTED_VMMS")]
    prestarted_vmms: Option<usize>,
    /// The same for all templates together, at most, when many sandboxes are created at once [default: what fits into a thirty-second part of
    /// memory, up to 64].
    #[arg(long, global = true, env = "PANDASTACK_PRESTARTED_VMMS_MAX")]
    prestarted_vmms_max: Option<usize>,
    /// Networks to keep ready [default: 4].
    #[arg(long, global = true, env = "PANDASTACK_PRESTARTED_NETWORKS")]
    prestarted_networks: Option<u32>,
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
    /// Firecracker, with hardware virtualization.
    Firecracker,
}

/// Whether machine processes are held to their share of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CgroupSetting {
    /// As far as this host can.
    Auto,
    /// In every way, or nothing starts.
    Required,
    /// Not at all.
    Off,
}

/// In which pages machines have their memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum HugePagesSetting {
    /// In the usual ones, which machines share until they write.
    Off,
    /// In pages of 2 MiB.
    #[value(name = "2m")]
    #[serde(rename = "2m")]
    TwoMib,
}

/// The settings file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    data_dir: Option<PathBuf>,
    engine: Option<EngineSetting>,
    qemu: Option<PathBuf>,
    firecracker: Option<PathBuf>,
    kernel: Option<PathBuf>,
    kernel_modules: Option<PathBuf>,
    cgroups: Option<CgroupSetting>,
    huge_pages: Option<HugePagesSetting>,
    disk_mib_per_second: Option<u64>,
    disk_ops_per_second: Option<u64>,
    network_mib_per_second: Option<u64>,
    addresses: Option<String>,
    uplink: Option<String>,
    guest_certificates: Option<PathBuf>,
    pool_gib: Option<u64>,
    archive: Option<String>,
    archive_local_gib: Option<u64>,
    archive_cache_gib: Option<u64>,
    prestarted_vmms: Option<usize>,
    prestarted_vmms_max: Option<usize>,
    prestarted_networks: Option<u32>,
    serve: ServeSettings,
}

/// Settings of `pandastack serve`, in the table `[serve]` of the settings file.
#[derive(Debug, Clone, Default, Deserialize, Args)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ServeSettings {
    /// Address and port to listen on [default: 127.0.0.1:8080].
    #[arg(long, env = "PANDASTACK_LISTEN")]
    pub(crate) listen: Option<String>,
    /// Templates to prepare right away, such as base.
    #[arg(long, env = "PANDASTACK_PREPARE", value_delimiter = ',')]
    pub(crate) prepare: Option<Vec<String>>,
    /// Where the API is reached from outside, such as https://sandboxes.example.org; for links [default: as each request came].
    #[arg(long, env = "PANDASTACK_PUBLIC_URL")]
    pub(crate) public_url: Option<String>,
    /// Host under which {port}-{id}.HOST leads to a sandbox [default: localhost and the public URL's host].
    #[arg(long, env = "PANDASTACK_PREVIEW_HOST_SUFFIX")]
    pub(crate) preview_host: Option<String>,
    /// Idle seconds of a sandbox whose caller did not say [default: 3600].
    #[arg(long, env = "PANDASTACK_DEFAULT_TTL_SECONDS")]
    pub(crate) default_ttl_seconds: Option<u64>,
    /// Most idle seconds a caller may ask for [default: 2592000].
    #[arg(long, env = "PANDASTACK_MAX_TTL_SECONDS")]
    pub(crate) max_ttl_seconds: Option<u64>,
    /// Largest root disk a caller may ask for, in GiB [default: 64].
    #[arg(long, env = "PANDASTACK_MAX_DISK_GIB")]
    pub(crate) max_disk_gib: Option<u64>,
    /// Most virtual CPUs a caller may ask for [default: the cores of this host].
    #[arg(long, env = "PANDASTACK_MAX_CPU")]
    pub(crate) max_cpu: Option<u32>,
    /// Most memory a caller may ask for, in MiB [default: half of this host's].
    #[arg(long, env = "PANDASTACK_MAX_MEMORY_MIB")]
    pub(crate) max_memory_mib: Option<u32>,
    /// What a sandbox reaches when neither its caller nor its workspace says [default: none].
    #[arg(long, env = "PANDASTACK_NETWORK_DEFAULT", value_enum)]
    pub(crate) network_default: Option<NetworkSetting>,
    /// Sandboxes a tenant may have, sleeping ones included [default: 1000].
    #[arg(long, env = "PANDASTACK_QUOTA_SANDBOXES")]
    pub(crate) quota_sandboxes: Option<u64>,
    /// Virtual CPUs a tenant may have [default: 4000].
    #[arg(long, env = "PANDASTACK_QUOTA_CPUS")]
    pub(crate) quota_cpus: Option<u64>,
    /// MiB of memory a tenant's sandboxes may have [default: 4194304].
    #[arg(long, env = "PANDASTACK_QUOTA_MEMORY_MIB")]
    pub(crate) quota_memory_mib: Option<u64>,
    /// Volumes a tenant may have [default: 100].
    #[arg(long, env = "PANDASTACK_QUOTA_VOLUMES")]
    pub(crate) quota_volumes: Option<u64>,
    /// MiB a tenant's volumes may have together [default: 1048576].
    #[arg(long, env = "PANDASTACK_QUOTA_VOLUME_MIB")]
    pub(crate) quota_volume_mib: Option<u64>,
    /// Snapshots a tenant may keep [default: 1000].
    #[arg(long, env = "PANDASTACK_QUOTA_SNAPSHOTS")]
    pub(crate) quota_snapshots: Option<u64>,
    /// Templates of its own a tenant may have [default: 100].
    #[arg(long, env = "PANDASTACK_QUOTA_TEMPLATES")]
    pub(crate) quota_templates: Option<u64>,
    /// Builds of a tenant that may wait or run [default: 20].
    #[arg(long, env = "PANDASTACK_QUOTA_BUILDS")]
    pub(crate) quota_builds: Option<u64>,
    /// Builds of templates that run at once; others wait [default: 1].
    #[arg(long, env = "PANDASTACK_BUILDS_AT_ONCE")]
    pub(crate) builds_at_once: Option<usize>,
    /// What RUN steps of builds reach [default: what a sandbox reaches whose caller did not say].
    #[arg(long, env = "PANDASTACK_BUILD_NETWORK", value_enum)]
    pub(crate) build_network: Option<NetworkSetting>,
    /// Seconds one RUN step of a build may take [default: 1800].
    #[arg(long, env = "PANDASTACK_BUILD_STEP_TIMEOUT")]
    pub(crate) build_step_timeout: Option<u64>,
    /// MiB of memory of machines in which RUN steps run [default: 2048].
    #[arg(long, env = "PANDASTACK_BUILD_MEMORY_MIB")]
    pub(crate) build_memory_mib: Option<u32>,
    /// GiB of layers that are kept for later builds [default: 20].
    #[arg(long, env = "PANDASTACK_BUILD_LAYERS_GIB")]
    pub(crate) build_layers_gib: Option<u64>,
    /// GiB of caches (`RUN --mount=type=cache`) that are kept for later builds of the same tenant [default: 10].
    #[arg(long, env = "PANDASTACK_BUILD_CACHES_GIB")]
    pub(crate) build_caches_gib: Option<u64>,
    /// MiB that one request for a build may have, files included [default: 16384].
    #[arg(long, env = "PANDASTACK_MAX_BUILD_UPLOAD_MIB")]
    pub(crate) max_build_upload_mib: Option<u64>,
    /// MiB that the context of a Dockerfile may have [default: 50].
    #[arg(long, env = "PANDASTACK_MAX_BUILD_CONTEXT_MIB")]
    pub(crate) max_build_context_mib: Option<u64>,
    /// Largest disk of a template, in MiB [default: 16384].
    #[arg(long, env = "PANDASTACK_MAX_TEMPLATE_DISK_MIB")]
    pub(crate) max_template_disk_mib: Option<u32>,
    /// Registries that images may be taken from, as HOST, HOST:PORT, *.DOMAIN or * for all. The host asks them on behalf of
    /// tenants: with * they reach whatever the host does [default: none].
    #[arg(long, env = "PANDASTACK_REGISTRY", value_delimiter = ',')]
    pub(crate) registry: Option<Vec<String>>,
    /// Registry that names of images without one mean, as HOST or HOST/NAMESPACE for names of one part [default: none, such names are
    /// refused]. It may be used without being named by --registry.
    #[arg(long, env = "PANDASTACK_REGISTRY_DEFAULT")]
    pub(crate) registry_default: Option<String>,
    /// Registries that are spoken to without TLS, besides those on this machine [default: none].
    #[arg(long, env = "PANDASTACK_REGISTRY_PLAIN_HTTP", value_delimiter = ',')]
    pub(crate) registry_plain_http: Option<Vec<String>>,
    /// File with logins for registries, as `docker login` writes it [default: none].
    #[arg(long, env = "PANDASTACK_REGISTRY_AUTH")]
    pub(crate) registry_auth: Option<PathBuf>,
    /// How log lines are written to standard error [default: text].
    #[arg(long, env = "PANDASTACK_LOG_FORMAT", value_enum)]
    pub(crate) log_format: Option<LogFormat>,
    /// Requests a tenant may make at once before it has to slow down [default: 400].
    #[arg(long, env = "PANDASTACK_RATE_BURST")]
    pub(crate) rate_burst: Option<u32>,
    /// Requests a tenant may make per second in the long run [default: 200].
    #[arg(long, env = "PANDASTACK_RATE_PER_SECOND")]
    pub(crate) rate_per_second: Option<u32>,
    /// Collector that takes traces as OTLP over HTTP, such as http://localhost:4318 [default: none, no traces].
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT")]
    pub(crate) otlp_endpoint: Option<String>,
    /// The same with its whole path, where it is not /v1/traces [default: made from the endpoint].
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")]
    pub(crate) otlp_traces_endpoint: Option<String>,
    /// Headers for the collector, as name=value,name=value. Not an option: arguments are seen by everybody on the host. In the
    /// environment it is OTEL_EXPORTER_OTLP_HEADERS.
    #[arg(skip)]
    pub(crate) otlp_headers: Option<String>,
    /// What traces say they are of [default: pandastack].
    #[arg(long, env = "OTEL_SERVICE_NAME")]
    pub(crate) otel_service_name: Option<String>,
    /// More that traces say of this server, as name=value,name=value [default: none].
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES")]
    pub(crate) otel_resource_attributes: Option<String>,
    /// Which traces are kept: always_on, always_off, traceidratio, or any of them after parentbased_, which leaves it to callers
    /// that have a trace [default: parentbased_always_on].
    #[arg(long, env = "OTEL_TRACES_SAMPLER")]
    pub(crate) otel_traces_sampler: Option<String>,
    /// Share of traces that a ratio keeps, from 0 to 1 [default: 1].
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG")]
    pub(crate) otel_traces_sampler_arg: Option<f64>,
}

/// How log lines are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For programs: a JSON object on each line.
    Json,
}

/// What a sandbox reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NetworkSetting {
    /// Nothing.
    None,
    /// Whatever the uplink reaches.
    All,
}

/// What was decided.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) engine: EngineSetting,
    pub(crate) qemu: Option<PathBuf>,
    pub(crate) firecracker: Option<PathBuf>,
    pub(crate) cgroups: CgroupSetting,
    pub(crate) huge_pages: HugePagesSetting,
    pub(crate) rates: Rates,
    pub(crate) node: NodeConfig,
    /// What the settings file says about `pandastack serve`.
    pub(crate) serve: ServeSettings,
}

impl Options {
    /// Reads the file and lets environment and options override it.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        let file = match &self.config {
            None => File::default(),
            Some(path) => {
                let text =
                    std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
                toml::from_str(&text).map_err(|error| not_understood(path, &error))?
            }
        };
        let data_dir =
            self.data_dir.clone().or(file.data_dir).unwrap_or_else(|| "/var/lib/pandastack".into());
        let mut node = NodeConfig::new(std::path::absolute(&data_dir).context("find the data directory")?);
        node.address_choice = AddressChoice::Preferred;
        if let Some(addresses) = self.addresses.as_ref().or(file.addresses.as_ref()) {
            node.address_choice = AddressChoice::Fixed;
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
        if let Some(folder) = self.guest_certificates.as_ref().or(file.guest_certificates.as_ref()) {
            node.authorities = match folder.as_os_str().to_str() {
                Some("none") => None,
                // The usual one may be missing; one that was named is meant.
                _ if !folder.is_dir() => bail!("guest certificates: {} is not a directory", folder.display()),
                _ => Some(std::path::absolute(folder).context("find the guest certificates")?),
            };
        }
        let kernel = self.kernel.clone().or(file.kernel);
        let modules = self.kernel_modules.clone().or(file.kernel_modules);
        match kernel {
            Some(kernel) => node.kernel = operators_kernel(&kernel, modules.as_deref())?,
            None => ensure!(modules.is_none(), "kernel modules are of a kernel: name it with --kernel"),
        }
        if let Some(gib) = self.pool_gib.or(file.pool_gib) {
            node.pool_size = PoolSize::Bytes(gib.checked_mul(1 << 30).context("the pool is too large")?);
        }
        if let Some(address) = self.archive.as_ref().or(file.archive.as_ref()) {
            let bytes = |gib: u64| gib.checked_mul(1 << 30).context("the archive's limits are too large");
            let cache = self.archive_cache_gib.or(file.archive_cache_gib).unwrap_or(ARCHIVE_CACHE_GIB);
            let mut blobs = BlobsConfig::new(address.parse().context("understand the archive's address")?);
            blobs.environment = std::env::vars().filter(|(name, _)| name.starts_with("AWS_")).collect();
            node.archive = Some(ArchiveConfig {
                blobs,
                local_bytes_max: self.archive_local_gib.or(file.archive_local_gib).map(bytes).transpose()?,
                cache_bytes_max: bytes(cache)?,
            });
        }
        if let Some(waiting) = self.prestarted_vmms.or(file.prestarted_vmms) {
            node.prestarted_vmms.least = waiting;
        }
        if let Some(most) = self.prestarted_vmms_max.or(file.prestarted_vmms_max) {
            node.prestarted_vmms.most = most;
        }
        if let Some(prepared) = self.prestarted_networks.or(file.prestarted_networks) {
            node.prestarted_networks = prepared;
        }
        let disk_bytes = bytes_per_second(self.disk_mib_per_second.or(file.disk_mib_per_second))?;
        let disk_operations = self.disk_ops_per_second.or(file.disk_ops_per_second).and_then(NonZeroU64::new);
        let network_bytes = bytes_per_second(self.network_mib_per_second.or(file.network_mib_per_second))?;
        Ok(Settings {
            rates: Rates { disk_bytes, disk_operations, network_bytes },
            engine: self.engine.or(file.engine).unwrap_or(EngineSetting::Auto),
            qemu: self.qemu.clone().or(file.qemu),
            firecracker: self.firecracker.clone().or(file.firecracker),
            cgroups: self.cgroups.or(file.cgroups).unwrap_or(CgroupSetting::Auto),
            huge_pages: self.huge_pages.or(file.huge_pages).unwrap_or(HugePagesSetting::Off),
            node,
            serve: file.serve,
        })
    }
}

/// What is wrong in the settings file, and what to do about it. The message of the parser has the line and the known keys.
fn not_understood(path: &Path, error: &toml::de::Error) -> anyhow::Error {
    let hint = format!(
        "mend {}: its keys are the names of options with _ for -, those of `serve` stand in [serve]; pandastack serve --help lists them",
        path.display()
    );
    anyhow::Error::new(Hinted { message: error.to_string().trim_end().to_owned(), hint: Some(hint) })
        .context(format!("the settings file {} cannot be used", path.display()))
}

/// None and 0 are no limit.
fn bytes_per_second(mib: Option<u64>) -> anyhow::Result<Option<NonZeroU64>> {
    let bytes = mib.unwrap_or(0).checked_mul(1 << 20).context("a limit of MiB per second is too large")?;
    Ok(NonZeroU64::new(bytes))
}

/// A kernel that was named is meant: nothing else takes its place.
fn operators_kernel(kernel: &Path, modules: Option<&Path>) -> anyhow::Result<KernelSource> {
    ensure!(kernel.is_file(), "kernel: {} is not a file", kernel.display());
    if let Some(modules) = modules {
        ensure!(modules.is_dir(), "kernel modules: {} is not a directory", modules.display());
    }
    Ok(KernelSource::File {
        vmlinux: std::path::absolute(kernel).context("find the kernel")?,
        modules: modules.map(std::path::absolute).transpose().context("find the kernel's modules")?,
    })
}

fn parse_addresses(text: &str) -> anyhow::Result<AddressPool> {
    let (base, prefix) = text.split_once('/').context("it has no prefix")?;
    Ok(AddressPool::new(base.parse()?, prefix.parse()?)?)
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;

    #[derive(Debug, Parser)]
    struct Serve {
        #[command(flatten)]
        serve: ServeSettings,
    }

    #[derive(Debug, Parser)]
    struct Host {
        #[command(flatten)]
        host: Options,
    }

    /// A value that an option of this name takes, as TOML.
    fn value(name: &str) -> Vec<String> {
        let texts = match name {
            "engine" | "cgroups" => "\"auto\"",
            "huge_pages" => "\"off\"",
            "network_default" | "build_network" => "\"none\"",
            _ => "\"text\"",
        };
        [texts, "7", "0.5", "[\"base\"]"].map(str::to_owned).to_vec()
    }

    /// Whether the file takes a key with some value.
    fn is_known(table: &str, name: &str) -> bool {
        value(name).iter().any(|value| toml::from_str::<File>(&format!("{table}{name} = {value}\n")).is_ok())
    }

    fn options(command: &clap::Command) -> Vec<String> {
        let long = |argument: &clap::Arg| argument.get_long().map(|name| name.replace('-', "_"));
        command.get_arguments().filter_map(long).filter(|name| name != "help").collect()
    }

    #[test]
    fn every_option_may_stand_in_the_settings_file() {
        let serve = options(&Serve::command());
        assert!(serve.len() > 30 && serve.iter().any(|name| name == "prepare"), "{serve:?}");
        for name in serve {
            assert!(is_known("[serve]\n", &name), "{name}");
        }
        for name in options(&Host::command()).iter().filter(|name| *name != "config") {
            assert!(is_known("", name), "{name}");
        }
        assert!(!is_known("", "no_such_key") && !is_known("[serve]\n", "no_such_key"));
    }

    #[test]
    fn a_wrong_key_is_named_with_its_file() {
        let error = toml::from_str::<File>("[serve]\nlisten_on = \"x\"\n").unwrap_err();
        let text = format!("{:#}", not_understood(Path::new("/etc/pandastack.toml"), &error));
        assert!(
            text.contains("/etc/pandastack.toml") && text.contains("listen_on") && text.contains("`listen`"),
            "{text}"
        );
    }
}
