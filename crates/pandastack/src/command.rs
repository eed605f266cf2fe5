//! One file per subcommand.

pub(crate) mod agents;
pub(crate) mod audit;
pub(crate) mod auth;
pub(crate) mod backup;
pub(crate) mod context;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod fs;
pub(crate) mod gc;
pub(crate) mod local;
pub(crate) mod mcp;
pub(crate) mod run;
pub(crate) mod sandbox;
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod shell;
pub(crate) mod snapshot;
pub(crate) mod template;
pub(crate) mod tenant;
pub(crate) mod token;
pub(crate) mod uninstall;
pub(crate) mod volume;
