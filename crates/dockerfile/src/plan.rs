//! Steps of a stage with everything resolved that can be before they run.

mod config;
mod copy;
mod mount;
mod stage;

use std::collections::BTreeMap;

use crate::build::Start;
use crate::image_config::ImageConfig;

pub(crate) use stage::{Inherited, plan_stage};

/// Arguments that every `RUN` gets without asking. No cache key depends on them and no image holds them.
pub(crate) const PROXY_ARGUMENTS: [&str; 10] = [
    "ALL_PROXY",
    "FTP_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "NO_PROXY",
    "all_proxy",
    "ftp_proxy",
    "http_proxy",
    "https_proxy",
    "no_proxy",
];

/// How to build a stage.
#[derive(Debug, Clone)]
pub struct StagePlan {
    /// Its number in the file, from 0.
    pub index: usize,
    /// Its name, in small letters.
    pub name: Option<String>,
    /// Where it starts.
    pub start: Start,
    /// What to do, in order.
    pub steps: Vec<Step>,
    /// The config of the image it makes.
    pub config: ImageConfig,
    /// Whether an `ENTRYPOINT` or a `CMD` of this file, rather than the image it starts from, says what the image runs.
    pub sets_command: bool,
    /// Values of `ARG`s at its end, which stages that start from it inherit.
    pub(crate) args: BTreeMap<String, String>,
}

/// One instruction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The line it begins on, from 1.
    pub line: usize,
    /// As written, on one line, variables not put in: good for logs.
    pub text: String,
    /// What it takes.
    pub action: Action,
}

/// What a step takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the instruction changed what later ones are given, or the config.
    Configure,
    /// Make a directory and its parents where they are missing, mode 0755, owned by `user` (empty means root).
    MakeDirectory {
        /// Absolute.
        path: String,
        /// As in [`ImageConfig::user`].
        user: String,
    },
    /// Copy files.
    Copy(CopyStep),
    /// Run a command.
    Run(RunStep),
}

/// Files to copy. [`CopyStep::select`] says which.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CopyStep {
    /// Where from.
    pub origin: Origin,
    /// Paths and patterns, relative to the root of the origin; empty is the root itself.
    pub sources: Vec<String>,
    /// Files that stand in the Dockerfile.
    pub inline: Vec<InlineFile>,
    /// Absolute; it ends with `/` when only a directory is meant.
    pub destination: String,
    /// Who gets the files, as `user`, `uid`, `user:group` or `uid:gid`. When not said: root what comes from the context, whoever `USER`
    /// is; and what comes from a stage, an image or an archive keeps its owner.
    pub owner: Option<String>,
    /// Mode of what is copied; its own when not said.
    pub mode: Option<u32>,
    /// A file that is a tar archive, compressed or not, is unpacked into the destination instead of copied.
    pub extracts: bool,
}

/// A file that stands in the Dockerfile, mode 0644 unless the step says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InlineFile {
    /// Its name, without directories.
    pub name: String,
    /// What it holds, variables put in.
    pub content: String,
}

/// A command to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunStep {
    /// The program and its arguments. With a script: empty, the script is the program.
    pub argv: Vec<String>,
    /// A program that stands in the Dockerfile and names its interpreter; to be put in a file of mode 0755 outside the image.
    pub script: Option<InlineFile>,
    /// All variables, sorted.
    pub env: Vec<(String, String)>,
    /// Variables for reaching the network that are set unless `env` has them. They are of no account for the cache.
    pub proxy: Vec<(String, String)>,
    /// Absolute.
    pub working_dir: String,
    /// As in [`ImageConfig::user`].
    pub user: String,
    /// What is there only for this step.
    pub mounts: Vec<Mount>,
}

/// A directory that is there for one step and not in the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// Files of the context, a stage or an image. When it may be written, what is written is thrown away.
    Bind {
        /// Where from.
        origin: Origin,
        /// Relative to the root of the origin; empty is the root itself.
        source: String,
        /// Absolute.
        target: String,
        /// Whether the step may write there.
        writable: bool,
    },
    /// A directory that is kept for later builds. Every build has a copy of its own while it runs, whatever
    /// `sharing` says.
    Cache {
        /// Which: caches with the same id are one.
        id: String,
        /// Absolute.
        target: String,
        /// Whether the step may write there.
        writable: bool,
        /// Mode when it is made.
        mode: u32,
        /// Owner when it is made.
        uid: u32,
        /// Group when it is made.
        gid: u32,
    },
    /// An empty directory in memory.
    Tmpfs {
        /// Absolute.
        target: String,
        /// How much it may hold.
        size_bytes: Option<u64>,
    },
}

/// Where files come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The build's context, without what `.dockerignore` leaves out.
    Context,
    /// The outcome of an earlier stage, by number.
    Stage(usize),
    /// An image, by reference.
    Image(String),
}

/// Files that a step reads, which its cache key depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Input<'a> {
    /// Where they are.
    pub origin: &'a Origin,
    /// Paths and patterns as in [`CopyStep::sources`].
    pub paths: Vec<&'a str>,
}

impl Step {
    /// What it reads besides the stage it is in.
    pub fn inputs(&self) -> Vec<Input<'_>> {
        match &self.action {
            Action::Copy(copy) if !copy.sources.is_empty() => {
                vec![Input { origin: &copy.origin, paths: copy.sources.iter().map(String::as_str).collect() }]
            }
            Action::Run(run) => {
                let binds = run.mounts.iter().filter_map(|mount| match mount {
                    Mount::Bind { origin, source, .. } => {
                        Some(Input { origin, paths: vec![source.as_str()] })
                    }
                    _ => None,
                });
                binds.collect()
            }
            _ => Vec::new(),
        }
    }
}
