//! Languages that have contexts, and the names people use for them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A language with a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Language {
    /// Python 3.8 or later.
    Python,
    /// JavaScript, in Node.js 18 or later.
    JavaScript,
    /// TypeScript: JavaScript whose types are removed before it runs.
    TypeScript,
    /// Bash 4 or later.
    Bash,
}

/// A name that is no language's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a language of code contexts; known are python, javascript, typescript and bash")]
pub struct ParseLanguageError {
    /// The name, cut.
    pub name: String,
}

/// All languages that have contexts.
#[must_use]
pub const fn languages() -> [Language; 4] {
    [Language::Python, Language::JavaScript, Language::TypeScript, Language::Bash]
}

impl Language {
    /// Understands a language's name and its usual other names, in any case.
    pub fn parse(name: &str) -> Result<Language, ParseLanguageError> {
        match name.trim().to_ascii_lowercase().as_str() {
            "python" | "python3" | "py" | "ipython" => Ok(Language::Python),
            "javascript" | "js" | "node" | "nodejs" | "mjs" => Ok(Language::JavaScript),
            "typescript" | "ts" => Ok(Language::TypeScript),
            "bash" | "sh" | "shell" => Ok(Language::Bash),
            _ => Err(ParseLanguageError { name: name.chars().take(64).collect() }),
        }
    }

    /// Its one name in answers.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::JavaScript => "javascript",
            Language::TypeScript => "typescript",
            Language::Bash => "bash",
        }
    }

    /// Programs that run its kernel, the preferred one first.
    pub(crate) const fn programs(self) -> &'static [&'static str] {
        match self {
            Language::Python => &["python3", "python"],
            Language::JavaScript | Language::TypeScript => &["node", "nodejs"],
            Language::Bash => &["bash"],
        }
    }
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_names_are_understood_and_others_are_not() {
        for (name, language) in [
            ("py", Language::Python),
            ("Python3", Language::Python),
            ("js", Language::JavaScript),
            ("nodejs", Language::JavaScript),
            ("ts", Language::TypeScript),
            (" sh ", Language::Bash),
        ] {
            assert_eq!(Language::parse(name), Ok(language));
        }
        for language in languages() {
            assert_eq!(Language::parse(language.name()), Ok(language));
        }
        assert!(Language::parse("cobol").is_err());
        assert!(Language::parse("").is_err());
    }
}
