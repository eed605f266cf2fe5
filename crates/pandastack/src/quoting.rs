//! Words on a command line: lines for a shell, `NAME=VALUE`.

use std::collections::BTreeMap;

use anyhow::Context;

/// A command as a line for the shell. A single word is such a line already; several are a program and its arguments, which take the
/// shell's place, so that signals reach them and not it.
pub(crate) fn line(words: &[String]) -> String {
    match words {
        [line] => line.clone(),
        words => {
            let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
            format!("exec {}", quoted.join(" "))
        }
    }
}

/// A word that a shell leaves as it is.
pub(crate) fn quoted(word: &str) -> String {
    let safe = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./,:@%+".contains(&byte);
    if !word.is_empty() && word.bytes().all(safe) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A pair on the command line.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("expected NAME=VALUE".to_owned()),
    }
}

/// A variable: `NAME=VALUE`, or `NAME` for the one that is set here.
pub(crate) fn variables(given: &[String]) -> anyhow::Result<BTreeMap<String, String>> {
    let one = |text: &String| match text.split_once('=') {
        Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
        None => {
            let value =
                std::env::var(text).with_context(|| format!("find the variable {text} to pass on"))?;
            Ok((text.clone(), value))
        }
    };
    given.iter().map(one).collect()
}

/// Pairs as a map.
pub(crate) fn map(pairs: Vec<(String, String)>) -> Option<BTreeMap<String, String>> {
    Some(pairs.into_iter().collect::<BTreeMap<_, _>>()).filter(|map| !map.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_reach_programs_as_they_are() {
        let words = |words: &[&str]| line(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(words(&["echo $HOME | cat"]), "echo $HOME | cat");
        assert_eq!(words(&["echo", "a b", "$HOME", "it's", ""]), r"exec echo 'a b' '$HOME' 'it'\''s' ''");
        assert_eq!(words(&["python3", "dir/file.py", "--x=1"]), "exec python3 dir/file.py '--x=1'");
        assert!(pair("=x").is_err() && pair("x").is_err());
        assert_eq!(pair("a=b=c").unwrap(), ("a".to_owned(), "b=c".to_owned()));
    }
}
