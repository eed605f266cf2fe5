//! Inline files: `<<NAME` in a `RUN`, `COPY` or `ADD`, followed by lines up to one that is only `NAME`.

use crate::error::Problem;
use crate::expand::Reading;
use crate::source::ended;

/// An inline file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heredoc {
    pub(crate) name: String,
    /// Whether variables are put into it: not when a part of its name is quoted.
    pub(crate) expands: bool,
    /// `<<-`: tabs at the beginning of lines are dropped.
    pub(crate) tabs_dropped: bool,
    /// As written, tabs included.
    pub(crate) content: String,
}

impl Heredoc {
    /// Reads its lines from `at` on and answers with the line behind its end.
    pub(crate) fn read(&mut self, lines: &[&str], at: usize) -> Result<usize, Problem> {
        for (offset, line) in lines.get(at..).unwrap_or_default().iter().enumerate() {
            let mut end = ended(line);
            if self.tabs_dropped {
                end = end.trim_start_matches('\t');
            }
            if end == self.name {
                return Ok(at + offset + 1);
            }
            self.content.push_str(line);
        }
        Err(Problem::new(format!("the inline file does not end: no line is just `{}`", self.name)))
    }

    /// Its content, without the tabs that `<<-` drops.
    pub(crate) fn text(&self) -> String {
        if !self.tabs_dropped {
            return self.content.clone();
        }
        self.content.split_inclusive('\n').map(|line| line.trim_start_matches('\t')).collect()
    }
}

/// The inline files that an instruction starts, without content yet.
pub(crate) fn starts(statement: &str) -> Vec<Heredoc> {
    let mut words = statement.split_whitespace();
    let instruction = words.next().unwrap_or_default().to_ascii_uppercase();
    if !["RUN", "COPY", "ADD"].contains(&instruction.as_str()) || !statement.contains("<<") {
        return Vec::new();
    }
    let reading = Reading {
        quotes_kept: true,
        escapes_kept: true,
        unset_kept: true,
        bytes_max: usize::MAX,
        ..Reading::words('\\')
    };
    let words = reading.split(statement, &|_| None).unwrap_or_default();
    words.iter().filter_map(|word| start(word)).collect()
}

/// The inline file that `word` starts, if it is just that: `<<NAME`, `<<-NAME`, `<<"NAME"`, `3<<NAME`.
pub(crate) fn start(word: &str) -> Option<Heredoc> {
    let word = word.trim_start_matches(|ch: char| ch.is_ascii_digit()).strip_prefix("<<")?;
    let (tabs_dropped, word) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let word = word.trim_start();
    if word.is_empty() || word.contains('<') {
        return None;
    }
    let plain = Reading { unset_kept: true, ..Reading::words('\\') };
    let [name] = <[String; 1]>::try_from(plain.split(word, &|_| None).ok()?).ok()?;
    let raw = Reading { quotes_kept: true, ..plain }.expand(word, &|_| None).ok()?;
    let quotes = |text: &str| text.matches(['\'', '"']).count();
    let expands = quotes(&raw) == quotes(&name);
    Some(Heredoc { name, expands, tabs_dropped, content: String::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_an_inline_file() {
        for (line, names) in [
            ("RUN <<EOF", &["EOF"][..]),
            ("RUN << EOF", &["EOF"]),
            ("run cat <<a > x && cat <<-'b' > y", &["a", "b"]),
            ("COPY --chmod=755 <<x.sh /x", &["x.sh"]),
            ("RUN 3<<fd cat <&3", &["fd"]),
            ("RUN echo '<<EOF'", &[]),
            ("RUN cat <<<word", &[]),
            ("RUN echo $((1<<2))", &[]),
            ("ENV A=<<EOF", &[]),
            ("RUN \"open <<EOF", &[]),
        ] {
            let found: Vec<_> = starts(line).into_iter().map(|heredoc| heredoc.name).collect();
            assert_eq!(found, names, "{line}");
        }
    }
}
