//! The parts of an instruction: its name, flags (`--name=value`), words, and lists in JSON.

use crate::error::Problem;

/// An instruction taken apart as far as all instructions are alike.
#[derive(Debug)]
pub(crate) struct Parts {
    /// In capitals.
    pub(crate) name: String,
    pub(crate) flags: Flags,
    pub(crate) rest: String,
}

/// Splits an instruction into its name, its flags and the rest.
pub(crate) fn parts(statement: &str, escape: char) -> Parts {
    let statement = statement.trim();
    let (name, rest) = match statement.split_once(char::is_whitespace) {
        Some((name, rest)) => (name, rest),
        None => (statement, ""),
    };
    let mut flags = Vec::new();
    let mut rest = rest.trim_start();
    while rest.starts_with("--") {
        let (flag, after) = flag(rest, escape);
        rest = after.trim_start();
        if flag == "--" {
            break;
        }
        flags.push(flag);
    }
    Parts { name: name.to_ascii_uppercase(), flags: Flags { given: flags }, rest: rest.trim_end().to_owned() }
}

/// The flag at the beginning of `text`, its quotes removed, and what follows.
fn flag(text: &str, escape: char) -> (String, &str) {
    let mut flag = String::new();
    let mut quote = None;
    let mut chars = text.char_indices();
    while let Some((at, ch)) = chars.next() {
        match quote {
            None if ch.is_whitespace() => return (flag, &text[at..]),
            None if ch == '\'' || ch == '"' => quote = Some(ch),
            Some(open) if ch == open => quote = None,
            _ if ch == escape => flag.extend(chars.next().map(|(_, escaped)| escaped)),
            _ => flag.push(ch),
        }
    }
    (flag, "")
}

/// Flags of an instruction. Each is taken by who knows it; what is left over is unknown.
#[derive(Debug)]
pub(crate) struct Flags {
    given: Vec<String>,
}

impl Flags {
    /// All values of `--name=value`, in order.
    pub(crate) fn all(&mut self, name: &str) -> Vec<String> {
        let mut values = Vec::new();
        self.given.retain(|flag| {
            let value = flag[2..].strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
            values.extend(value.map(str::to_owned));
            value.is_none()
        });
        values
    }

    /// The value of `--name=value`, given at most once.
    pub(crate) fn one(&mut self, name: &str) -> Result<Option<String>, Problem> {
        let mut values = self.all(name);
        match values.len() {
            0 | 1 => Ok(values.pop()),
            _ => Err(Problem::new(format!("`--{name}` is given more than once"))),
        }
    }

    /// A flag that is there or not: `--name`, `--name=true`, `--name=false`.
    pub(crate) fn switch(&mut self, name: &str) -> Result<Option<bool>, Problem> {
        let before = self.given.len();
        self.given.retain(|flag| flag[2..] != *name);
        let bare = before > self.given.len();
        match self.one(name)?.map(|value| value.to_ascii_lowercase()).as_deref() {
            None => Ok(bare.then_some(true)),
            Some("true" | "1" | "t") => Ok(Some(true)),
            Some("false" | "0" | "f") => Ok(Some(false)),
            Some(other) => Err(Problem::new(format!("`--{name}={other}` is neither true nor false"))),
        }
    }

    /// Fails when anything is left.
    pub(crate) fn finish(self, instruction: &str) -> Result<(), Problem> {
        match self.given.first() {
            None => Ok(()),
            Some(flag) => {
                let name = flag.split('=').next().unwrap_or(flag);
                Err(Problem::new(format!("{instruction} has no flag `{name}` here"))
                    .hint("remove it; flags are written `--name=value`, before everything else"))
            }
        }
    }
}

/// Words apart by spaces, quotes left where they are.
pub(crate) fn words(text: &str, escape: char) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    let mut chars = text.chars();
    while let Some(ch) = chars.next() {
        match quote {
            None if ch.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
                continue;
            }
            None if ch == '\'' || ch == '"' => quote = Some(ch),
            Some(open) if ch == open => quote = None,
            _ => {}
        }
        if ch == escape && quote != Some('\'') {
            // An escape at the very end escapes nothing.
            if let Some(escaped) = chars.next() {
                word.extend([ch, escaped]);
            }
        } else {
            word.push(ch);
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// A list of strings in JSON. `None` when it is none, and so something for a shell.
pub(crate) fn json_list(text: &str) -> Result<Option<Vec<String>>, Problem> {
    if !text.starts_with('[') {
        return Ok(None);
    }
    let Ok(serde_json::Value::Array(values)) = serde_json::from_str(text) else { return Ok(None) };
    let strings: Option<Vec<String>> =
        values.into_iter().map(|value| value.as_str().map(str::to_owned)).collect();
    match strings {
        Some(strings) => Ok(Some(strings)),
        None => {
            Err(Problem::new("a list in JSON may hold only strings").hint("put each word in double quotes"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_come_first() {
        let mut parts = parts("copy --from=a  --chown='b c' --link -- --x y ", '\\');
        assert_eq!((&*parts.name, &*parts.rest), ("COPY", "--x y"));
        assert_eq!(parts.flags.one("from"), Ok(Some("a".to_owned())));
        assert_eq!(parts.flags.all("chown"), ["b c"]);
        assert!(parts.flags.finish("COPY").unwrap_err().problem.contains("`--link`"));
    }

    #[test]
    fn switches() {
        for (given, expected) in
            [("", Ok(None)), ("--x", Ok(Some(true))), ("--x=false", Ok(Some(false))), ("--x=maybe", Err(()))]
        {
            let mut parts = parts(&format!("RUN {given} a"), '\\');
            assert_eq!(parts.flags.switch("x").map_err(|_| ()), expected, "{given}");
        }
    }

    #[test]
    fn words_keep_their_quotes() {
        assert_eq!(words("a 'b c' d\\ e=\"f g\"", '\\'), ["a", "'b c'", "d\\ e=\"f g\""]);
        assert_eq!(words("a\\", '\\'), ["a"]);
        assert_eq!(words("'a\\' b", '\\'), ["'a\\'", "b"]);
    }

    #[test]
    fn lists() {
        assert_eq!(json_list(r#"["a", "b c"]"#), Ok(Some(vec!["a".to_owned(), "b c".to_owned()])));
        assert_eq!(json_list("[ -f x ] && y"), Ok(None));
        assert_eq!(json_list("['a']"), Ok(None));
        assert!(json_list("[1]").is_err());
    }
}
