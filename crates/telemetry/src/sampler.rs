//! Which traces are kept. Decided once, where a trace enters the process; everything below follows.

use crate::context::{ParentContext, TraceId};

/// Which traces are kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampler {
    /// Do as the caller does, where the caller has a trace.
    follow_parent: bool,
    /// Share of the traces that are kept otherwise.
    ratio: f64,
}

/// Why a sampler is malformed.
#[derive(Debug, thiserror::Error)]
pub enum SamplerError {
    /// There is none of that name.
    #[error(
        "`{0}` is no sampler: always_on, always_off, traceidratio, parentbased_always_on, parentbased_always_off or \
         parentbased_traceidratio"
    )]
    Name(String),
    /// It is not a share.
    #[error("`{0}` is not a number between 0 and 1")]
    Ratio(String),
}

impl Default for Sampler {
    fn default() -> Self {
        Self { follow_parent: true, ratio: 1.0 }
    }
}

impl Sampler {
    /// The sampler that OpenTelemetry's settings name. A ratio without a name is one of the traces that no caller decided about.
    pub fn parse(name: Option<&str>, ratio: Option<&str>) -> Result<Self, SamplerError> {
        let share = match ratio {
            None => 1.0,
            Some(text) => match text.trim().parse::<f64>() {
                Ok(share) if (0.0..=1.0).contains(&share) => share,
                _ => return Err(SamplerError::Ratio(text.to_owned())),
            },
        };
        let (follow_parent, ratio) = match name.unwrap_or("parentbased_traceidratio") {
            "always_on" => (false, 1.0),
            "always_off" => (false, 0.0),
            "traceidratio" => (false, share),
            "parentbased_always_on" => (true, 1.0),
            "parentbased_always_off" => (true, 0.0),
            "parentbased_traceidratio" => (true, share),
            other => return Err(SamplerError::Name(other.to_owned())),
        };
        Ok(Self { follow_parent, ratio })
    }

    /// Whether to keep a trace. The same trace gets the same answer in every process with the same ratio.
    pub(crate) fn keeps(&self, trace: TraceId, parent: Option<&ParentContext>) -> bool {
        if let Some(parent) = parent.filter(|_| self.follow_parent) {
            return parent.sampled;
        }
        let [.., a, b, c, d, e, f, g, h] = trace.0;
        let place = u64::from_be_bytes([a, b, c, d, e, f, g, h]) >> 1;
        // Rounding would lose the highest ids.
        self.ratio >= 1.0 || (place as f64) < self.ratio * (1_u64 << 63) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::SpanId;

    #[test]
    fn samplers_keep_what_they_should() {
        let low = TraceId([0; 16]);
        let high = TraceId([0xff; 16]);
        let parent = |sampled| ParentContext { trace: low, span: SpanId([1; 8]), sampled };
        let check = |name, ratio, trace, parent: Option<ParentContext>, expected: bool| {
            let sampler = Sampler::parse(name, ratio).unwrap();
            assert_eq!(sampler.keeps(trace, parent.as_ref()), expected, "{name:?} {ratio:?} {parent:?}");
        };
        check(None, None, high, None, true);
        check(None, None, high, Some(parent(false)), false);
        check(None, Some("0.5"), low, None, true);
        check(None, Some("0.5"), high, None, false);
        check(None, Some("0"), low, None, false);
        check(Some("parentbased_always_on"), Some("0"), high, None, true);
        check(Some("parentbased_always_off"), None, low, Some(parent(true)), true);
        check(Some("always_on"), None, high, Some(parent(false)), true);
        check(Some("always_off"), None, low, Some(parent(true)), false);
        check(Some("traceidratio"), Some("0.25"), high, Some(parent(true)), false);
        assert!(Sampler::parse(Some("jaeger_remote"), None).is_err());
        for ratio in ["", "NaN", "-1", "1.5", "half"] {
            assert!(Sampler::parse(None, Some(ratio)).is_err(), "{ratio}");
        }
    }
}
