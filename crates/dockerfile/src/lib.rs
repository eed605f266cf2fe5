//! Dockerfiles: from text to a plan that a builder can run. Pure: no I/O, no clock, no async.
//!
//! ```text
//! text ─► Dockerfile (instructions, by stage) ─► Build (a target, arguments; the stages it needs, in order)
//!      ─► StagePlan per stage (steps with everything resolved, the image's config) ─► cache keys, copied files
//! ```
//!
//! A builder parses, asks [`Build::images`] what to pull, plans with the configs of those images, and then goes through the steps.
//! What can only be known while building (which files a pattern finds in an earlier stage, whether a destination is a directory) is
//! decided by [`CopyStep::select`] over a [`Tree`] that the builder supplies. What is not supported is an error that names the line
//! and says what to do instead; nothing is silently left out.

mod error;
mod limits;

mod expand;
mod heredoc;
mod source;
mod words;

mod instruction;
mod stages;

mod build;
mod image_config;
mod plan;

mod cache;
mod glob;
mod ignore;
mod path;
mod select;
mod tree;

pub use build::{Build, BuildRequest, StageOutline, Start};
pub use cache::CacheKey;
pub use error::{DockerfileError, Note};
pub use ignore::{IgnoreError, IgnoreFile};
pub use image_config::{Command, HealthProbe, Healthcheck, ImageConfig};
pub use plan::{Action, CopyStep, InlineFile, Input, Mount, Origin, RunStep, StagePlan, Step};
pub use select::{Destination, SelectError, Selected, Selection};
pub use stages::Dockerfile;
pub use tree::{BadPath, Entry, Listing, Tree};
