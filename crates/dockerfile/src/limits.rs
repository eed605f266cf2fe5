//! How large a Dockerfile may be. What exceeds a bound is refused with the line where it does.

/// Bytes of a Dockerfile.
pub(crate) const FILE_BYTES_MAX: usize = 1 << 20;
/// Instructions of a Dockerfile.
pub(crate) const INSTRUCTIONS_MAX: usize = 2_000;
/// Stages of a Dockerfile.
pub(crate) const STAGES_MAX: usize = 100;
/// Bytes of one value after its variables were put in: `ENV A=$A$A` doubles at every line.
pub(crate) const VALUE_BYTES_MAX: usize = 1 << 16;
/// Bytes of an inline file after its variables were put in.
pub(crate) const INLINE_BYTES_MAX: usize = 4 << 20;
/// Bytes of all variables of a stage together.
pub(crate) const ENVIRONMENT_BYTES_MAX: usize = 1 << 20;
/// `${a:-${b:-…}}` in one another.
pub(crate) const NESTING_MAX: usize = 32;
/// Bytes of an `.dockerignore` file.
pub(crate) const IGNORE_BYTES_MAX: usize = 1 << 20;
/// Patterns of an `.dockerignore` file.
pub(crate) const IGNORE_PATTERNS_MAX: usize = 10_000;
/// Characters of a step's text in a log.
pub(crate) const TEXT_CHARS_MAX: usize = 300;
