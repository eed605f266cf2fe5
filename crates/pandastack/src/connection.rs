//! Which server is spoken to, and with which key: option, then environment, then context, then default.
//!
//! A context's key goes to that context's server only: whoever names another server also brings the key to it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use clap::Args;
use client::{Api, ApiSettings, ServerAddress};

use crate::context_file::ContextFile;
use crate::waiting::{STUCK_TIMEOUT, Teller};

/// Where the server is.
pub(crate) const API_VARIABLE: &str = "PANDASTACK_API";
/// The same, as one of the published programs calls it.
const API_URL_VARIABLE: &str = "PANDASTACK_API_URL";
/// The key.
pub(crate) const KEY_VARIABLE: &str = "PANDASTACK_API_KEY";
/// The same, as one of the published programs calls it.
const TOKEN_VARIABLE: &str = "PANDASTACK_TOKEN";
/// The context to use instead of the current one.
const CONTEXT_VARIABLE: &str = "PANDASTACK_CONTEXT";
/// Seconds for which a creation that finds no room is asked for again.
const TIMEOUT_VARIABLE: &str = "PANDASTACK_MAX_CREATE_RETRY_SECONDS";
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// The server that all clients speak to unless they are told otherwise.
pub(crate) const API_DEFAULT: &str = "https://api.pandastack.ai";

/// Options of every command that speaks to a server.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The server, such as http://127.0.0.1:8080 [env: PANDASTACK_API].
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) api: Option<String>,
    /// A context made by `pandastack auth login` [env: PANDASTACK_CONTEXT] [default: the current one].
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) context: Option<String>,
}

/// What was decided, and by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) api: String,
    pub(crate) key: Option<String>,
    /// The context in use, if any is.
    pub(crate) context: Option<String>,
    /// Where the key was found.
    pub(crate) key_from: &'static str,
}

/// A variable that is set to something.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.trim().is_empty())
}

impl Connection {
    /// The server and the key to it.
    pub(crate) fn api(&self) -> anyhow::Result<Api> {
        let decided = self.decided()?;
        if decided.key.is_none() {
            return Err(NoKey { server: decided.api }.into());
        }
        api(&decided.api, decided.key)
    }

    /// Whether options, environment or contexts name a server: what is asked for is then its business, not this host's.
    pub(crate) fn names_a_server(&self) -> anyhow::Result<bool> {
        let decided = self.decided()?;
        Ok(decided.api != API_DEFAULT || decided.context.is_some())
    }

    /// What options, environment and contexts say.
    pub(crate) fn decided(&self) -> anyhow::Result<Decided> {
        decide(self, &ContextFile::read()?, &variable)
    }
}

/// There is no key.
#[derive(Debug, thiserror::Error)]
#[error("there is no API key for {server}")]
pub(crate) struct NoKey {
    server: String,
}

/// A client of a server.
pub(crate) fn api(server: &str, key: Option<String>) -> anyhow::Result<Api> {
    let patience = match variable(TIMEOUT_VARIABLE) {
        None => TIMEOUT_DEFAULT,
        Some(text) => {
            let seconds =
                text.trim().parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            seconds.with_context(|| format!("{TIMEOUT_VARIABLE}=`{text}` is not a number of seconds"))?
        }
    };
    let teller = Teller::default();
    Ok(Api::new(ApiSettings {
        server: ServerAddress::parse(server)?,
        key,
        create_patience: patience,
        stuck_timeout: STUCK_TIMEOUT,
        waiting: Arc::new(move |waiting| teller.tell(waiting)),
    })?)
}

fn decide(
    options: &Connection,
    file: &ContextFile,
    variable: &dyn Fn(&str) -> Option<String>,
) -> anyhow::Result<Decided> {
    // A context that is named by hand counts for more than variables that happen to be set.
    let by_hand = options.context.is_some();
    let name =
        options.context.clone().or_else(|| variable(CONTEXT_VARIABLE)).or_else(|| file.current.clone());
    let context = match &name {
        None => None,
        Some(name) => match file.contexts.get(name) {
            Some(context) => Some(context),
            None => bail!("there is no context `{name}`"),
        },
    };
    let from_variable = || variable(API_VARIABLE).or_else(|| variable(API_URL_VARIABLE)).filter(|_| !by_hand);
    let api = options.api.clone().or_else(from_variable);
    let same_server = match (&api, context) {
        (None, _) => true,
        (Some(api), Some(context)) => {
            ServerAddress::parse(api).ok() == ServerAddress::parse(&context.api).ok()
        }
        (Some(_), None) => false,
    };
    let api =
        api.or_else(|| context.map(|context| context.api.clone())).unwrap_or_else(|| API_DEFAULT.to_owned());
    let of_context = context.filter(|_| same_server).and_then(|context| context.api_key.clone());
    let set = variable(KEY_VARIABLE).map(|key| (key, KEY_VARIABLE));
    let set = set.or_else(|| variable(TOKEN_VARIABLE).map(|key| (key, TOKEN_VARIABLE)));
    let set = set.map(|(key, from)| (key.trim().to_owned(), from));
    let of_context = of_context.map(|key| (key, "context"));
    let found = if by_hand { of_context.or(set) } else { set.or(of_context) };
    let (key, key_from) = found.map_or((None, "nowhere"), |(key, from)| (Some(key), from));
    Ok(Decided { api, key, context: name.filter(|_| same_server), key_from })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::context_file::Context;

    fn check(options: (&str, &str), variables: &[(&str, &str)], expected: (&str, Option<&str>)) {
        let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let context = |api: &str, key: &str| Context { api: api.to_owned(), api_key: given(key) };
        let contexts = BTreeMap::from([
            ("home".to_owned(), context("http://home", "home-key")),
            ("work".to_owned(), context("http://work", "work-key")),
        ]);
        let file = ContextFile { current: Some("home".to_owned()), contexts };
        let options = Connection { api: given(options.0), context: given(options.1) };
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let decided = decide(&options, &file, &variable).unwrap();
        assert_eq!((decided.api.as_str(), decided.key.as_deref()), expected, "{options:?} {variables:?}");
    }

    #[test]
    fn options_come_before_variables_and_those_before_contexts() {
        check(("", ""), &[], ("http://home", Some("home-key")));
        check(("", "work"), &[], ("http://work", Some("work-key")));
        check(("", ""), &[("PANDASTACK_CONTEXT", "work")], ("http://work", Some("work-key")));
        check(("", ""), &[("PANDASTACK_API_KEY", "mine")], ("http://home", Some("mine")));
        check(("", ""), &[("PANDASTACK_TOKEN", "mine")], ("http://home", Some("mine")));
        let both = [("PANDASTACK_API", "http://other"), ("PANDASTACK_API_KEY", "mine")];
        check(("", ""), &both, ("http://other", Some("mine")));
        check(("", "work"), &both, ("http://work", Some("work-key")));
        check(("http://third", ""), &both, ("http://third", Some("mine")));
    }

    #[test]
    fn the_key_of_a_context_goes_to_its_server_only() {
        check(("http://evil", ""), &[], ("http://evil", None));
        check(("", ""), &[("PANDASTACK_API", "http://evil")], ("http://evil", None));
        check(("http://home/v1/", ""), &[], ("http://home/v1/", Some("home-key")));
    }

    #[test]
    fn an_unknown_context_is_named() {
        let options = Connection { api: None, context: Some("nope".to_owned()) };
        let error = decide(&options, &ContextFile::default(), &|_| None).unwrap_err();
        assert!(error.to_string().contains("`nope`"));
    }
}
