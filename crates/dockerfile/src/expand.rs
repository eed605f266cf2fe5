//! Quotes, escapes and variables in the words of an instruction, as a shell would read them: `$x`, `${x}`, `${x:-d}`, `${x:+d}`,
//! `${x:?e}` and the same without the colon. Nothing here runs anything, and `RUN` is left to the shell in the guest.

use crate::error::Problem;
use crate::limits::NESTING_MAX;

/// Finds the value of a variable; `None` when it is not set.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// How to read a word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reading {
    pub(crate) escape: char,
    /// Keep quotes that mean something in the result.
    pub(crate) quotes_kept: bool,
    /// Keep escapes in the result.
    pub(crate) escapes_kept: bool,
    /// Quotes mean nothing: the text of an inline file.
    pub(crate) quotes_plain: bool,
    /// Leave variables that are not set as they are written.
    pub(crate) unset_kept: bool,
    /// Bytes of the result.
    pub(crate) bytes_max: usize,
}

impl Reading {
    /// As the words of an instruction are read.
    pub(crate) fn words(escape: char) -> Self {
        let bytes_max = crate::limits::VALUE_BYTES_MAX;
        Self {
            escape,
            quotes_kept: false,
            escapes_kept: false,
            quotes_plain: false,
            unset_kept: false,
            bytes_max,
        }
    }

    /// `text` as one word, spaces included.
    pub(crate) fn expand(self, text: &str, lookup: Lookup<'_>) -> Result<String, Problem> {
        self.read(text, lookup).map(|read| read.whole)
    }

    /// `text` as words: split at spaces that are not quoted, those that come from variables included.
    pub(crate) fn split(self, text: &str, lookup: Lookup<'_>) -> Result<Vec<String>, Problem> {
        self.read(text, lookup).map(|read| read.words)
    }

    fn read(self, text: &str, lookup: Lookup<'_>) -> Result<Read, Problem> {
        let chars: Vec<char> = text.chars().collect();
        let mut reader = Reader { reading: self, lookup, chars: &chars, at: 0, depth: 0 };
        reader.until(None)
    }
}

/// What was read: the text as a whole, and the words it falls into.
#[derive(Debug, Default)]
struct Read {
    whole: String,
    words: Vec<String>,
    word: String,
}

impl Read {
    /// Adds a character that ends a word when it is a space.
    fn plain(&mut self, ch: char) {
        self.whole.push(ch);
        self.split(ch);
    }

    fn split(&mut self, ch: char) {
        if !ch.is_whitespace() {
            self.word.push(ch);
        } else if !self.word.is_empty() {
            self.words.push(std::mem::take(&mut self.word));
        }
    }

    /// Adds text that ends no word.
    fn quoted(&mut self, text: &str) {
        self.whole.push_str(text);
        self.word.push_str(text);
    }

    fn finished(mut self) -> Self {
        if !self.word.is_empty() {
            self.words.push(std::mem::take(&mut self.word));
        }
        self
    }
}

struct Reader<'a> {
    reading: Reading,
    lookup: Lookup<'a>,
    chars: &'a [char],
    at: usize,
    depth: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let ch = self.peek()?;
        self.at += 1;
        Some(ch)
    }

    fn until(&mut self, stop: Option<char>) -> Result<Read, Problem> {
        let mut read = Read::default();
        while let Some(ch) = self.peek() {
            self.check_length(&read.whole)?;
            match ch {
                _ if Some(ch) == stop => {
                    self.at += 1;
                    return Ok(read.finished());
                }
                '$' => {
                    let value = self.dollar()?;
                    read.whole.push_str(&value);
                    value.chars().for_each(|ch| read.split(ch));
                }
                '<' => {
                    let text = self.less_than();
                    read.quoted(&text);
                }
                '\'' if !self.reading.quotes_plain => {
                    let text = self.single_quoted()?;
                    read.quoted(&text);
                }
                '"' if !self.reading.quotes_plain => {
                    let text = self.double_quoted()?;
                    read.quoted(&text);
                }
                _ if ch == self.reading.escape => {
                    self.at += 1;
                    if self.reading.escapes_kept {
                        read.quoted(&ch.to_string());
                    }
                    if let Some(escaped) = self.next() {
                        read.quoted(&escaped.to_string());
                    }
                }
                _ => {
                    self.at += 1;
                    read.plain(ch);
                }
            }
        }
        self.check_length(&read.whole)?;
        match stop {
            None => Ok(read.finished()),
            Some(stop) => Err(Problem::new(format!("`{stop}` is missing after `${{`"))),
        }
    }

    /// Checked before each piece is added, so that what is held is at most a piece more than allowed.
    fn check_length(&self, text: &str) -> Result<(), Problem> {
        let bytes_max = self.reading.bytes_max;
        match text.len() {
            length if length <= bytes_max => Ok(()),
            _ => Err(Problem::new(format!(
                "the value is longer than {bytes_max} bytes with its variables put in"
            ))),
        }
    }

    /// `<<` keeps the spaces behind it in one word with what follows: the start of an inline file.
    fn less_than(&mut self) -> String {
        self.at += 1;
        if self.peek() != Some('<') {
            return "<".to_owned();
        }
        self.at += 1;
        let mut text = "<<".to_owned();
        while let Some(ch @ (' ' | '\t')) = self.peek() {
            text.push(ch);
            self.at += 1;
        }
        text
    }

    fn single_quoted(&mut self) -> Result<String, Problem> {
        self.at += 1;
        let mut text = String::new();
        while let Some(ch) = self.next() {
            if ch == '\'' {
                return Ok(if self.reading.quotes_kept { format!("'{text}'") } else { text });
            }
            text.push(ch);
        }
        Err(Problem::new("a single quote is not closed"))
    }

    fn double_quoted(&mut self) -> Result<String, Problem> {
        self.at += 1;
        let mut text = String::new();
        while let Some(ch) = self.peek() {
            self.check_length(&text)?;
            match ch {
                '"' => {
                    self.at += 1;
                    return Ok(if self.reading.quotes_kept { format!("\"{text}\"") } else { text });
                }
                '$' => text.push_str(&self.dollar()?),
                _ => {
                    self.at += 1;
                    let escapable = [Some('"'), Some('$'), Some(self.reading.escape)].contains(&self.peek());
                    if ch == self.reading.escape && escapable {
                        if self.reading.escapes_kept {
                            text.push(ch);
                        }
                        text.extend(self.next());
                    } else {
                        text.push(ch);
                    }
                }
            }
        }
        Err(Problem::new("a double quote is not closed"))
    }

    fn dollar(&mut self) -> Result<String, Problem> {
        self.at += 1;
        if self.peek() != Some('{') {
            let name = self.name();
            if name.is_empty() {
                return Ok("$".to_owned());
            }
            return Ok(match (self.lookup)(&name) {
                None if self.reading.unset_kept => format!("${name}"),
                value => value.unwrap_or_default(),
            });
        }
        self.at += 1;
        let name = self.name();
        if name.is_empty() {
            return Err(Problem::new("`${` is not followed by the name of a variable"));
        }
        let value = (self.lookup)(&name);
        let Some(first) = self.next() else { return Err(Problem::new("`}` is missing after `${`")) };
        if first == '}' {
            return Ok(match value {
                None if self.reading.unset_kept => format!("${{{name}}}"),
                value => value.unwrap_or_default(),
            });
        }
        let (colon, modifier) = match first {
            ':' => (":", self.next().unwrap_or('}')),
            _ => ("", first),
        };
        if !matches!(modifier, '-' | '+' | '?') {
            let hint = "`-`, `+` and `?` are supported, with or without `:` before them; \
                        for anything else compute the value in a RUN step or pass it as an argument";
            return Err(Problem::new(format!("`${{{name}{colon}{modifier}…}}` is not supported")).hint(hint));
        }
        let word = self.nested()?;
        if value.is_none() && self.reading.unset_kept {
            return Ok(format!("${{{name}{colon}{modifier}{word}}}"));
        }
        let present = value.filter(|value| colon.is_empty() || !value.is_empty());
        match (modifier, present) {
            ('-', present) => Ok(present.unwrap_or(word)),
            ('+', present) => Ok(present.map(|_| word).unwrap_or_default()),
            (_, Some(present)) => Ok(present),
            (_, None) if word.is_empty() => {
                Err(Problem::new(format!("`{name}` must be set")).hint("pass it as a build argument"))
            }
            (_, None) => Err(Problem::new(format!("{name}: {word}"))),
        }
    }

    fn nested(&mut self) -> Result<String, Problem> {
        if self.depth == NESTING_MAX {
            return Err(Problem::new(format!("`${{…}}` is nested more than {NESTING_MAX} deep")));
        }
        self.depth += 1;
        let word = self.until(Some('}'));
        self.depth -= 1;
        word.map(|read| read.whole)
    }

    /// A name, a number or one of the shell's special characters.
    fn name(&mut self) -> String {
        let Some(first) = self.peek() else { return String::new() };
        if matches!(first, '@' | '*' | '#' | '?' | '-' | '$' | '!') {
            self.at += 1;
            return first.to_string();
        }
        let digits = first.is_ascii_digit();
        let belongs = |ch: char| if digits { ch.is_ascii_digit() } else { ch.is_alphanumeric() || ch == '_' };
        let start = self.at;
        while self.peek().is_some_and(belongs) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }
}

#[cfg(test)]
mod tests;
