//! Code contexts of sandboxes, code that is run once, language servers. Cells are in [`cells`].
//!
//! A sandbox has a *default* context of each language, made when it is first used. Its id says so, so that it is found again after
//! a restart of the server and in forks, which get their parent's contexts with the ids they have.

mod cells;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub use cells::{CellEvent, CellStream};
use contract::interpreter::{Context as ContextView, CreateContext, RunOnce, RunOnceAnswer};
use contract::time::rfc3339;
use domain::SandboxId;
use interpreter::{
    Context, ContextHandle, ContextSpec, Language, LanguageServer, OnceError, OnceLanguage, RunError,
    ServerError, StartError, run_once, start_server,
};
use store::{ReplRow, SandboxRow};

use crate::access::InUse;
use crate::caller::Caller;
use crate::clock::now_ms;
use crate::connection_process::{ConnectionProcess, OnDisconnect};
use crate::control::{Control, random};
use crate::error::{ControlError, Kind};
use crate::exec::guest_path;
use crate::partial::partial;

const TIMEOUT_MS_DEFAULT: i64 = 30_000;
const TIMEOUT_MS_MAX: i64 = 24 * 3_600_000;
/// Contexts of one sandbox: each is a process in it.
const CONTEXTS_MAX: usize = 32;
/// The default context in addresses.
const DEFAULT: &str = "default";

/// Contexts that were used, so that cells of one context wait for each other.
#[derive(Default)]
pub(crate) struct OpenContexts {
    known: Mutex<HashMap<(SandboxId, String), Arc<Context>>>,
    /// Held while rows of a sandbox's contexts are looked at and changed.
    changing: Mutex<HashMap<SandboxId, Arc<tokio::sync::Mutex<()>>>>,
}

impl OpenContexts {
    fn find(&self, row: &ReplRow) -> Result<Arc<Context>, ControlError> {
        let handle: ContextHandle = serde_json::from_str(&row.handle).map_err(ControlError::internal)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (row.sandbox.clone(), row.id.clone());
        match known.get(&key) {
            Some(open) if *open.handle() == handle => Ok(Arc::clone(open)),
            // A default context that was lost and made anew has the same id.
            _ => {
                let open = Arc::new(Context::attach(handle));
                known.insert(key, Arc::clone(&open));
                Ok(open)
            }
        }
    }

    fn forget(&self, sandbox: &SandboxId, id: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&(sandbox.clone(), id.to_owned()));
    }

    pub(crate) fn forget_all(&self, sandbox: &SandboxId) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| of != sandbox);
        self.changing.lock().unwrap_or_else(PoisonError::into_inner).remove(sandbox);
    }

    fn changing(&self, sandbox: &SandboxId) -> Arc<tokio::sync::Mutex<()>> {
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(changing.entry(sandbox.clone()).or_default())
    }
}

/// The id of a sandbox's default context of a language. No other context has one like it: theirs are random.
fn default_id(language: Language) -> String {
    format!("{DEFAULT}-{language}")
}

/// The id of a context that an address names.
fn named(context: &str) -> String {
    match context {
        DEFAULT => default_id(Language::Python),
        id => id.to_owned(),
    }
}

fn view(row: &ReplRow) -> ContextView {
    ContextView {
        id: row.id.clone(),
        sandbox_id: row.sandbox.to_string(),
        language: row.language.clone(),
        created_at: rfc3339(row.created_ms),
        cells: row.cells,
    }
}

fn timeout(ms: Option<i64>) -> Result<Duration, ControlError> {
    match ms {
        None | Some(0) => Ok(Duration::from_millis(TIMEOUT_MS_DEFAULT as u64)),
        Some(ms) if (1..=TIMEOUT_MS_MAX).contains(&ms) => Ok(Duration::from_millis(ms as u64)),
        Some(_) => Err(ControlError::invalid(format!("timeout_ms must be between 1 and {TIMEOUT_MS_MAX}"))),
    }
}

fn language(name: Option<&str>) -> Result<Language, ControlError> {
    let name = name.filter(|name| !name.is_empty()).unwrap_or("python");
    Language::parse(name).map_err(|error| ControlError::invalid(error.to_string()))
}

fn no_context(id: &str) -> ControlError {
    ControlError::not_found(format!("there is no context {} in this sandbox", crate::names::shown(id)))
}

impl From<StartError> for ControlError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::LanguageMissing { .. } => ControlError::invalid(error.to_string()),
            StartError::Install { source, .. } | StartError::Spawn { source, .. } => source.into(),
            StartError::Silent => ControlError::new(Kind::Unavailable, "the sandbox did not answer in time"),
        }
    }
}

impl From<RunError> for ControlError {
    fn from(error: RunError) -> Self {
        match error {
            RunError::CodeTooLong { .. } => ControlError::new(Kind::TooLarge, error.to_string()),
            RunError::QueueFull | RunError::Busy => ControlError::conflict(error.to_string()),
            RunError::Guest(source) => source.into(),
            RunError::Random(source) => ControlError::internal(source),
            _ => ControlError::new(Kind::Upstream, error.to_string()),
        }
    }
}

impl From<OnceError> for ControlError {
    fn from(error: OnceError) -> Self {
        match error {
            OnceError::Start(source) => source.into(),
            OnceError::Run(source) => source.into(),
            OnceError::Guest(source) => source.into(),
            OnceError::Silent => ControlError::new(Kind::Unavailable, "the sandbox did not answer in time"),
            OnceError::CodeTooLong { .. } => ControlError::new(Kind::TooLarge, error.to_string()),
            _ => ControlError::invalid(error.to_string()),
        }
    }
}

impl From<ServerError> for ControlError {
    fn from(error: ServerError) -> Self {
        match error {
            ServerError::Missing { hint, .. } => ControlError::invalid(error.to_string()).hint(hint),
            ServerError::Guest(source) => source.into(),
            ServerError::UnknownLanguage { .. } => ControlError::invalid(error.to_string()),
        }
    }
}

fn timed_out(message: String) -> ControlError {
    ControlError::new(Kind::Timeout, message)
        .hint("raise the timeout, or run it as a process in the background")
}

impl Control {
    /// Starts a context.
    pub async fn create_context(
        &self,
        caller: &Caller,
        id: &str,
        request: CreateContext,
    ) -> Result<ContextView, ControlError> {
        let language = language(request.language.as_deref())?;
        let sandbox = self.enter(caller, id).await?;
        let spec = ContextSpec {
            cwd: request.cwd.as_deref().filter(|cwd| !cwd.is_empty()).map(guest_path).transpose()?,
            ..ContextSpec::new(language)
        };
        let id = SandboxId::from_random(random().map_err(ControlError::internal)?).to_string();
        Ok(view(&self.start_context(&sandbox, spec, id).await?))
    }

    async fn start_context(
        &self,
        sandbox: &InUse,
        mut spec: ContextSpec,
        id: String,
    ) -> Result<ReplRow, ControlError> {
        if self.store().repls(&sandbox.row.id).await?.len() >= CONTEXTS_MAX {
            let message = format!("a sandbox has at most {CONTEXTS_MAX} contexts; delete one first");
            return Err(ControlError::conflict(message));
        }
        let language = spec.language;
        spec.env = sandbox.row.env.clone().into_iter().collect();
        let context = Context::start(&sandbox.link, spec).await?;
        let row = ReplRow {
            id,
            sandbox: sandbox.row.id.clone(),
            language: language.to_string(),
            handle: serde_json::to_string(context.handle()).map_err(ControlError::internal)?,
            cells: 0,
            created_ms: now_ms(),
        };
        self.store().add_repl(row.clone()).await?;
        Ok(row)
    }

    /// The sandbox's default context of a language, made if there is none. To be called where the caller cannot go away, since a
    /// kernel that is started must be written down.
    async fn default_context(&self, sandbox: &InUse, language: Language) -> Result<ReplRow, ControlError> {
        let id = default_id(language);
        let changing = self.open_contexts().changing(&sandbox.row.id);
        let _changing = changing.lock().await;
        match self.store().repl(&sandbox.row.id, &id).await? {
            Some(row) => Ok(row),
            None => self.start_context(sandbox, ContextSpec::new(language), id).await,
        }
    }

    /// Contexts of a sandbox. Does not wake it.
    pub async fn contexts(&self, caller: &Caller, id: &str) -> Result<Vec<ContextView>, ControlError> {
        let row = self.row(caller, id).await?;
        Ok(self.store().repls(&row.id).await?.iter().map(view).collect())
    }

    async fn context(&self, row: &SandboxRow, id: &str) -> Result<ReplRow, ControlError> {
        self.store().repl(&row.id, id).await?.ok_or_else(|| no_context(id))
    }

    /// Ends a context; `default` is the default one of Python.
    pub async fn delete_context(&self, caller: &Caller, id: &str, context: &str) -> Result<(), ControlError> {
        let sandbox = self.enter(caller, id).await?;
        let row = self.context(&sandbox.row, &named(context)).await?;
        self.open_contexts().find(&row)?.close(&sandbox.link).await?;
        self.open_contexts().forget(&row.sandbox, &row.id);
        self.store().remove_repl(&row.sandbox, &row.id).await?;
        Ok(())
    }

    /// Runs code in an interpreter of its own.
    pub async fn run_once(
        &self,
        caller: &Caller,
        id: &str,
        request: RunOnce,
    ) -> Result<RunOnceAnswer, ControlError> {
        let language = OnceLanguage::parse(&request.language)?;
        let timeout = timeout(request.timeout_ms)?;
        let sandbox = self.enter(caller, id).await?;
        let result = run_once(&sandbox.link, language, &request.code, timeout).await?;
        if result.timed_out {
            let message = format!("timeout: the code ran longer than {} ms", timeout.as_millis());
            let written = partial(&result.stdout, &result.stderr, result.truncated);
            return Err(timed_out(message).partial(written));
        }
        Ok(RunOnceAnswer {
            language: request.language,
            stdout: result.stdout,
            stderr: result.stderr,
            exit_code: result.exit_code,
        })
    }

    /// Languages of contexts.
    pub fn languages(&self) -> Vec<String> {
        interpreter::languages().iter().map(ToString::to_string).collect()
    }

    /// Languages that have a language server.
    pub fn server_languages(&self) -> Vec<String> {
        interpreter::language_servers().iter().map(|server| server.language.to_owned()).collect()
    }

    /// The language servers of a language, wherever they may be installed.
    pub fn find_language_server(&self, language: &str) -> Result<LanguageServer, ControlError> {
        Ok(LanguageServer::find(language)?)
    }

    /// Starts a language server in a sandbox. It ends when it is no longer attended to.
    pub async fn start_language_server(
        &self,
        sandbox: InUse,
        server: LanguageServer,
    ) -> Result<ConnectionProcess, ControlError> {
        let process = start_server(&sandbox.link, server, None).await?;
        Ok(ConnectionProcess::new(self, sandbox, process, OnDisconnect::Terminate))
    }
}
