//! Language servers that may be installed in a guest, and how to start one.

use guest_link::GuestPath;
use guest_link::client::{CallError, Link, Process};
use guest_link::message::{Failure, ProcessFailure, ProcessSpec, Stdin, User};

/// Language servers of one language.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LanguageServer {
    /// The language's name in addresses.
    pub language: &'static str,
    /// Its other names.
    pub aliases: &'static [&'static str],
    /// Commands to try, in this order. Each speaks the protocol on its standard input and output.
    pub commands: &'static [&'static [&'static str]],
    /// What to do when the guest has none of them.
    pub hint: &'static str,
}

const SERVERS: [LanguageServer; 3] = [
    LanguageServer {
        language: "python",
        aliases: &["py", "python3"],
        commands: &[&["pylsp"], &["pyright-langserver", "--stdio"], &["jedi-language-server"]],
        hint: "use the code-interpreter template, or run: pip install python-lsp-server",
    },
    LanguageServer {
        language: "typescript",
        aliases: &["ts"],
        commands: &[&["typescript-language-server", "--stdio"]],
        hint: "run: npm install -g typescript typescript-language-server",
    },
    LanguageServer {
        language: "javascript",
        aliases: &["js", "node", "nodejs"],
        commands: &[&["typescript-language-server", "--stdio"]],
        hint: "run: npm install -g typescript typescript-language-server",
    },
];

/// Why no language server was started.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Nobody knows the language.
    #[error("there are no language servers for `{name}`; known are python, typescript and javascript")]
    UnknownLanguage {
        /// The name, cut.
        name: String,
    },
    /// The guest has none. `hint` says what to do.
    #[error("this sandbox has no language server for {language}")]
    Missing {
        /// The language.
        language: &'static str,
        /// What to do.
        hint: &'static str,
    },
    /// Talking to the guest failed.
    #[error("could not start a language server")]
    Guest(#[source] CallError),
}

/// All languages that may have a server.
#[must_use]
pub const fn language_servers() -> &'static [LanguageServer] {
    &SERVERS
}

impl LanguageServer {
    /// Finds a language's servers by its name or another usual one.
    pub fn find(name: &str) -> Result<LanguageServer, ServerError> {
        let wanted = name.trim().to_ascii_lowercase();
        let found = SERVERS
            .iter()
            .find(|server| server.language == wanted || server.aliases.contains(&wanted.as_str()));
        found.copied().ok_or_else(|| ServerError::UnknownLanguage { name: name.chars().take(64).collect() })
    }
}

/// Starts the first server that the guest has, attached, with its input open.
pub async fn start_server(
    link: &Link,
    server: LanguageServer,
    cwd: Option<GuestPath>,
) -> Result<Process, ServerError> {
    for command in server.commands {
        let mut spec = ProcessSpec::argv(command.iter().copied());
        spec.stdin = Stdin::Pipe;
        spec.cwd.clone_from(&cwd);
        spec.user = Some(User::ROOT);
        spec.tag = Some(format!("lsp-{}", server.language));
        match link.start(spec).await {
            Ok(process) => return Ok(process),
            Err(CallError::Guest(Failure::Process(ProcessFailure::ProgramNotFound))) => {}
            Err(error) => return Err(ServerError::Guest(error)),
        }
    }
    Err(ServerError::Missing { language: server.language, hint: server.hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_to_one_language() {
        assert_eq!(LanguageServer::find("PY").unwrap().language, "python");
        assert_eq!(LanguageServer::find("ts").unwrap().language, "typescript");
        let error = LanguageServer::find("cobol").unwrap_err().to_string();
        assert!(error.contains("cobol"), "{error}");
    }
}
