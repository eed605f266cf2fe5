//! Lines of a file into instructions: parser directives, comments, continued lines, inline files.

use crate::error::{DockerfileError, Note};
use crate::heredoc::{self, Heredoc};
use crate::limits::{FILE_BYTES_MAX, INSTRUCTIONS_MAX};

/// An instruction as it is written, its lines joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Statement {
    /// Where it begins, from 1.
    pub(crate) line: usize,
    pub(crate) text: String,
    pub(crate) heredocs: Vec<Heredoc>,
}

/// A file in pieces.
#[derive(Debug)]
pub(crate) struct Source {
    /// What escapes a character and continues a line: `\` or `` ` ``.
    pub(crate) escape: char,
    pub(crate) statements: Vec<Statement>,
    pub(crate) notes: Vec<Note>,
}

/// Takes `text` apart. Comments are dropped, also between the lines of an instruction; inline files are kept as they are.
pub(crate) fn read(text: &str) -> Result<Source, DockerfileError> {
    if text.len() > FILE_BYTES_MAX {
        return Err(DockerfileError::new(1, format!("the file is larger than {FILE_BYTES_MAX} bytes")));
    }
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some(at) = text.find('\0') {
        let line = text[..at].matches('\n').count() + 1;
        return Err(DockerfileError::new(line, "the file holds a zero byte; it is not text"));
    }
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut source = Source { escape: '\\', statements: Vec::new(), notes: Vec::new() };
    let mut at = directives(&lines, &mut source)?;
    while at < lines.len() {
        let start = at;
        let line = ended(lines[at]).trim_start();
        at += 1;
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (first, mut goes_on) = continued(line, source.escape);
        let mut joined = first.to_owned();
        while goes_on && at < lines.len() {
            let line = ended(lines[at]);
            at += 1;
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let (piece, more) = continued(line, source.escape);
            joined.push_str(piece);
            goes_on = more;
        }
        if joined.trim().is_empty() {
            continue;
        }
        let mut statement = Statement { line: start + 1, text: joined, heredocs: Vec::new() };
        for mut found in heredoc::starts(&statement.text) {
            at = found.read(&lines, at).map_err(|problem| problem.at(start + 1))?;
            statement.heredocs.push(found);
        }
        if source.statements.len() == INSTRUCTIONS_MAX {
            return Err(DockerfileError::new(
                start + 1,
                format!("there are more than {INSTRUCTIONS_MAX} instructions"),
            ));
        }
        source.statements.push(statement);
    }
    Ok(source)
}

/// A line without its end.
pub(crate) fn ended(line: &str) -> &str {
    line.trim_end_matches(['\r', '\n'])
}

/// A line without the escape at its end, and whether there was one that is not itself escaped.
fn continued(line: &str, escape: char) -> (&str, bool) {
    let trimmed = line.trim_end_matches([' ', '\t']);
    match trimmed.strip_suffix(escape) {
        Some(rest) if !rest.ends_with(escape) => (rest, true),
        _ => (line, false),
    }
}

/// `# name=value` lines at the very top. Answers with the first line that is none.
fn directives(lines: &[&str], source: &mut Source) -> Result<usize, DockerfileError> {
    let mut seen = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let pair = ended(line).trim_start().strip_prefix('#').and_then(|text| text.split_once('='));
        let Some((name, value)) = pair.map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim()))
        else {
            return Ok(at);
        };
        if !["syntax", "escape", "check"].contains(&name.as_str()) || value.is_empty() {
            return Ok(at);
        }
        let error = |problem: String| DockerfileError::new(at + 1, problem);
        if seen.contains(&name) {
            return Err(error(format!("the directive `{name}` is given twice")));
        }
        match (name.as_str(), value) {
            ("escape", "\\") => source.escape = '\\',
            ("escape", "`") => source.escape = '`',
            ("escape", _) => {
                return Err(error(format!("`{value}` cannot be the escape")).hint("use `\\` or `` ` ``"));
            }
            _ => source.notes.push(Note::new(
                at + 1,
                format!("`# {name}=` is ignored: this builder reads Dockerfiles itself"),
            )),
        }
        seen.push(name);
    }
    Ok(lines.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(usize, &str)]) {
        let source = read(text).unwrap();
        let found: Vec<_> =
            source.statements.iter().map(|statement| (statement.line, &*statement.text)).collect();
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn lines_are_joined_and_comments_dropped() {
        check("FROM a\nRUN b\n", &[(1, "FROM a"), (2, "RUN b")]);
        check("\u{feff}FROM a\r\nRUN b", &[(1, "FROM a"), (2, "RUN b")]);
        check("# hello\n\n  FROM a\n", &[(3, "FROM a")]);
        check("RUN a \\\n    b \\\n  c\nRUN d", &[(1, "RUN a     b   c"), (4, "RUN d")]);
        check("RUN a \\\n# why\n\n  # indented\n  && b\n", &[(1, "RUN a   && b")]);
        check("RUN a \\  \nb", &[(1, "RUN a b")]);
        check("RUN a\\\\\nRUN b", &[(1, "RUN a\\\\"), (2, "RUN b")]);
        check("RUN a \\", &[(1, "RUN a ")]);
        check("\\\nRUN a", &[(1, "RUN a")]);
        check("RUN echo # not a comment\n", &[(1, "RUN echo # not a comment")]);
    }

    #[test]
    fn directives_stand_at_the_top() {
        check("# escape=`\nRUN a `\nb\nRUN c\\\n", &[(2, "RUN a b"), (4, "RUN c\\")]);
        check("#syntax=x/y:1\n# Escape = `\nRUN a `\nb", &[(3, "RUN a b")]);
        check("# hello\n# escape=`\nRUN a \\\nb", &[(3, "RUN a b")]);
        assert_eq!(read("# syntax=x\nFROM a").unwrap().notes[0].line, 1);
        assert_eq!(read("# escape=\\\n# escape=\\\n").unwrap_err().line, 2);
        assert!(read("# escape=^\n").unwrap_err().problem.contains('^'));
        assert!(read("FROM a\nRUN \0").unwrap_err().to_string().starts_with("line 2: "));
    }

    #[test]
    fn inline_files_are_kept_as_they_are() {
        let text =
            "RUN <<EOF\n# kept\n  a \\\n\nEOF\nCOPY <<one <<-\"two\" /x/\n1\none\n\t2 $x\n\ttwo\nRUN z";
        let source = read(text).unwrap();
        let heredocs = |at: usize| &source.statements[at].heredocs;
        assert_eq!(heredocs(0)[0].content, "# kept\n  a \\\n\n");
        assert_eq!((&*heredocs(1)[0].name, &*heredocs(1)[0].content), ("one", "1\n"));
        assert_eq!((&*heredocs(1)[1].name, heredocs(1)[1].text()), ("two", "2 $x\n".to_owned()));
        assert!(heredocs(1)[0].expands && !heredocs(1)[1].expands);
        assert_eq!(source.statements[2].line, 11);
        let open = read("FROM a\nRUN <<EOF\nx\n").unwrap_err();
        assert!(open.line == 2 && open.problem.contains("`EOF`"), "{open}");
    }
}
