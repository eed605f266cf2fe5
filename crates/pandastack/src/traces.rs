//! Where traces go, as the settings say it. The names are those that OpenTelemetry gives its settings everywhere.

use anyhow::{Context, bail};
use telemetry::{Collector, Sampler, TraceConfig, pairs};

use crate::config::ServeSettings;

/// Headers for the collector, which may hold a key.
const HEADERS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"];
/// How traces are written; there is one way.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
const PROTOCOL: &str = "http/protobuf";
/// KeyedMutex everything off.
const DISABLED: &str = "OTEL_SDK_DISABLED";
const SERVICE: &str = "pandastack";

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn given(value: Option<&String>) -> Option<&str> {
    value.map(String::as_str).filter(|value| !value.is_empty())
}

/// What traces are to be like; `None` when nobody wants any. Options and environment go over the settings file.
pub(crate) fn config(options: &ServeSettings, file: &ServeSettings) -> anyhow::Result<Option<TraceConfig>> {
    let disabled = variable(DISABLED).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    let endpoint = [options, file].into_iter().find_map(|settings| {
        let exact = given(settings.otlp_traces_endpoint.as_ref()).map(Collector::exactly);
        exact.or_else(|| given(settings.otlp_endpoint.as_ref()).map(Collector::at))
    });
    let Some(collector) = endpoint.filter(|_| !disabled) else { return Ok(None) };
    let mut collector = collector.context("understand where traces go")?;
    for name in PROTOCOLS {
        if let Some(protocol) = variable(name).filter(|protocol| protocol != PROTOCOL) {
            bail!("{name}: `{protocol}` is not spoken, only {PROTOCOL}");
        }
    }
    let headers = HEADERS.into_iter().find_map(variable);
    if let Some(headers) = headers.as_deref().or_else(|| given(file.otlp_headers.as_ref())) {
        collector = collector.with_headers(headers).context("understand the headers for traces")?;
    }
    let choose = |field: fn(&ServeSettings) -> Option<&String>| given(field(options)).or(given(field(file)));
    let ratio = options.otel_traces_sampler_arg.or(file.otel_traces_sampler_arg);
    let sampler = Sampler::parse(
        choose(|settings| settings.otel_traces_sampler.as_ref()),
        ratio.map(|ratio| ratio.to_string()).as_deref(),
    );
    let mut resource = match choose(|settings| settings.otel_resource_attributes.as_ref()) {
        None => Vec::new(),
        Some(text) => pairs(text).context("understand the attributes of traces")?,
    };
    let named = choose(|settings| settings.otel_service_name.as_ref());
    if named.is_some() || !resource.iter().any(|(name, _)| name == "service.name") {
        resource.retain(|(name, _)| name != "service.name");
        resource.push(("service.name".to_owned(), named.unwrap_or(SERVICE).to_owned()));
    }
    resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
    Ok(Some(TraceConfig {
        collector,
        sampler: sampler.context("understand which traces are kept")?,
        resource,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_go_over_the_file() {
        let none = ServeSettings::default();
        assert!(config(&none, &none).unwrap().is_none());
        let file = ServeSettings {
            otlp_traces_endpoint: Some("http://file:1/x".to_owned()),
            otel_service_name: Some("from-file".to_owned()),
            otel_resource_attributes: Some("service.name=x,zone=a%20b".to_owned()),
            ..none.clone()
        };
        let options = ServeSettings { otlp_endpoint: Some("http://option:2".to_owned()), ..none.clone() };
        let found = config(&options, &file).unwrap().unwrap();
        let text = format!("{:?}", found.collector);
        assert!(text.contains("option:2") && text.contains("/v1/traces"), "{text}");
        let named: Vec<_> =
            found.resource.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(named[..2], [("zone", "a b"), ("service.name", "from-file")]);
        let empty = ServeSettings { otlp_endpoint: Some(String::new()), ..none.clone() };
        assert!(config(&empty, &none).unwrap().is_none());
        let wrong = ServeSettings { otlp_endpoint: Some("https://x".to_owned()), ..none.clone() };
        assert!(config(&wrong, &none).is_err());
        let wrong = ServeSettings { otel_traces_sampler: Some("often".to_owned()), ..options };
        assert!(config(&wrong, &none).is_err());
    }
}
