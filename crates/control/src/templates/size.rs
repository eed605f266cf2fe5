//! The size of a sandbox as its caller asks for it. Rules only.
//!
//! A size that is not the template's own is baked once and kept (a variant), so sizes are few: memory comes in steps.

use domain::MachineShape;

use crate::error::ControlError;

/// Memory is rounded up to a multiple of this, in MiB.
const MEMORY_STEP_MIB: u32 = 64;
/// Least memory that a caller may ask for, in MiB.
const MEMORY_MIB_MIN: u32 = 128;

/// What a caller asked for: absent is what the template has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct AskedSize {
    vcpus: Option<u32>,
    memory_mib: Option<u32>,
}

/// The largest sizes that callers may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizeBounds {
    pub(crate) vcpus_max: u32,
    pub(crate) memory_mib_max: u32,
}

/// A number of a request: 0 is as good as absent.
fn asked(name: &str, value: Option<i64>) -> Result<Option<u32>, ControlError> {
    match value.map(u32::try_from) {
        None | Some(Ok(0)) => Ok(None),
        Some(Ok(value)) => Ok(Some(value)),
        Some(Err(_)) => Err(ControlError::invalid(format!("{name} is not a size"))),
    }
}

impl AskedSize {
    /// The size in a request.
    pub(crate) fn parse(cpu: Option<i64>, memory_mb: Option<i64>) -> Result<Self, ControlError> {
        let memory_mib = asked("memory_mb", memory_mb)?;
        // Beyond what can be rounded it is beyond any bound too.
        let memory_mib =
            memory_mib.map(|mib| mib.checked_next_multiple_of(MEMORY_STEP_MIB).unwrap_or(u32::MAX));
        Ok(Self { vcpus: asked("cpu", cpu)?, memory_mib })
    }

    /// The size of a sandbox of a template that has this size itself; `None` where it is that.
    pub(crate) fn of_template(
        self,
        vcpus: u32,
        memory_mib: u32,
        bounds: SizeBounds,
    ) -> Result<Option<MachineShape>, ControlError> {
        let wanted = (self.vcpus.unwrap_or(vcpus), self.memory_mib.unwrap_or(memory_mib));
        if wanted == (vcpus, memory_mib) {
            return Ok(None);
        }
        // What the template has itself is always allowed.
        if wanted.0 != vcpus && !(1..=bounds.vcpus_max).contains(&wanted.0) {
            return Err(ControlError::invalid(format!("cpu must be between 1 and {}", bounds.vcpus_max)));
        }
        let most = bounds.memory_mib_max / MEMORY_STEP_MIB * MEMORY_STEP_MIB;
        if wanted.1 != memory_mib && !(MEMORY_MIB_MIN..=most).contains(&wanted.1) {
            return Err(ControlError::invalid(format!(
                "memory_mb must be between {MEMORY_MIB_MIN} and {most}"
            )));
        }
        let vcpus = u8::try_from(wanted.0).unwrap_or(u8::MAX);
        let shape = MachineShape::new(vcpus, wanted.1);
        shape.map(Some).map_err(|error| ControlError::invalid(error.to_string()))
    }

    /// A snapshot has the size of the sandbox it was taken of, and so has whatever is made from it.
    pub(crate) fn check_snapshot(self, vcpus: u32, memory_mib: u32) -> Result<(), ControlError> {
        let differs = self.vcpus.is_some_and(|asked| asked != vcpus)
            || self.memory_mib.is_some_and(|asked| asked != memory_mib);
        if !differs {
            return Ok(());
        }
        let message =
            format!("a snapshot keeps its size: this one has cpu {vcpus} and memory_mb {memory_mib}");
        Err(ControlError::invalid(message)
            .hint("leave cpu and memory_mb out, or create a sandbox of that size from a template"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: SizeBounds = SizeBounds { vcpus_max: 4, memory_mib_max: 1000 };

    fn size(cpu: Option<i64>, memory_mb: Option<i64>) -> Result<Option<(u8, u32)>, String> {
        let asked = AskedSize::parse(cpu, memory_mb).map_err(|error| error.message)?;
        let shape = asked.of_template(1, 250, BOUNDS).map_err(|error| error.message)?;
        Ok(shape.map(|shape| (shape.vcpus(), shape.memory_mib())))
    }

    #[test]
    fn what_the_template_has_is_no_size_of_its_own() {
        for (cpu, memory) in [(None, None), (Some(0), Some(0)), (Some(1), None)] {
            assert_eq!(size(cpu, memory), Ok(None), "{cpu:?} {memory:?}");
        }
    }

    #[test]
    fn memory_comes_in_steps() {
        assert_eq!(size(Some(2), None), Ok(Some((2, 250))));
        assert_eq!(size(None, Some(512)), Ok(Some((1, 512))));
        assert_eq!(size(Some(4), Some(513)), Ok(Some((4, 576))));
        assert_eq!(size(None, Some(65)), Ok(Some((1, 128))));
    }

    #[test]
    fn sizes_beyond_the_bounds_are_refused_with_them() {
        let cpu = Err("cpu must be between 1 and 4".to_owned());
        let memory = Err("memory_mb must be between 128 and 960".to_owned());
        assert_eq!(size(Some(5), None), cpu);
        assert_eq!(size(Some(i64::from(u32::MAX)), Some(512)), cpu);
        assert_eq!(size(None, Some(64)), memory);
        assert_eq!(size(None, Some(961)), memory);
        assert_eq!(size(None, Some(i64::from(u32::MAX))), memory);
        assert!(size(Some(-1), None).is_err() && size(None, Some(i64::MAX)).is_err());
    }

    #[test]
    fn a_template_may_be_larger_than_callers_may_ask_for() {
        let asked = AskedSize::parse(Some(8), Some(2048)).unwrap();
        assert_eq!(asked.of_template(8, 2048, BOUNDS).unwrap(), None);
        let asked = AskedSize::parse(Some(2), None).unwrap();
        let shape = asked.of_template(8, 2048, BOUNDS).unwrap().unwrap();
        assert_eq!((shape.vcpus(), shape.memory_mib()), (2, 2048));
    }

    #[test]
    fn a_snapshot_keeps_its_size() {
        let check = |cpu, memory, fits: bool| {
            let asked = AskedSize::parse(cpu, memory).unwrap();
            assert_eq!(asked.check_snapshot(2, 512).is_ok(), fits, "{cpu:?} {memory:?}");
        };
        check(None, None, true);
        check(Some(2), Some(500), true);
        check(Some(1), None, false);
        check(None, Some(1024), false);
    }
}
