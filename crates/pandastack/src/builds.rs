//! Settings of builds, from options and the settings file.

use std::time::Duration;

use anyhow::Context;
use builder::BuilderSettings;
use control::BuildConfig;
use network::Policy;
use oci::{Allowed, Credentials, Naming, PlainHttp, RegistryHost, RegistryPattern, ShortNames};
use store::NetworkMode;

use crate::config::{NetworkSetting, ServeSettings};

/// Names every registry.
const ALL: &str = "*";
/// Docker Hub has three customs of its own: where it answers, what a name of one part means, and how its login is written down
/// (`oci` knows the last).
const DOCKER_HUB: &str = "docker.io";
const DOCKER_HUB_ENDPOINT: &str = "registry-1.docker.io";
const DOCKER_HUB_NAMESPACE: &str = "library";

/// Options and environment over the settings file over the usual ones.
pub(crate) fn config(
    given: &ServeSettings,
    file: &ServeSettings,
    network_default: NetworkMode,
) -> anyhow::Result<BuildConfig> {
    let mut config = BuildConfig::default();
    if let Some(count) = given.builds_at_once.or(file.builds_at_once) {
        config.at_once = count.max(1);
    }
    if let Some(mib) = given.max_build_upload_mib.or(file.max_build_upload_mib) {
        config.upload_bytes_max = mib.saturating_mul(1 << 20);
    }
    if let Some(mib) = given.max_build_context_mib.or(file.max_build_context_mib) {
        config.context_bytes_max = mib.saturating_mul(1 << 20);
    }
    if let Some(mib) = given.max_template_disk_mib.or(file.max_template_disk_mib) {
        config.disk_mib_max = mib;
    }
    config.builder = builder(given, file, network_default)?;
    Ok(config)
}

fn builder(
    given: &ServeSettings,
    file: &ServeSettings,
    network_default: NetworkMode,
) -> anyhow::Result<BuilderSettings> {
    let mut settings = BuilderSettings { naming: naming(given, file)?, ..BuilderSettings::default() };
    let network = given.build_network.or(file.build_network);
    settings.network = match (network, network_default) {
        (Some(NetworkSetting::All), _) | (None, NetworkMode::All) => Policy::Open,
        (Some(NetworkSetting::None), _) | (None, NetworkMode::None) => Policy::Closed,
    };
    if let Some(seconds) = given.build_step_timeout.or(file.build_step_timeout) {
        settings.step_timeout = Duration::from_secs(seconds.max(1));
    }
    if let Some(mib) = given.build_memory_mib.or(file.build_memory_mib) {
        settings.memory_mib = mib;
    }
    if let Some(gib) = given.build_layers_gib.or(file.build_layers_gib) {
        settings.layers_bytes_max = gib.saturating_mul(1 << 30);
    }
    if let Some(gib) = given.build_caches_gib.or(file.build_caches_gib) {
        settings.caches_bytes_max = gib.saturating_mul(1 << 30);
    }
    let hub = RegistryHost::parse(DOCKER_HUB).zip(RegistryHost::parse(DOCKER_HUB_ENDPOINT));
    settings.pull.endpoints.extend(hub);
    let plain = patterns(given.registry_plain_http.as_ref().or(file.registry_plain_http.as_ref()))?;
    if !plain.is_empty() {
        settings.pull.plain_http = PlainHttp::Also(plain);
    }
    if let Some(path) = given.registry_auth.as_ref().or(file.registry_auth.as_ref()) {
        let bytes = std::fs::read(path).with_context(|| format!("read {}", path.display()))?;
        settings.credentials = Credentials::from_docker_config(&bytes)
            .with_context(|| format!("understand {}", path.display()))?;
    }
    Ok(settings)
}

fn naming(given: &ServeSettings, file: &ServeSettings) -> anyhow::Result<Naming> {
    let named = given.registry.as_ref().or(file.registry.as_ref());
    let default = given.registry_default.as_deref().or(file.registry_default.as_deref());
    let short_names = default.map(short_names).transpose()?;
    if named.is_some_and(|named| named.iter().any(|text| text == ALL)) {
        return Ok(Naming { short_names, allowed: Allowed::All });
    }
    let mut allowed = patterns(named)?;
    if let Some(short) = &short_names {
        allowed.extend(RegistryPattern::parse(short.registry.as_str()));
    }
    Ok(Naming { short_names, allowed: Allowed::Only(allowed) })
}

fn short_names(text: &str) -> anyhow::Result<ShortNames> {
    let (host, namespace) = match text.split_once('/') {
        Some((host, namespace)) => (host, Some(namespace.to_owned())),
        None => (text, (text == DOCKER_HUB).then(|| DOCKER_HUB_NAMESPACE.to_owned())),
    };
    let registry = RegistryHost::parse(host).with_context(|| format!("`{host}` is not a registry"))?;
    Ok(ShortNames { registry, namespace })
}

fn patterns(texts: Option<&Vec<String>>) -> anyhow::Result<Vec<RegistryPattern>> {
    let texts = texts.into_iter().flatten();
    texts
        .map(|text| RegistryPattern::parse(text).with_context(|| format!("`{text}` is not a registry")))
        .collect()
}

#[cfg(test)]
mod tests {
    use oci::Reference;

    use super::*;

    #[test]
    fn short_names_of_docker_hub_are_in_its_library() {
        let full = |default: &str, name: &str| {
            let naming = Naming { short_names: Some(short_names(default).unwrap()), allowed: Allowed::All };
            Reference::parse(name, &naming).unwrap().to_string()
        };
        assert_eq!(full("docker.io", "python:3.12-slim"), "docker.io/library/python:3.12-slim");
        assert_eq!(full("docker.io", "docker.io/python:3"), "docker.io/library/python:3");
        assert_eq!(full("docker.io", "grafana/grafana"), "docker.io/grafana/grafana:latest");
        assert_eq!(full("hub.example/mirror", "python"), "hub.example/mirror/python:latest");
        assert_eq!(full("hub.example", "python"), "hub.example/python:latest");
    }

    #[test]
    fn docker_hub_is_asked_where_it_answers() {
        let none = ServeSettings::default();
        let settings = builder(&none, &none, NetworkMode::None).unwrap();
        let hub = RegistryHost::parse(DOCKER_HUB).unwrap();
        assert_eq!(settings.pull.endpoints[&hub].as_str(), DOCKER_HUB_ENDPOINT);
    }
}
