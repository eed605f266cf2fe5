//! `FROM [--platform=…] image [AS name]`.

use crate::error::Problem;
use crate::words::Parts;

/// Where a stage starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct From {
    /// An image, `scratch` or an earlier stage, variables not put in.
    pub(crate) base: String,
    pub(crate) platform: Option<String>,
    /// In small letters: names of stages are compared without regard to case.
    pub(crate) name: Option<String>,
}

impl From {
    pub(crate) fn parse(parts: &mut Parts) -> Result<Self, Problem> {
        let platform = parts.flags.one("platform")?;
        let words: Vec<&str> = parts.rest.split_whitespace().collect();
        let (base, name) = match words[..] {
            [base] => (base, None),
            [base, word, name] if word.eq_ignore_ascii_case("as") => (base, Some(name)),
            _ => {
                let hint = "write `FROM image` or `FROM image AS name`";
                return Err(Problem::new("FROM takes an image and perhaps a name for the stage").hint(hint));
            }
        };
        let name = name.map(str::to_ascii_lowercase);
        if let Some(name) = &name {
            let rest = |ch: char| ch.is_ascii_alphanumeric() || matches!(ch, '-' | '_' | '.');
            if !name.starts_with(|ch: char| ch.is_ascii_alphabetic()) || !name.chars().all(rest) {
                let hint = "begin with a letter; then letters, digits, `-`, `_` and `.`";
                return Err(Problem::new(format!("`{name}` cannot be the name of a stage")).hint(hint));
            }
            if name == "scratch" || name == "context" {
                return Err(Problem::new(format!("a stage may not be called `{name}`")));
            }
        }
        Ok(Self { base: base.to_owned(), platform, name })
    }
}
