//! `name=value …` of `ENV`, `LABEL` and `ARG`, and the old form `ENV name value`.

use crate::error::Problem;
use crate::words::words;

/// A name and a value, quotes and variables as written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) name: String,
    pub(crate) value: String,
}

/// The pairs of an `ENV` or `LABEL`.
pub(super) fn pairs(instruction: &str, rest: &str, escape: char) -> Result<Vec<Pair>, Problem> {
    let all = words(rest, escape);
    let first = all.first().map(String::as_str).unwrap_or_default();
    if !first.contains('=') {
        // The old form: everything behind the name is the value.
        let Some((name, value)) = rest.split_once(char::is_whitespace) else {
            let hint = format!("write `{instruction} {first}=value`");
            return Err(Problem::new(format!("{instruction} `{first}` has no value")).hint(hint));
        };
        return Ok(vec![Pair { name: name.to_owned(), value: value.trim_start().to_owned() }]);
    }
    all.into_iter()
        .map(|word| match word.split_once('=') {
            Some(("", _)) => Err(Problem::new(format!("{instruction} `{word}` has no name before `=`"))),
            Some((name, value)) => Ok(Pair { name: name.to_owned(), value: value.to_owned() }),
            None => Err(Problem::new(format!("{instruction} `{word}` has no `=`"))
                .hint("write each pair as `name=value`; quote values that have spaces")),
        })
        .collect()
}

/// The names of an `ARG`, with defaults.
pub(super) fn arguments(rest: &str, escape: char) -> Result<Vec<(String, Option<String>)>, Problem> {
    words(rest, escape)
        .into_iter()
        .map(|word| {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (word.as_str(), None),
            };
            let good = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '_' | '-' | '.' | ':');
            if name.is_empty() || !name.chars().all(good) {
                return Err(Problem::new(format!("ARG `{word}` does not begin with a name")));
            }
            Ok((name.to_owned(), value))
        })
        .collect()
}
