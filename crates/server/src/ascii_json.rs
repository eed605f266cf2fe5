//! JSON in ASCII: some clients split event streams at characters such as U+2028.

use serde::Serialize;

/// `value` as JSON with everything beyond ASCII escaped.
pub(crate) fn ascii_json(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).unwrap_or_else(|_| "null".to_owned());
    if text.is_ascii() && !text.contains('\u{7f}') {
        return text;
    }
    let mut escaped = String::with_capacity(text.len() * 2);
    for character in text.chars() {
        if character.is_ascii() && character != '\u{7f}' {
            escaped.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_beyond_ascii_is_escaped_and_reads_back() {
        for text in ["plain", "é", "🐼", "a\u{2028}b\u{85}c", "\u{b}\u{c}\0\n"] {
            let json = ascii_json(&text);
            assert!(json.is_ascii() && !json.contains(['\n', '\u{b}', '\u{c}']), "{json}");
            assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
        }
    }
}
