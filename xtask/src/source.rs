//! Just enough of Rust's grammar to tell code from what is written about it.

/// The text with every comment and the inside of every string and character blanked; lines stay where they are.
pub(crate) fn code_only(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let end = match bytes[at] {
            b'/' if bytes[at..].starts_with(b"//") => line_end(bytes, at),
            b'/' if bytes[at..].starts_with(b"/*") => block_comment_end(bytes, at),
            b'"' => string_end(bytes, at + 1),
            b'r' if starts_raw_string(bytes, at) => raw_string_end(bytes, at),
            b'\'' => character_end(bytes, at),
            _ => at,
        };
        if end == at {
            out.push(bytes[at]);
            at += 1;
        } else {
            out.extend(bytes[at..end].iter().map(|&byte| if byte == b'\n' { b'\n' } else { b' ' }));
            at = end;
        }
    }
    // Whole characters are kept or blanked byte by byte, so this is still UTF-8.
    String::from_utf8_lossy(&out).into_owned()
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |length| from + length)
}

fn block_comment_end(bytes: &[u8], from: usize) -> usize {
    let mut depth = 0_u32;
    let mut at = from;
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

fn string_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// An `r` that begins a raw string rather than ending a name. `br` and `cr` begin one too.
fn starts_raw_string(bytes: &[u8], at: usize) -> bool {
    let before = &bytes[..at];
    let before = before.strip_suffix(b"b").or(before.strip_suffix(b"c")).unwrap_or(before);
    let in_name = before.last().is_some_and(|&byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    !in_name && bytes.get(at + 1 + hashes) == Some(&b'"')
}

fn raw_string_end(bytes: &[u8], at: usize) -> usize {
    let hashes = bytes[at + 1..].iter().take_while(|&&byte| byte == b'#').count();
    let end: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
    let from = at + 2 + hashes;
    let found = bytes[from..].windows(end.len()).position(|window| window == end);
    found.map_or(bytes.len(), |length| from + length + end.len())
}

/// The end of a character, or `at` where the quote begins a lifetime.
fn character_end(bytes: &[u8], at: usize) -> usize {
    let rest = &bytes[at + 1..];
    if rest.first() == Some(&b'\\') {
        let close = rest.iter().skip(2).position(|&byte| byte == b'\'');
        return close.map_or(at, |length| at + 1 + 2 + length + 1);
    }
    // One character of one to four bytes between two quotes.
    match rest.iter().take(5).skip(1).position(|&byte| byte == b'\'') {
        Some(length)
            if std::str::from_utf8(&rest[..=length]).is_ok_and(|inner| inner.chars().count() == 1) =>
        {
            at + 1 + length + 2
        }
        _ => at,
    }
}

/// Whether `word` stands in `line` as a word of its own.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        !line[..at].chars().next_back().is_some_and(part_of_word)
            && !line[at + word.len()..].chars().next().is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, words_left: &[&str]) {
        let code = code_only(text);
        assert_eq!(code.matches('\n').count(), text.matches('\n').count(), "{text}");
        let words: Vec<_> = code.split_whitespace().collect();
        assert_eq!(words, words_left, "{text}");
    }

    #[test]
    fn comments_and_strings_are_not_code() {
        check("a // unsafe\nb", &["a", "b"]);
        check("a /* unsafe /* deeper */ still */ b", &["a", "b"]);
        check("a \"unsafe \\\" // no\" b", &["a", "b"]);
        check("a r#\"unsafe \" quote\"# b", &["a", "b"]);
        check("a br\"unsafe\\\" b", &["a", "b", "b"]);
        check("var\"x\" b", &["var", "b"]);
    }

    #[test]
    fn characters_are_told_from_lifetimes() {
        check("f( '\"' ) unsafe", &["f(", ")", "unsafe"]);
        check("f( '\\'' , 'é' ) g", &["f(", ",", ")", "g"]);
        check("fn f<'a>(x: &'a str) {}", &["fn", "f<'a>(x:", "&'a", "str)", "{}"]);
    }

    #[test]
    fn words_are_whole() {
        assert!(has_word("an unsafe block", "unsafe"));
        assert!(!has_word("unsafe_code", "unsafe"));
        assert!(!has_word("seeing is believing", "see"));
    }
}
