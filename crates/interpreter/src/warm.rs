//! Kernels that a template leaves running, and how the first context of a sandbox takes one over.
//!
//! Every sandbox has its own copy of the process, with everything that was imported before the snapshot already in memory. A
//! file beside the kernel names the process; whoever removes that file has it, so it is taken once, in a fork too. The kernel
//! takes on the context's variables and directory and makes its random numbers its own. What can only be decided when an
//! interpreter starts, such as who runs it, is not for a warm kernel: then one is started afresh.

use std::collections::BTreeMap;
use std::time::Duration;

use guest_link::client::{CallError, Link};
use guest_link::message::{Parents, ProcessId, RemoveScope, WriteMode, WriteSpec};
use serde::Serialize;
use tokio::time::timeout;

use crate::cell::Cell;
use crate::context::{Context, ContextHandle, ContextSpec, kill};
use crate::error::{RunError, StartError};
use crate::kernel::Kernel;
use crate::language::Language;
use crate::limits::{ADOPT_TIMEOUT, PRELOAD_TIMEOUT};
use crate::record::CellError;
use crate::report::RunResult;
use crate::run::Verb;

/// Longest text that names a process.
const NAME_BYTES_MAX: usize = 32;

/// Variables that interpreters and libraries read when they start; the ends of their names are free.
const READ_AT_START: [&str; 13] = [
    "PYTHON",
    "LD_",
    "MPL",
    "LANG",
    "LC_",
    "TZ",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "NUMEXPR_",
    "BLIS_",
    "MALLOC_",
    "GLIBC_",
];

/// Why a kernel could not be left running.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// Kernels of the language cannot be copied while they run.
    #[error("{language} has no kernels that can be left running")]
    Unsupported {
        /// The language.
        language: Language,
    },
    /// It did not start.
    #[error("could not start the kernel")]
    Start(#[source] StartError),
    /// It did not run the code.
    #[error("could not run what the kernel shall bring in")]
    Run(#[source] RunError),
    /// The code failed.
    #[error("what the kernel shall bring in failed: {}", story(.0))]
    Failed(Option<CellError>),
    /// Talking to the guest failed.
    #[error("could not write down which process it is")]
    Guest(#[source] CallError),
}

fn story(error: &Option<CellError>) -> &str {
    error.as_ref().map_or("it did not end in time", |error| error.traceback.as_str())
}

/// Starts a kernel in a guest that is about to become a template and has it bring in what cells are likely to use.
pub async fn leave_warm(link: &Link, language: Language, preload: &str) -> Result<(), WarmError> {
    if !has_warm(language) {
        return Err(WarmError::Unsupported { language });
    }
    let context = Context::start_fresh(link, ContextSpec::new(language)).await.map_err(WarmError::Start)?;
    let result = ask(&context, link, Verb::Preload, preload.to_owned(), PRELOAD_TIMEOUT)
        .await
        .map_err(WarmError::Run)?;
    if result.exit != 0 {
        return Err(WarmError::Failed(result.error));
    }
    let written = async {
        let mut file = link.write_file(WriteSpec {
            path: Kernel::of(language).warm_path(),
            how: WriteMode::Replace,
            mode: Some(0o600),
            owner: None,
            parents: Parents::Create,
        })?;
        file.write(context.handle().process.0.to_string().as_bytes()).await?;
        file.finish().await.map(drop)
    };
    written.await.map_err(WarmError::Guest)
}

/// The kernel that the template left running, as a context; `None` if there is none, it was taken before, or it does not serve.
pub(crate) async fn adopt(link: &Link, spec: &ContextSpec) -> Option<Context> {
    if !can_serve(spec) {
        return None;
    }
    let process = timeout(ADOPT_TIMEOUT, take(link, spec.language)).await.ok()??;
    let handle = ContextHandle { process, language: spec.language, user: spec.user.clone() };
    let context = Context::attach(handle);
    let settings = Settings {
        env: spec.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect(),
        cwd: spec.cwd.as_ref().map(ToString::to_string).unwrap_or_default(),
    };
    let settings = serde_json::to_string(&settings).ok()?;
    let asked = ask(&context, link, Verb::Adopt, settings, ADOPT_TIMEOUT);
    match timeout(ADOPT_TIMEOUT, asked).await {
        Ok(Ok(result)) if result.exit == 0 => Some(context),
        // Whatever it is now, it is nobody's.
        _ => {
            let _ = kill(link, process).await;
            None
        }
    }
}

/// What a kernel is told when it becomes a context's. Its JSON is also a literal of Python.
#[derive(Serialize)]
struct Settings<'a> {
    env: BTreeMap<&'a str, &'a str>,
    cwd: String,
}

const fn has_warm(language: Language) -> bool {
    matches!(language, Language::Python)
}

/// Whether a kernel that runs already can be what is asked for.
fn can_serve(spec: &ContextSpec) -> bool {
    let decided = |name: &str| READ_AT_START.iter().any(|start| name.starts_with(start));
    // A path that is no text cannot be told to it.
    let told = spec.cwd.as_ref().is_none_or(|cwd| !cwd.to_string().contains('\u{fffd}'));
    has_warm(spec.language) && told && spec.user.is_none() && !spec.env.iter().any(|(name, _)| decided(name))
}

/// Takes the process that was left running, from everybody else.
async fn take(link: &Link, language: Language) -> Option<ProcessId> {
    let path = Kernel::of(language).warm_path();
    let reader = link.read_file(path.clone(), 0, None).await.ok()?;
    let name = reader.read_to_end(NAME_BYTES_MAX).await.ok()??;
    let process = ProcessId(std::str::from_utf8(&name).ok()?.trim().parse().ok()?);
    link.remove(path, RemoveScope::Single).await.ok()?;
    Some(process)
}

async fn ask(
    context: &Context,
    link: &Link,
    verb: Verb,
    text: String,
    patience: Duration,
) -> Result<RunResult, RunError> {
    let cell = Cell::new(text).with_timeout(patience);
    let limits = cell.limits;
    context.ask(link, verb, cell).await?.collect(limits).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_running_kernel_can_become_is_asked_of_it() {
        let spec = ContextSpec::new(Language::Python);
        assert!(can_serve(&spec));
        let with = |name: &str| ContextSpec { env: vec![(name.to_owned(), "x".to_owned())], ..spec.clone() };
        assert!(can_serve(&with("API_KEY")));
        for name in ["PYTHONPATH", "TZ", "LD_PRELOAD", "MPLBACKEND", "LC_ALL", "OMP_NUM_THREADS"] {
            assert!(!can_serve(&with(name)), "{name}");
        }
        assert!(!can_serve(&ContextSpec::new(Language::Bash)));
    }

    #[test]
    fn settings_are_a_literal_of_python_too() {
        let env = [("A", "é\"\\\n\u{1}")].into_iter().collect();
        let text = serde_json::to_string(&Settings { env, cwd: String::new() }).unwrap();
        assert_eq!(text, "{\"env\":{\"A\":\"é\\\"\\\\\\n\\u0001\"},\"cwd\":\"\"}");
    }
}
