//! Variants: a template in another size. A machine's size is fixed when it boots, so each size of a template is baked once and kept.
//!
//! A variant is a template of its own with a name that tells what it is of, such as `base--4c2048m`. It goes with its template, when
//! that is removed or baked anew, and those used least recently go when there are too many.

use domain::{InvalidId, MachineShape, SnapshotId, TemplateName};

use crate::error::NodeError;
use crate::node::Shared;
use crate::snapshots::TemplateUse;

/// Variants of one template that are kept. More only while all of them are in use.
const VARIANTS_MAX: usize = 8;
/// Variants that are baked at once; others wait. Any caller can ask for one.
pub(crate) const BAKES_AT_ONCE: usize = 2;
/// Between a template's name and a size. In no other name of a template.
const SEPARATOR: &str = "--";

/// The name of a template in another size.
pub fn variant_name(base: &TemplateName, shape: MachineShape) -> Result<TemplateName, InvalidId> {
    TemplateName::parse(&format!("{base}{SEPARATOR}{}c{}m", shape.vcpus(), shape.memory_mib()))
}

/// What a variant is of; `None` for a name that is not that of one.
pub fn variant_base(name: &TemplateName) -> Option<&str> {
    let (base, size) = name.as_str().rsplit_once(SEPARATOR)?;
    let (vcpus, memory) = size.strip_suffix('m')?.split_once('c')?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(vcpus) && digits(memory)).then_some(base)
}

pub(super) fn is_variant_of(name: &TemplateName, base: &TemplateName) -> bool {
    variant_base(name) == Some(base.as_str())
}

/// A template was baked anew: its variants are of the one before.
pub(super) fn remove_outdated(shared: &Shared, base: &TemplateName) -> Result<(), NodeError> {
    for (id, _) in shared.snapshots.template_uses(|name| is_variant_of(name, base)) {
        tracing::info!(template = %base, snapshot.id = %id, "template {base} was baked anew; a variant of it goes");
        shared.waiting.unwant(&id);
        shared.snapshots.delete(&id)?;
    }
    Ok(())
}

/// A variant was baked: those used least recently go, as far as there are too many and no machine uses them.
pub(super) fn remove_surplus(
    shared: &Shared,
    name: &TemplateName,
    baked: &SnapshotId,
) -> Result<(), NodeError> {
    let Some(base) = variant_base(name) else { return Ok(()) };
    let uses = shared.snapshots.template_uses(|other| variant_base(other) == Some(base));
    for id in surplus(uses, baked) {
        tracing::info!(template = base, snapshot.id = %id, "template {base} has many sizes; the one used least recently goes");
        shared.waiting.unwant(&id);
        shared.snapshots.delete(&id)?;
    }
    Ok(())
}

/// Which of a template's variants go.
fn surplus(mut uses: Vec<(SnapshotId, TemplateUse)>, baked: &SnapshotId) -> Vec<SnapshotId> {
    let too_many = uses.len().saturating_sub(VARIANTS_MAX);
    uses.retain(|(id, of)| id != baked && of.users == 0);
    uses.sort_by_key(|(_, of)| of.used_unix_ms);
    uses.into_iter().take(too_many).map(|(id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> TemplateName {
        TemplateName::parse(text).unwrap()
    }

    #[test]
    fn names_tell_what_they_are_of() {
        let shape = MachineShape::new(4, 2048).unwrap();
        let variant = variant_name(&name("postgres-16"), shape).unwrap();
        assert_eq!(variant.as_str(), "postgres-16--4c2048m");
        assert_eq!(variant_base(&variant), Some("postgres-16"));
        for other in ["postgres-16", "own-abc", "a--b", "a--c", "a--1c", "a--1cm", "a--xc1m"] {
            assert_eq!(variant_base(&name(other)), None, "{other}");
        }
        // The longest names there are.
        let own = name(&format!("own-{}", "a".repeat(26)));
        assert!(variant_name(&own, MachineShape::new(64, 256 * 1024).unwrap()).is_ok());
    }

    #[test]
    fn those_used_least_recently_go_unless_they_are_in_use() {
        let id = |number: u8| SnapshotId::from_random([number; 16]);
        let uses = |count: u8| -> Vec<_> {
            let of =
                |number: u8| TemplateUse { users: usize::from(number == 1), used_unix_ms: number.into() };
            (0..count).map(|number| (id(number), of(number))).collect()
        };
        assert!(surplus(uses(8), &id(7)).is_empty());
        assert_eq!(surplus(uses(9), &id(8)), [id(0)]);
        // The second is in use, the newest was just made.
        assert_eq!(surplus(uses(11), &id(10)), [id(0), id(2), id(3)]);
        assert_eq!(surplus(uses(9), &id(0)), [id(2)]);
    }
}
