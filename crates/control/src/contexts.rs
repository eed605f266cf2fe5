//! Code contexts of sandboxes, code that is run once, language servers.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use contract::error::Partial;
use contract::interpreter::{
    CellAnswer, Context as ContextView, CreateContext, RunCell, RunOnce, RunOnceAnswer,
};
use contract::time::rfc3339;
use domain::SandboxId;
use interpreter::{
    Cell, Context, ContextHandle, ContextSpec, ContextState, Ending, Language, LanguageServer, OnceError,
    OnceLanguage, RunError, RunResult, ServerError, StartError, run_once, start_server,
};
use store::{ReplRow, SandboxRow};

use crate::access::InUse;
use crate::attended::{Attended, Farewell};
use crate::caller::Caller;
use crate::clock::now_ms;
use crate::control::{Control, random};
use crate::error::{ControlError, Kind};
use crate::exec::guest_path;
use crate::partial::partial;

const TIMEOUT_MS_DEFAULT: i64 = 30_000;
const TIMEOUT_MS_MAX: i64 = 24 * 3_600_000;
/// Contexts of one sandbox: each is a process in it.
const CONTEXTS_MAX: usize = 32;

/// Contexts that were used, so that cells of one context wait for each other.
#[derive(Default)]
pub(crate) struct OpenContexts {
    known: Mutex<HashMap<(SandboxId, String), Arc<Context>>>,
}

impl OpenContexts {
    fn find(&self, row: &ReplRow) -> Result<Arc<Context>, ControlError> {
        let handle: ContextHandle = serde_json::from_str(&row.handle).map_err(ControlError::internal)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (row.sandbox.clone(), row.id.clone());
        Ok(Arc::clone(known.entry(key).or_insert_with(|| Arc::new(Context::attach(handle)))))
    }

    fn forget(&self, sandbox: &SandboxId, id: &str) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).remove(&(sandbox.clone(), id.to_owned()));
    }

    pub(crate) fn forget_all(&self, sandbox: &SandboxId) {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).retain(|(of, _), _| of != sandbox);
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

fn language(request: &CreateContext) -> Result<Language, ControlError> {
    let name = request.language.as_deref().filter(|name| !name.is_empty()).unwrap_or("python");
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

fn answer(result: RunResult) -> Result<CellAnswer, ControlError> {
    if let Ending::TimedOut { .. } = result.ending {
        let sentence = result.ending.sentence().unwrap_or_default();
        let truncated = result.stdout_truncated || result.stderr_truncated;
        let results = result.results.into_iter().map(|bundle| bundle.data).collect();
        let written =
            Partial { results: Some(results), ..partial(&result.stdout, &result.stderr, truncated) };
        return Err(timed_out(sentence).partial(written));
    }
    let error = result.error.map(|error| error.traceback).or_else(|| result.ending.sentence());
    let exit = if error.is_some() && result.exit == 0 { 1 } else { result.exit };
    let results: Vec<BTreeMap<String, String>> =
        result.results.into_iter().map(|bundle| bundle.data).collect();
    Ok(CellAnswer {
        stdout: result.stdout,
        stderr: result.stderr,
        exit,
        exit_code: exit,
        error,
        results,
        duration_ms: u64::try_from(result.duration.as_millis()).unwrap_or(u64::MAX),
    })
}

impl Control {
    /// Starts a context.
    pub async fn create_context(
        &self,
        caller: &Caller,
        id: &str,
        request: CreateContext,
    ) -> Result<ContextView, ControlError> {
        let language = language(&request)?;
        let sandbox = self.enter(caller, id).await?;
        if self.store().repls(&sandbox.row.id).await?.len() >= CONTEXTS_MAX {
            let message = format!("a sandbox has at most {CONTEXTS_MAX} contexts; delete one first");
            return Err(ControlError::conflict(message));
        }
        let spec = ContextSpec {
            env: sandbox.row.env.clone().into_iter().collect(),
            cwd: request.cwd.as_deref().filter(|cwd| !cwd.is_empty()).map(guest_path).transpose()?,
            ..ContextSpec::new(language)
        };
        let context = Context::start(&sandbox.link, spec).await?;
        let row = ReplRow {
            id: SandboxId::from_random(random().map_err(ControlError::internal)?).to_string(),
            sandbox: sandbox.row.id.clone(),
            language: language.to_string(),
            handle: serde_json::to_string(context.handle()).map_err(ControlError::internal)?,
            cells: 0,
            created_ms: now_ms(),
        };
        self.store().add_repl(row.clone()).await?;
        Ok(view(&row))
    }

    /// Contexts of a sandbox. Does not wake it.
    pub async fn contexts(&self, caller: &Caller, id: &str) -> Result<Vec<ContextView>, ControlError> {
        let row = self.row(caller, id).await?;
        Ok(self.store().repls(&row.id).await?.iter().map(view).collect())
    }

    async fn context(&self, row: &SandboxRow, id: &str) -> Result<ReplRow, ControlError> {
        self.store().repl(&row.id, id).await?.ok_or_else(|| no_context(id))
    }

    /// Runs a cell. It goes on to its end, or its deadline, even when the caller goes away.
    pub async fn run_cell(
        &self,
        caller: &Caller,
        id: &str,
        context: &str,
        request: RunCell,
    ) -> Result<CellAnswer, ControlError> {
        let timeout = timeout(request.timeout_ms)?;
        let sandbox = self.enter(caller, id).await?;
        let mut row = self.context(&sandbox.row, context).await?;
        let open = self.open_contexts().find(&row)?;
        let control = self.clone();
        self.finish(async move {
            let cell = Cell::new(request.code).with_timeout(timeout);
            let outcome = open.run(&sandbox.link, cell).await;
            let lost = match &outcome {
                Ok(result) => result.ending.context() == ContextState::Lost,
                Err(error) => matches!(error, RunError::Gone { .. }),
            };
            if lost {
                control.open_contexts().forget(&row.sandbox, &row.id);
                control.store().remove_repl(&row.sandbox, &row.id).await?;
            } else {
                row.cells += 1;
                control.store().change_repl(row).await?;
            }
            answer(outcome?)
        })
        .await
    }

    /// Ends a context.
    pub async fn delete_context(&self, caller: &Caller, id: &str, context: &str) -> Result<(), ControlError> {
        let sandbox = self.enter(caller, id).await?;
        let row = self.context(&sandbox.row, context).await?;
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

    /// The language that a context made on request would have.
    pub fn language(&self, request: &CreateContext) -> Result<String, ControlError> {
        Ok(language(request)?.to_string())
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
    ) -> Result<Attended, ControlError> {
        let process = start_server(&sandbox.link, server, None).await?;
        Ok(Attended::new(self, sandbox, process, Farewell::Terminate))
    }
}
