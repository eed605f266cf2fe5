//! Results for people: tables, and lists of fields.

use serde::Serialize;
use serde_json::Value;

/// Rows under headings, in columns as wide as what is in them. Without rows there is nothing, so that scripts can count lines.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: &[[String; N]]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    let headings = headings.map(str::to_owned);
    for row in std::iter::once(&headings).chain(rows) {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{:<width$}", plain(cell))).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// The fields of an object, one a line.
pub(crate) fn fields(value: &impl Serialize) -> String {
    let Ok(Value::Object(object)) = serde_json::to_value(value) else { return String::new() };
    let mut named: Vec<(String, String)> =
        object.into_iter().filter_map(|(name, value)| Some((name, shown(value)?))).collect();
    named.sort_by_key(|(name, _)| !matches!(name.as_str(), "id" | "name" | "status"));
    let width = named.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in named {
        text.push_str(&format!("{name:<width$}  {}\n", plain(&value)));
    }
    text
}

/// A value for people; nothing for what is empty.
fn shown(value: Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text),
        Value::Object(map) if map.is_empty() => None,
        Value::Array(list) if list.is_empty() => None,
        Value::Array(list) if list.iter().all(Value::is_string) => {
            Some(list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "))
        }
        other => Some(other.to_string()),
    }
}

/// Text that came from elsewhere, made safe for a terminal.
pub(crate) fn plain(text: &str) -> String {
    let safe = |one: char| match one {
        '\n' | '\t' => ' ',
        one if one.is_control() => '\u{fffd}',
        one => one,
    };
    text.chars().map(safe).collect()
}

/// Bytes as people say them.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_terminals_safe() {
        let rows = [["é".to_owned(), "2".to_owned()], ["long\u{1b}[31m".to_owned(), String::new()]];
        assert_eq!(table(["A", "NUMBER"], &rows), "A          NUMBER\né          2\nlong\u{fffd}[31m\n");
        assert_eq!(table(["A"], &[]), "");
        let value = serde_json::json!({"id": "x", "n": 1, "empty": {}, "list": ["a", "b"], "none": null});
        assert_eq!(fields(&value), "id    x\nlist  a, b\nn     1\n");
        assert_eq!((size(5), size(1536), size(3 << 30)), ("5 B".into(), "1.5 KiB".into(), "3.0 GiB".into()));
    }
}
