//! Patterns for names of files, as Go's `filepath.Match` has them: `*`, `?`, `[a-z]`, `[^a]`, `\x`. Those of `.dockerignore` also have
//! `**`. Matching takes time in proportion to the length of the pattern times that of the path, whatever they are.

/// The pattern is malformed: a class that is not closed or an escape at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadGlob;

/// A pattern.
#[derive(Debug, Clone)]
pub(crate) struct Glob {
    tokens: Vec<Token>,
}

#[derive(Debug, Clone)]
enum Token {
    Char(char),
    /// `?`: one character that is no slash.
    Any,
    /// `*`: any number of them.
    Star,
    /// `**/`: any number of directories, also none.
    Directories,
    /// `**` at the end: anything.
    Rest,
    Class {
        negated: bool,
        ranges: Vec<(char, char)>,
    },
}

/// What `**` means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DoubleStar {
    TwoStars,
    Directories,
}

/// Whether `text` is a pattern rather than a name.
pub(crate) fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

impl Glob {
    /// A pattern as in `COPY`.
    pub(crate) fn parse(text: &str) -> Result<Self, BadGlob> {
        Ok(Self { tokens: tokens(text, DoubleStar::TwoStars)? })
    }

    /// A pattern as in `.dockerignore`.
    pub(crate) fn parse_ignore(text: &str) -> Result<Self, BadGlob> {
        let mut tokens = tokens(text, DoubleStar::Directories)?;
        // `**name` is any path that ends so, not only whole names, as long as nothing else in it is special.
        let suffix = text.strip_prefix("**").filter(|rest| !rest.starts_with('/') && !is_pattern(rest));
        if suffix.is_some_and(|rest| !rest.contains(']'))
            && let Some(first) = tokens.first_mut()
        {
            *first = Token::Rest;
        }
        Ok(Self { tokens })
    }

    /// Whether all of `text` matches.
    pub(crate) fn matches(&self, text: &str) -> bool {
        let mut now = Positions::new(self.tokens.len());
        now.at[0] = true;
        now.skip(&self.tokens);
        for ch in text.chars() {
            let mut next = Positions::new(self.tokens.len());
            for (index, token) in self.tokens.iter().enumerate() {
                if now.within[index] {
                    next.within[index] = true;
                    next.at[index + 1] |= ch == '/';
                }
                if !now.at[index] {
                    continue;
                }
                match token {
                    Token::Char(wanted) => next.at[index + 1] |= *wanted == ch,
                    Token::Any => next.at[index + 1] |= ch != '/',
                    Token::Star => next.at[index] |= ch != '/',
                    Token::Rest => next.at[index] = true,
                    Token::Directories => {}
                    Token::Class { negated, ranges } => {
                        let inside = ranges.iter().any(|(low, high)| (*low..=*high).contains(&ch));
                        next.at[index + 1] |= inside != *negated;
                    }
                }
            }
            next.skip(&self.tokens);
            now = next;
        }
        now.at[self.tokens.len()]
    }
}

/// Where in a pattern one may be after reading some of a text.
struct Positions {
    /// Before the token.
    at: Vec<bool>,
    /// In the middle of `**/`.
    within: Vec<bool>,
}

impl Positions {
    fn new(tokens: usize) -> Self {
        Self { at: vec![false; tokens + 1], within: vec![false; tokens] }
    }

    /// Passes over tokens that match nothing.
    fn skip(&mut self, tokens: &[Token]) {
        for (index, token) in tokens.iter().enumerate() {
            if self.at[index] && matches!(token, Token::Star | Token::Rest | Token::Directories) {
                self.at[index + 1] = true;
                self.within[index] |= matches!(token, Token::Directories);
            }
        }
    }
}

fn tokens(text: &str, double_star: DoubleStar) -> Result<Vec<Token>, BadGlob> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(ch) = chars.next() {
        tokens.push(match ch {
            '*' if double_star == DoubleStar::Directories && chars.peek() == Some(&'*') => {
                chars.next();
                chars.next_if_eq(&'/');
                if chars.peek().is_none() { Token::Rest } else { Token::Directories }
            }
            '*' => Token::Star,
            '?' => Token::Any,
            '\\' => Token::Char(chars.next().ok_or(BadGlob)?),
            '[' => class(&mut chars)?,
            _ => Token::Char(ch),
        });
    }
    Ok(tokens)
}

fn class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Token, BadGlob> {
    let negated = chars.next_if_eq(&'^').is_some();
    let mut ranges = Vec::new();
    loop {
        if chars.peek() == Some(&']') && !ranges.is_empty() {
            chars.next();
            return Ok(Token::Class { negated, ranges });
        }
        let low = member(chars)?;
        let high = if chars.next_if_eq(&'-').is_some() { member(chars)? } else { low };
        ranges.push((low, high));
    }
}

fn member(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<char, BadGlob> {
    match chars.next() {
        None | Some('-' | ']') => Err(BadGlob),
        Some('\\') => chars.next().ok_or(BadGlob),
        Some(ch) => Ok(ch),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the documentation and the tests of Go's `path/filepath`.
    #[test]
    fn as_go_matches() {
        for (pattern, text, expected) in [
            ("abc", "abc", Ok(true)),
            ("*", "abc", Ok(true)),
            ("*c", "abc", Ok(true)),
            ("a*", "a", Ok(true)),
            ("a*", "abc", Ok(true)),
            ("a*", "ab/c", Ok(false)),
            ("a*/b", "abc/b", Ok(true)),
            ("a*/b", "a/c/b", Ok(false)),
            ("a*b*c*d*e*/f", "axbxcxdxe/f", Ok(true)),
            ("a*b*c*d*e*/f", "axbxcxdxexxx/f", Ok(true)),
            ("a*b*c*d*e*/f", "axbxcxdxe/xxx/f", Ok(false)),
            ("a*b?c*x", "abxbbxdbxebxczzx", Ok(true)),
            ("a*b?c*x", "abxbbxdbxebxczzy", Ok(false)),
            ("ab[c]", "abc", Ok(true)),
            ("ab[b-d]", "abc", Ok(true)),
            ("ab[e-g]", "abc", Ok(false)),
            ("ab[^c]", "abc", Ok(false)),
            ("ab[^e-g]", "abc", Ok(true)),
            ("a\\*b", "a*b", Ok(true)),
            ("a\\*b", "ab", Ok(false)),
            ("a?b", "a☺b", Ok(true)),
            ("a[^a]b", "a☺b", Ok(true)),
            ("a???b", "a☺b", Ok(false)),
            ("[a-ζ]*", "α", Ok(true)),
            ("*[a-ζ]", "A", Ok(false)),
            ("a?b", "a/b", Ok(false)),
            ("a*b", "a/b", Ok(false)),
            ("[\\]a]", "]", Ok(true)),
            ("[\\-]", "-", Ok(true)),
            ("[x\\-]", "x", Ok(true)),
            ("[\\-x]", "-", Ok(true)),
            ("[]a]", "]", Err(BadGlob)),
            ("[-]", "-", Err(BadGlob)),
            ("[x-]", "x", Err(BadGlob)),
            ("[-x]", "x", Err(BadGlob)),
            ("\\", "a", Err(BadGlob)),
            ("[a-b-c]", "a", Err(BadGlob)),
            ("[", "a", Err(BadGlob)),
            ("[^", "a", Err(BadGlob)),
            ("[^bc", "a", Err(BadGlob)),
            ("a[", "ab", Err(BadGlob)),
            ("*x", "xxx", Ok(true)),
        ] {
            let found = Glob::parse(pattern).map(|glob| glob.matches(text));
            assert_eq!(found, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn hostile_patterns_take_no_time() {
        let pattern = "**/*a".repeat(500);
        let text = "a".repeat(2_000);
        assert!(!Glob::parse_ignore(&format!("{pattern}b")).unwrap().matches(&text));
    }
}
