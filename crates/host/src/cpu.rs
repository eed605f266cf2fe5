//! Which processor this is, as a fingerprint that snapshots and caches can be compared by.

use std::collections::BTreeSet;
use std::io::Read;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Enough of `/proc/cpuinfo` to hold the first processor's block.
const CPUINFO_BYTES_MAX: u64 = 64 * 1024;

/// The processor as the kernel names it. Equal identities mean equal instructions available.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuIdentity {
    /// `GenuineIntel`, `AuthenticAMD`, …
    pub vendor: String,
    /// Marketing name.
    pub model_name: String,
    /// CPUID family.
    pub family: u32,
    /// CPUID model.
    pub model: u32,
    /// CPUID stepping.
    pub stepping: u32,
    /// SHA-256 of the sorted feature flags.
    pub flags_digest: String,
    /// The feature flags, sorted.
    #[serde(skip)]
    pub flags: BTreeSet<String>,
}

impl CpuIdentity {
    /// The flag of hardware virtualization, `vmx` or `svm`, when the processor shows one.
    pub fn virtualization_flag(&self) -> Option<&'static str> {
        ["vmx", "svm"].into_iter().find(|flag| self.flags.contains(*flag))
    }
}

/// Why the processor could not be identified.
#[derive(Debug, thiserror::Error)]
pub enum CpuIdentityError {
    /// The kernel's description could not be read.
    #[error("could not read /proc/cpuinfo")]
    Read(#[source] std::io::Error),
    /// The kernel's description lacks a field.
    #[error("/proc/cpuinfo has no usable `{0}`")]
    Missing(&'static str),
}

/// Identifies the first processor; Linux does not run on mixed x86 feature sets.
pub fn cpu_identity() -> Result<CpuIdentity, CpuIdentityError> {
    let mut text = Vec::new();
    std::fs::File::open("/proc/cpuinfo")
        .and_then(|file| file.take(CPUINFO_BYTES_MAX).read_to_end(&mut text))
        .map_err(CpuIdentityError::Read)?;
    parse(&String::from_utf8_lossy(&text))
}

fn parse(text: &str) -> Result<CpuIdentity, CpuIdentityError> {
    let field = |name: &'static str| {
        text.lines()
            .take_while(|line| !line.trim().is_empty())
            .filter_map(|line| line.split_once(':'))
            .find(|(key, _)| key.trim() == name)
            .map(|(_, value)| value.trim())
            .ok_or(CpuIdentityError::Missing(name))
    };
    let number = |name: &'static str| field(name)?.parse().map_err(|_| CpuIdentityError::Missing(name));
    let flags: BTreeSet<String> = field("flags")?.split_whitespace().map(str::to_owned).collect();
    let mut digest = Sha256::new();
    for flag in &flags {
        digest.update(flag.as_bytes());
        digest.update(b" ");
    }
    Ok(CpuIdentity {
        vendor: field("vendor_id")?.to_owned(),
        model_name: field("model name")?.to_owned(),
        family: number("cpu family")?,
        model: number("model")?,
        stepping: number("stepping")?,
        flags_digest: digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect(),
        flags,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\n\
        model name\t: AMD EPYC 7B13\nstepping\t: 0\nflags\t\t: svm fpu cx16\n\nprocessor\t: 1\nflags : vmx\n";

    #[test]
    fn a_description_is_parsed_and_flag_order_does_not_matter() {
        let cpu = parse(SAMPLE).unwrap();
        assert_eq!((cpu.family, cpu.model, cpu.stepping), (25, 1, 0));
        assert_eq!(cpu.model_name, "AMD EPYC 7B13");
        assert_eq!(cpu.virtualization_flag(), Some("svm"));
        assert_eq!(parse(&SAMPLE.replace("svm fpu cx16", "cx16 svm fpu")).unwrap(), cpu);
        assert_ne!(parse(&SAMPLE.replace("svm fpu", "fpu")).unwrap().flags_digest, cpu.flags_digest);
    }

    #[test]
    fn a_description_without_a_field_is_refused() {
        assert!(matches!(parse("processor : 0\n"), Err(CpuIdentityError::Missing(_))));
    }

    #[test]
    fn this_processor_has_an_identity_that_stays() {
        assert_eq!(cpu_identity().unwrap(), cpu_identity().unwrap());
    }
}
