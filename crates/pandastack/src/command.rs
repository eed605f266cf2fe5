//! One file per subcommand.

pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod local;
pub(crate) mod serve;
pub(crate) mod template;
