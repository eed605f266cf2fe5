//! What is measured, for Prometheus and for callers who ask how long things took.

mod device_counters;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use contract::operation::{BootSample, BootStats, Percentiles};
use contract::sandbox::CreateTimings;
use contract::time::rfc3339;
use domain::SandboxId;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::clock::now_ms;
use crate::control::Control;
use crate::error::Kind;

/// Creations remembered one by one.
const SAMPLES_MAX: usize = 500;

type Labels = Vec<(&'static str, String)>;

struct Sample {
    about: BootSample,
    at_ms: i64,
    tenant_visible: String,
}

/// Counters and histograms of the services.
pub struct Measurements {
    create: Family<Labels, Histogram>,
    create_failures: Family<Labels, Counter>,
    exec: Histogram,
    wake: Histogram,
    pause: Histogram,
    deaths: Counter,
    builds: Family<Labels, Histogram>,
    requests: Family<Labels, Counter>,
    request_seconds: Family<Labels, Histogram>,
    samples: Mutex<VecDeque<Sample>>,
    traces: OnceLock<TraceCounts>,
}

/// What became of spans, when traces are sent somewhere.
#[derive(Debug, Clone)]
struct TraceCounts {
    sent: Counter,
    lost: Counter,
}

fn histogram() -> Histogram {
    // 1 ms to about 65 s.
    Histogram::new(exponential_buckets(0.001, 2.0, 17))
}

fn long_histogram() -> Histogram {
    // 1 s to about 2 h 16 min.
    Histogram::new(exponential_buckets(1.0, 2.0, 14))
}

impl Default for Measurements {
    fn default() -> Self {
        Self {
            create: Family::new_with_constructor(histogram),
            create_failures: Family::default(),
            exec: histogram(),
            wake: histogram(),
            pause: histogram(),
            deaths: Counter::default(),
            builds: Family::new_with_constructor(long_histogram),
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(histogram),
            samples: Mutex::default(),
            traces: OnceLock::new(),
        }
    }
}

impl Measurements {
    pub(crate) fn created(
        &self,
        template: &str,
        mode: &str,
        id: &SandboxId,
        boot_ms: f64,
        timings: &CreateTimings,
    ) {
        let phases = [
            ("record", timings.record_ms),
            ("prepare", timings.prepare_ms),
            ("load", timings.load_ms),
            ("confirm", timings.confirm_ms),
            ("total", boot_ms),
        ];
        for (phase, ms) in phases {
            let labels = vec![("phase", phase.to_owned()), ("mode", mode.to_owned())];
            self.create.get_or_create(&labels).observe(ms / 1000.0);
        }
        let at_ms = now_ms();
        let about = BootSample {
            sandbox_id: id.to_string(),
            template: template.to_owned(),
            boot_mode: mode.to_owned(),
            boot_ms,
            ts: rfc3339(at_ms),
        };
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        samples.push_front(Sample { about, at_ms, tenant_visible: id.to_string() });
        samples.truncate(SAMPLES_MAX);
    }

    pub(crate) fn create_failed(&self, kind: Kind) {
        self.create_failures.get_or_create(&vec![("kind", kind.code().to_owned())]).inc();
    }

    pub(crate) fn executed(&self, took: Duration) {
        self.exec.observe(took.as_secs_f64());
    }

    pub(crate) fn woken(&self, took: Duration) {
        self.wake.observe(took.as_secs_f64());
    }

    pub(crate) fn saved(&self, paused_ms: f64) {
        self.pause.observe(paused_ms / 1000.0);
    }

    /// Counts a build of a template by how it ended.
    pub(crate) fn built(&self, outcome: &str, took: Duration) {
        self.builds.get_or_create(&vec![("outcome", outcome.to_owned())]).observe(took.as_secs_f64());
    }

    pub(crate) fn died(&self) {
        self.deaths.inc();
    }

    /// Shows counters of spans that were sent and lost. Once: later ones are not shown.
    pub fn show_traces(&self, sent: Counter, lost: Counter) {
        self.traces.get_or_init(|| TraceCounts { sent, lost });
    }

    /// Counts an HTTP request by the route it matched.
    pub fn requested(&self, method: &str, route: &str, status: u16, took: Duration) {
        let labels =
            vec![("method", method.to_owned()), ("route", route.to_owned()), ("status", status.to_string())];
        self.requests.get_or_create(&labels).inc();
        let labels = vec![("method", method.to_owned()), ("route", route.to_owned())];
        self.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

fn percentiles<'a>(times: impl Iterator<Item = &'a f64>) -> Percentiles {
    let mut sorted: Vec<f64> = times.copied().collect();
    sorted.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let index = (share * sorted.len() as f64).ceil() as usize;
        sorted.get(index.saturating_sub(1)).copied().unwrap_or(0.0)
    };
    Percentiles { count: sorted.len(), p50: at(0.5), p90: at(0.9), p99: at(0.99) }
}

impl Control {
    /// Everything measured, as Prometheus reads it.
    pub async fn prometheus(&self) -> String {
        let measurements = self.measurements();
        let mut registry = Registry::with_prefix("pandastack");
        let sandboxes = Family::<Labels, Gauge>::default();
        let (stats, counters) = (self.node().stats(), self.node().counters().await);
        for (phase, count) in &stats.sandboxes {
            let label = format!("{phase:?}").to_lowercase();
            sandboxes.get_or_create(&vec![("state", label)]).set(*count as i64);
        }
        registry.register("sandboxes", "Sandboxes by state", sandboxes);
        let gauge = |value: i64| {
            let gauge = Gauge::<i64>::default();
            gauge.set(value);
            gauge
        };
        let vmms = gauge(stats.prestarted_vmms as i64);
        registry.register("vmms_prestarted", "Machine processes without a guest, kept ready", vmms);
        let networks = gauge(i64::from(stats.networks_ready));
        registry.register("networks_ready", "Networks without a sandbox, kept ready", networks);
        let free = gauge(stats.pool_free_bytes as i64);
        registry.register("pool_free_bytes", "Free disk space of the pool", free);
        registry.register(
            "create_seconds",
            "Time to create a sandbox, by phase",
            measurements.create.clone(),
        );
        registry.register(
            "create_failures",
            "Creations that failed, by kind",
            measurements.create_failures.clone(),
        );
        registry.register("exec_seconds", "Time of commands, waking included", measurements.exec.clone());
        registry.register("wake_seconds", "Time to wake a sandbox", measurements.wake.clone());
        registry.register(
            "snapshot_pause_seconds",
            "How long guests stood still",
            measurements.pause.clone(),
        );
        registry.register("machine_deaths", "Machines that ended by themselves", measurements.deaths.clone());
        registry.register(
            "template_build_seconds",
            "Time of template builds, by how they ended",
            measurements.builds.clone(),
        );
        registry.register("http_requests", "Requests by route and status", measurements.requests.clone());
        registry.register(
            "http_request_seconds",
            "Time of requests by route",
            measurements.request_seconds.clone(),
        );
        device_counters::register(&mut registry, counters);
        if let Some(traces) = measurements.traces.get() {
            registry.register("trace_spans_sent", "Spans the collector took", traces.sent.clone());
            registry.register(
                "trace_spans_lost",
                "Spans never sent: too many at once, or the collector did not take them",
                traces.lost.clone(),
            );
        }
        let mut text = String::new();
        match encode(&mut text, &registry) {
            Ok(()) => text,
            Err(error) => {
                tracing::error!(%error, "measurements could not be written");
                String::new()
            }
        }
    }

    /// Times of the caller's recent creations. `own` tells which ids are the caller's.
    pub async fn boot_stats(
        &self,
        caller: &crate::caller::Caller,
        limit: Option<usize>,
    ) -> Result<BootStats, crate::error::ControlError> {
        let limit = limit.unwrap_or(50).clamp(1, SAMPLES_MAX);
        let own = self.store().sandboxes(&caller.tenant).await?;
        let own: std::collections::HashSet<&str> = own.iter().map(|row| row.id.as_str()).collect();
        let samples = self.measurements().samples.lock().unwrap_or_else(PoisonError::into_inner);
        let visible: Vec<&Sample> =
            samples.iter().filter(|sample| own.contains(sample.tenant_visible.as_str())).collect();
        let mut by_mode: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        let mut by_template: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for sample in &visible {
            by_mode.entry(sample.about.boot_mode.clone()).or_default().push(sample.about.boot_ms);
            by_template.entry(sample.about.template.clone()).or_default().push(sample.about.boot_ms);
        }
        let all = |groups: BTreeMap<String, Vec<f64>>| {
            groups.into_iter().map(|(name, times)| (name, percentiles(times.iter()))).collect()
        };
        Ok(BootStats {
            total_samples: visible.len(),
            window_seconds: visible.last().map_or(0, |sample| (now_ms() - sample.at_ms).max(0) as u64 / 1000),
            overall: percentiles(visible.iter().map(|sample| &sample.about.boot_ms)),
            by_mode: all(by_mode),
            by_template: all(by_template),
            recent: visible.iter().take(limit).map(|sample| sample.about.clone()).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let times: Vec<f64> = (1..=100).map(f64::from).collect();
        let found = percentiles(times.iter());
        assert_eq!((found.count, found.p50, found.p90, found.p99), (100, 50.0, 90.0, 99.0));
        assert_eq!(percentiles([].iter()).p50, 0.0);
    }
}
