//! `COPY` and `ADD`.

use crate::error::{Note, Problem};
use crate::heredoc::{self, Heredoc};
use crate::source::Statement;
use crate::words::{Parts, json_list};

/// What to copy and where to, variables not put in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Copy {
    /// A stage or image; the context when not said.
    pub(crate) from: Option<String>,
    pub(crate) sources: Vec<String>,
    pub(crate) inline: Vec<Heredoc>,
    pub(crate) destination: String,
    pub(crate) owner: Option<String>,
    pub(crate) mode: Option<String>,
    /// Archives are unpacked: `ADD`.
    pub(crate) extracts: bool,
}

impl Copy {
    pub(super) fn parse(
        parts: &mut Parts,
        statement: &Statement,
        notes: &mut Vec<Note>,
    ) -> Result<Self, Problem> {
        let add = parts.name == "ADD";
        for flag in ["parents", "exclude", "keep-git-dir", "checksum"] {
            if parts.flags.switch(flag).ok() != Some(None) || !parts.flags.all(flag).is_empty() {
                let hint = match flag {
                    "parents" => "name the directories in the destination instead",
                    "exclude" => "list what to leave out in .dockerignore",
                    _ => "it is for downloads, which belong in a RUN step",
                };
                return Err(Problem::new(format!("`--{flag}` is not supported")).hint(hint));
            }
        }
        let from = if add { None } else { parts.flags.one("from")? };
        if from.as_ref().is_some_and(|from| from.contains('$')) {
            let hint = "give the image a name with `FROM image AS name` and use that";
            return Err(Problem::new("`--from` takes no variables").hint(hint));
        }
        let owner = parts.flags.one("chown")?;
        let mode = parts.flags.one("chmod")?;
        if parts.flags.switch("link")? == Some(true) {
            notes.push(Note::new(
                statement.line,
                "`--link` is ignored: it would change nothing in the result",
            ));
        }
        let unpack = if add { parts.flags.switch("unpack")? } else { None };
        let mut words = match json_list(&parts.rest)? {
            Some(list) => list,
            None => split(&parts.rest),
        };
        let destination = words.pop().unwrap_or_default();
        if words.is_empty() || destination.is_empty() {
            let hint = format!("write `{} source … destination`", parts.name);
            return Err(Problem::new(format!("{} needs a source and a destination", parts.name)).hint(hint));
        }
        if heredoc::start(&destination).is_some() {
            return Err(Problem::new("an inline file cannot be a destination"));
        }
        let mut inline = Vec::new();
        let mut sources = Vec::new();
        for word in words {
            let started = heredoc::start(&word);
            let found = started
                .and_then(|started| statement.heredocs.iter().find(|heredoc| heredoc.name == started.name));
            match found {
                Some(heredoc) => inline.push(heredoc.clone()),
                None => sources.push(word),
            }
        }
        if inline.iter().any(|heredoc| heredoc.name.contains('/') || [".", ".."].contains(&&*heredoc.name)) {
            return Err(Problem::new("the name of an inline file may hold no `/`"));
        }
        Ok(Self { from, sources, inline, destination, owner, mode, extracts: unpack.unwrap_or(add) })
    }
}

/// Words apart by spaces. Quotes group nothing here, as in other builders; only `<< NAME` stays together.
fn split(rest: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in rest.split_whitespace() {
        match words.last_mut() {
            Some(last) if last == "<<" || last == "<<-" => last.push_str(word),
            _ => words.push(word.to_owned()),
        }
    }
    words
}
