//! Keys under which the outcome of steps is kept.
//!
//! A key stands for the file system after a step: it is a digest of the key before it, of what the step does with everything resolved,
//! and of the files it reads. Instructions that change no file (`ENV`, `LABEL`, `USER` …) leave the key as it is; what they changed is
//! part of the steps that are affected by it.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::plan::{Action, CopyStep, Input, Mount, Origin, RunStep, StagePlan, Step};

/// Raised when what a step does changes without its text changing.
const VERSION: &str = "dockerfile step 1";

/// Stands for the contents of a file system after a step. Shown as 64 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey([u8; 32]);

impl CacheKey {
    /// The key of what a stage starts from: the digest of an image, or any text that stands for it alone.
    pub fn of_base(text: &str) -> Self {
        let mut hash = Sha256::new();
        hash.text("base");
        hash.text(text);
        Self(hash.finalize().into())
    }

    /// The key after `step`, when `digests` are those of its [`Step::inputs`], in order.
    pub fn after(self, step: &Step, digests: &[String]) -> Self {
        if step.action == Action::Configure {
            return self;
        }
        let mut hash = Sha256::new();
        hash.text(VERSION);
        hash.bytes(&self.0);
        match &step.action {
            Action::Configure => {}
            Action::MakeDirectory { path, user } => {
                hash.text("directory");
                hash.text(path);
                hash.text(user);
            }
            Action::Copy(copy) => hash.copy(copy),
            Action::Run(run) => hash.run(run),
        }
        hash.texts(digests);
        Self(hash.finalize().into())
    }
}

impl fmt::Display for CacheKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&hex(&self.0))
    }
}

impl StagePlan {
    /// The key after each step, from that of what the stage starts from. `digest_of` gives a digest of the files of an input: for the
    /// context that of [`crate::Selection::digest`], for a stage or an image its own key or digest.
    pub fn keys<E>(
        &self,
        base: CacheKey,
        mut digest_of: impl FnMut(&Step, &Input<'_>) -> Result<String, E>,
    ) -> Result<Vec<CacheKey>, E> {
        let mut key = base;
        let mut keys = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let digests: Result<Vec<String>, E> =
                step.inputs().iter().map(|input| digest_of(step, input)).collect();
            key = key.after(step, &digests?);
            keys.push(key);
        }
        Ok(keys)
    }
}

/// Feeding values into a digest so that no two lists of them look alike: each with its length before it.
pub(crate) trait Hashing {
    fn bytes(&mut self, bytes: &[u8]);

    fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    fn texts<T: AsRef<str>>(&mut self, texts: &[T]) {
        self.bytes(&(texts.len() as u64).to_le_bytes());
        texts.iter().for_each(|text| self.text(text.as_ref()));
    }
}

impl Hashing for Sha256 {
    fn bytes(&mut self, bytes: &[u8]) {
        self.update((bytes.len() as u64).to_le_bytes());
        self.update(bytes);
    }
}

trait HashingSteps: Hashing {
    fn origin(&mut self, origin: &Origin) {
        // Which stage or image it is shows in the digest of what is read.
        self.text(match origin {
            Origin::Context => "context",
            Origin::Stage(_) => "stage",
            Origin::Image(_) => "image",
        });
    }

    fn copy(&mut self, copy: &CopyStep) {
        let CopyStep { origin, sources, inline, destination, owner, mode, extracts } = copy;
        self.text("copy");
        self.origin(origin);
        self.texts(sources);
        for file in inline {
            self.texts(&[&file.name, &file.content]);
        }
        self.text(destination);
        self.text(owner.as_deref().unwrap_or_default());
        self.text(&mode.map(|mode| mode.to_string()).unwrap_or_default());
        self.text(if *extracts { "extracts" } else { "" });
    }

    fn run(&mut self, run: &RunStep) {
        let RunStep { argv, script, env, proxy: _, working_dir, user, mounts } = run;
        self.text("run");
        self.texts(argv);
        if let Some(script) = script {
            self.texts(&[&script.name, &script.content]);
        }
        for (name, value) in env {
            self.texts(&[name, value]);
        }
        self.text(working_dir);
        self.text(user);
        mounts.iter().for_each(|mount| self.mount(mount));
    }

    fn mount(&mut self, mount: &Mount) {
        match mount {
            Mount::Bind { origin, source, target, writable } => {
                self.origin(origin);
                self.texts(&["bind", source, target, if *writable { "rw" } else { "ro" }]);
            }
            // What is in a cache is of no account, or it would not be one.
            Mount::Cache { id, target, writable, mode, uid, gid } => {
                let numbers = format!("{mode} {uid} {gid}");
                self.texts(&["cache", id, target, &numbers, if *writable { "rw" } else { "ro" }]);
            }
            Mount::Tmpfs { target, size_bytes } => {
                self.texts(&["tmpfs", target, &format!("{size_bytes:?}")]);
            }
        }
    }
}

impl<T: Hashing> HashingSteps for T {}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
